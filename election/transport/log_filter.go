package transport

import (
	"context"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
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

// LogFilter takes memberlist's log, which has a line for each packet that
// displeases it, and passes on what an operator should read: a wrong key once
// for each source, other trouble once in a while for each kind.
type LogFilter struct {
	log       *slog.Logger
	admission *Admission

	mu   sync.Mutex
	said map[string]*complaint
}

// complaint is one kind of trouble.
type complaint struct {
	when    time.Time
	omitted int
}

// NewLogFilter makes a filter in front of a log.
func NewLogFilter(log *slog.Logger, a *Admission) *LogFilter {
	return &LogFilter{log: log, admission: a, said: make(map[string]*complaint)}
}

// Write takes a line. It serves log.Logger.
func (f *LogFilter) Write(line []byte) (int, error) {
	severity, text := cutSeverity(strings.TrimSpace(string(line)))
	switch {
	case severity < slog.LevelInfo:
	case unreadable(text):
		if from := f.source(text); from.IsValid() {
			f.admission.countUnreadable(from)
		} else {
			f.admission.Unreadable.Add(1)
			f.complain(severity, kind(text), "memberlist: "+text)
		}
	case strings.HasPrefix(text, "ignoring alive message"): // CountRefused has named it
	case strings.Contains(text, net.ErrClosed.Error()): // a last probe while the node stops
	default:
		f.complain(severity, kind(text), "memberlist: "+text)
	}
	return len(line), nil
}

// Warn passes on other trouble that may come with each packet as rarely.
func (f *LogFilter) Warn(text string) { f.complain(slog.LevelWarn, kind(text), text) }

// complain passes on the first of its kind, and how many there were since.
func (f *LogFilter) complain(severity slog.Level, kind, text string) {
	omitted, ok := f.due(kind, time.Now())
	if !ok {
		return
	}
	var attributes []any
	if omitted > 0 {
		attributes = []any{"omitted", omitted}
	}
	f.log.Log(context.Background(), severity, text, attributes...)
}

// due reports whether a kind of complaint is to be passed on, and how many of it
// were not before.
func (f *LogFilter) due(kind string, now time.Time) (omitted int, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.said[kind]
	switch {
	case c != nil && now.Sub(c.when) < quiet:
		c.omitted++
		return 0, false
	case c != nil:
		omitted = c.omitted
	case len(f.said) >= maxComplaints:
		maps.DeleteFunc(f.said, func(_ string, old *complaint) bool { return now.Sub(old.when) >= quiet })
		if len(f.said) >= maxComplaints {
			return 0, false
		}
	}
	f.said[kind] = &complaint{when: now}
	return omitted, true
}

// cutSeverity takes "[WARN] memberlist: " off a line. What memberlist calls an
// error is a warning here, as it goes on, and what it warns of is information.
// The rest is one for each exchange, or what is logged elsewhere in better words.
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

func unreadable(text string) bool {
	return slices.ContainsFunc(unreadables, func(phrase string) bool { return strings.Contains(text, phrase) })
}

// source is the address that a line says something came from, or the address of the
// member that it says failed to answer. The zero address stands for one that it does not
// say.
func (f *LogFilter) source(text string) netip.Addr {
	if answer, ok := strings.CutPrefix(text, "Push/Pull with "); ok {
		member, _, _ := strings.Cut(answer, " ")
		return f.admission.address(member)
	}
	_, from, _ := strings.Cut(text, "from=")
	from, _, _ = strings.Cut(from, " ")
	at, err := netip.ParseAddrPort(from)
	if err != nil {
		return netip.Addr{}
	}
	return at.Addr().Unmap()
}
