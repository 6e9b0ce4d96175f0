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
	// quiet is the minimum time between two log lines of one kind of memberlist's complaints.
	quiet = 10 * time.Minute
	// maxComplaints limits the number of remembered kinds.
	maxComplaints = 64
)

// unreadables are memberlist's messages about packets that it cannot decrypt or decode: signs of a wrong key.
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

// LogFilter receives memberlist's log, which has a line per rejected packet. It passes on lines for the operator: a
// wrong key once per source, other trouble at a limited rate per kind.
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

// NewLogFilter returns a filter that writes to log.
func NewLogFilter(log *slog.Logger, a *Admission) *LogFilter {
	return &LogFilter{log: log, admission: a, said: make(map[string]*complaint)}
}

// Write handles a line of memberlist's log. It implements io.Writer.
func (f *LogFilter) Write(line []byte) (int, error) {
	severity, text := cutSeverity(strings.TrimSpace(string(line)))
	switch {
	case severity < slog.LevelInfo:
	case slices.ContainsFunc(unreadables, func(phrase string) bool { return strings.Contains(text, phrase) }):
		if from := f.source(text); from.IsValid() {
			f.admission.countUnreadable(from)
		} else {
			f.admission.Unreadable.Add(1)
			f.complain(severity, kind(text), "memberlist: "+text)
		}
	case strings.HasPrefix(text, "ignoring alive message"): // CountRefused has logged it
	case strings.Contains(text, net.ErrClosed.Error()): // the last probe while the node stops
	default:
		f.complain(severity, kind(text), "memberlist: "+text)
	}
	return len(line), nil
}

// Warn logs other recurring trouble at the same rate.
func (f *LogFilter) Warn(text string) { f.complain(slog.LevelWarn, kind(text), text) }

// complain logs the first complaint of its kind, with the number omitted since the last one.
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

// due reports whether to log a complaint, and how many of its kind were omitted.
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

// cutSeverity removes "[WARN] memberlist: " from a line. Memberlist's errors become warnings, because it continues, and
// its warnings become information. Its other lines occur at each exchange or duplicate ours.
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

// kind returns the common part of similar lines: the text before the first name, number or reason.
func kind(text string) string {
	if i := strings.IndexAny(text, ":'\"(0123456789"); i >= 0 {
		return text[:i]
	}
	return text
}

// source returns the source address in a line, or the address of the member that failed to answer; the zero address if
// the line has neither.
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
