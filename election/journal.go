package election

import (
	"context"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"
)

const (
	// quiet is how long memberlist does not repeat a complaint.
	quiet = 10 * time.Minute
	// maxComplaints bounds how many kinds of complaints are remembered.
	maxComplaints = 64
)

// unreadables is how memberlist says that it cannot decrypt or decode what a
// member sent, which is how a wrong key shows.
var unreadables = []string{
	"Decrypt packet failed",
	"no installed keys could decrypt",
	"encryption is configured but remote state is not encrypted",
	"remote state is encrypted and encryption is not configured",
	"unsupported encryption version",
	"payload is too small to decrypt",
	"Failed to decode",
	"not supported",
	"missing message type",
}

// journal takes memberlist's log, which has a line for each packet that
// displeases it, and passes on what an operator should read: a wrong key once
// for each source, other trouble once in a while for each kind. Trouble of this
// package's own that may come with each packet is passed on alike.
type journal struct {
	log  *slog.Logger
	gate *gate

	mu   sync.Mutex
	said map[string]*complaint
}

// complaint is one kind of trouble.
type complaint struct {
	when    time.Time
	omitted int
}

func newJournal(log *slog.Logger, g *gate) *journal {
	return &journal{log: log, gate: g, said: make(map[string]*complaint)}
}

// Write takes a line. It serves log.Logger.
func (j *journal) Write(line []byte) (int, error) {
	severity, text := cutSeverity(strings.TrimSpace(string(line)))
	switch {
	case severity < slog.LevelInfo:
	case unreadable(text):
		j.gate.locked(source(text))
	case strings.HasPrefix(text, "ignoring alive message"): // the roster has named it
	case strings.Contains(text, net.ErrClosed.Error()): // a last probe while the node stops
	default:
		j.complain(severity, kind(text), "memberlist: "+text)
	}
	return len(line), nil
}

// warn passes on trouble of this package's own, as rarely as memberlist's.
func (j *journal) warn(text string) { j.complain(slog.LevelWarn, kind(text), text) }

// complain passes on the first of its kind, and how many there were since.
func (j *journal) complain(severity slog.Level, kind, text string) {
	omitted, ok := j.due(kind, time.Now())
	if !ok {
		return
	}
	if omitted > 0 {
		j.log.Log(context.Background(), severity, text, "omitted", omitted)
		return
	}
	j.log.Log(context.Background(), severity, text)
}

// due reports whether a kind of complaint is to be passed on, and how many of it
// were not before.
func (j *journal) due(kind string, now time.Time) (omitted int, ok bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	c := j.said[kind]
	if c == nil {
		maps.DeleteFunc(j.said, func(_ string, old *complaint) bool {
			return len(j.said) >= maxComplaints && now.Sub(old.when) >= quiet
		})
		if len(j.said) >= maxComplaints {
			return 0, false
		}
		j.said[kind] = &complaint{when: now}
		return 0, true
	}
	if now.Sub(c.when) < quiet {
		c.omitted++
		return 0, false
	}
	omitted = c.omitted
	*c = complaint{when: now}
	return omitted, true
}

// cutSeverity takes "[WARN] memberlist: " off a line. What memberlist calls an
// error is a warning here, as it goes on, and what it warns of is information.
// The rest is one for each exchange, or what the roster tells in better words.
func cutSeverity(line string) (slog.Level, string) {
	tag, text, ok := strings.Cut(line, "] ")
	if !ok || !strings.HasPrefix(tag, "[") {
		return slog.LevelWarn, line
	}
	text = strings.TrimPrefix(text, "memberlist: ")
	switch tag {
	case "[DEBUG", "[INFO":
		return slog.LevelDebug, text
	case "[WARN":
		return slog.LevelInfo, text
	}
	return slog.LevelWarn, text
}

// kind is what lines of one kind have in common: what comes before the first
// name, number or reason.
func kind(text string) string {
	if i := strings.IndexAny(text, ":'\"(0123456789"); i >= 0 {
		return text[:i]
	}
	return text
}

// unreadable reports whether a line is about something that cannot be decrypted.
func unreadable(text string) bool {
	for _, phrase := range unreadables {
		if strings.Contains(text, phrase) {
			return true
		}
	}
	return false
}

// source is the address that a line says something came from. The zero address
// stands for one that it does not say.
func source(text string) netip.Addr {
	_, from, _ := strings.Cut(text, "from=")
	from, _, _ = strings.Cut(from, " ")
	at, err := netip.ParseAddrPort(from)
	if err != nil {
		return netip.Addr{}
	}
	return at.Addr().Unmap()
}
