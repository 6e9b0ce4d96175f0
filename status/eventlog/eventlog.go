// Package eventlog keeps the last lines of a process's log for its status. Every change of state is logged with its
// reason, so these lines tell the recent history.
package eventlog

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/herald-vip/herald/internal/text"
)

// Event is a line of the log, at level info or above. Its JSON is part of the output of `herald status -o json`.
type Event struct {
	At    time.Time  `json:"at"`
	Level slog.Level `json:"level"`
	// The fields are the line's message, its attributes as key=value, and the attribute that gives a reason. Each is one
	// line of [longest] characters at most.
	What  string `json:"what"`
	About string `json:"about,omitempty"`
	Why   string `json:"why,omitempty"`
	// Of and State are set for a change of state only: the subject (`vip NAME ADDRESS`, `check NAME` or `peer NAME`) and its new state.
	Of    string `json:"of,omitempty"`
	State string `json:"state,omitempty"`
}

// longest bounds the memory of an event: a refused file lists all of its mistakes, and peers send texts.
const longest = 1000

// Log keeps the last events. Its methods are safe for concurrent use.
type Log struct {
	size int

	mu   sync.Mutex
	last []Event // the oldest first
}

// New returns a log of the last size events.
func New(size int) *Log { return &Log{size: size, last: make([]Event, 0, size)} }

// Events returns the last events, the newest first.
func (l *Log) Events() []Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := slices.Clone(l.last)
	slices.Reverse(out)
	return out
}

func (l *Log) add(e Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.last) == l.size {
		l.last = slices.Delete(l.last, 0, 1)
	}
	l.last = append(l.last, e)
}

// Handler returns a handler that keeps records from level info on, and passes all records to next.
func (l *Log) Handler(next slog.Handler) slog.Handler { return handler{log: l, next: next} }

// handler is copied by each With and WithGroup.
type handler struct {
	log   *Log
	next  slog.Handler
	group string      // in front of the keys to come, with a dot at its end
	attrs []slog.Attr // from With, keys complete
}

var _ slog.Handler = handler{}

// Enabled implements [slog.Handler].
func (h handler) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelInfo || h.next.Enabled(ctx, level)
}

// Handle implements [slog.Handler].
func (h handler) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelInfo {
		h.log.add(h.event(r))
	}
	if !h.next.Enabled(ctx, r.Level) {
		return nil
	}
	return h.next.Handle(ctx, r)
}

// WithAttrs implements [slog.Handler].
func (h handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	h.next = h.next.WithAttrs(attrs)
	h.attrs = slices.Clip(h.attrs)
	for _, a := range attrs {
		h.attrs = append(h.attrs, slog.Attr{Key: h.group + a.Key, Value: a.Value})
	}
	return h
}

// WithGroup implements [slog.Handler].
func (h handler) WithGroup(name string) slog.Handler {
	h.next = h.next.WithGroup(name)
	h.group += name + "."
	return h
}

func (h handler) event(r slog.Record) Event {
	var about, why []string
	var subject, state string
	take := func(key string, v slog.Value) {
		value := v.Resolve().String()
		switch key {
		case "reason", "err":
			why = append(why, value)
			return
		case "state":
			state = value
			return
		case "vip", "check", "peer":
			subject = key + " " + value
		case "address":
			subject += " " + value
		}
		about = append(about, key+"="+value)
	}
	for _, a := range h.attrs {
		take(a.Key, a.Value)
	}
	r.Attrs(func(a slog.Attr) bool {
		take(h.group+a.Key, a.Value)
		return true
	})
	if state == "" {
		subject = ""
	}
	return Event{
		Of: text.Short(subject, longest), State: text.Short(state, longest),
		At: r.Time, Level: r.Level,
		What: text.Short(r.Message, longest), About: text.Short(strings.Join(about, " "), longest), Why: text.Short(strings.Join(why, "; "), longest),
	}
}
