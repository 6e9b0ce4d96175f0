package bfd

import (
	"context"
	"log/slog"
	"sync"

	"github.com/herald-vip/herald/wake"
)

// reporter passes changes of sessions on to the log and the server's user, who may
// both be slow, without holding up the loop.
type reporter struct {
	log    *slog.Logger
	notify func(Status)

	mu      sync.Mutex
	waiting []change
	closed  bool
	arrived chan struct{} // has room for one
}

// change is what has become of a session.
type change struct {
	status Status
	// trouble is a change for the log only: what is wrong although the
	// state is the same.
	trouble bool
}

func newReporter(log *slog.Logger, notify func(Status)) *reporter {
	return &reporter{log: log, notify: notify, arrived: make(chan struct{}, 1)}
}

// add queues a change.
func (r *reporter) add(c change) {
	r.mu.Lock()
	r.waiting = append(r.waiting, c)
	r.mu.Unlock()
	wake.Up(r.arrived)
}

// close lets run end when all that is queued is passed on.
func (r *reporter) close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	wake.Up(r.arrived)
}

// run passes changes on until close.
func (r *reporter) run() {
	for range r.arrived {
		r.mu.Lock()
		batch, closed := r.waiting, r.closed
		r.waiting = nil
		r.mu.Unlock()
		for _, c := range batch {
			r.pass(c)
		}
		if closed {
			return
		}
	}
}

func (r *reporter) pass(c change) {
	st := c.status
	level, attrs := slog.LevelInfo, []slog.Attr{slog.Any("peer", st.Peer), slog.String("state", st.State.String())}
	switch {
	case st.State == Init:
		level = slog.LevelDebug // on the way to something else
	case st.Failed || c.trouble:
		level = slog.LevelWarn
	}
	if st.Reason != "" {
		attrs = append(attrs, slog.String("reason", st.Reason))
	}
	r.log.LogAttrs(context.Background(), level, "BFD session", attrs...)
	if !c.trouble && r.notify != nil {
		r.notify(st)
	}
}
