package bfd

import (
	"context"
	"log/slog"
	"sync"
)

// reporter passes news of sessions on to the log and the server's user, who may
// both be slow, without holding up the loop.
type reporter struct {
	log    *slog.Logger
	notify func(Status)

	mu      sync.Mutex
	waiting []news
	closed  bool
	arrived chan struct{} // has room for one
}

// news is a change of a session.
type news struct {
	status Status
	// trouble is news of its own, for the log only: what is wrong although the
	// state is the same.
	trouble bool
}

func newReporter(log *slog.Logger, notify func(Status)) *reporter {
	return &reporter{log: log, notify: notify, arrived: make(chan struct{}, 1)}
}

// add queues news.
func (r *reporter) add(n news) {
	r.mu.Lock()
	r.waiting = append(r.waiting, n)
	r.mu.Unlock()
	r.stir()
}

// close lets run end when all that is queued is passed on.
func (r *reporter) close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.stir()
}

func (r *reporter) stir() {
	select {
	case r.arrived <- struct{}{}:
	default:
	}
}

// run passes news on until close.
func (r *reporter) run() {
	for range r.arrived {
		r.mu.Lock()
		batch, closed := r.waiting, r.closed
		r.waiting = nil
		r.mu.Unlock()
		for _, n := range batch {
			r.pass(n)
		}
		if closed {
			return
		}
	}
}

func (r *reporter) pass(n news) {
	st := n.status
	level, attrs := slog.LevelInfo, []slog.Attr{slog.Any("peer", st.Peer), slog.String("state", st.State.String())}
	switch {
	case st.State == Init:
		level = slog.LevelDebug // on the way to something else
	case st.Failed || n.trouble:
		level = slog.LevelWarn
	}
	if st.Reason != "" {
		attrs = append(attrs, slog.String("reason", st.Reason))
	}
	r.log.LogAttrs(context.Background(), level, "BFD session", attrs...)
	if !n.trouble && r.notify != nil {
		r.notify(st)
	}
}
