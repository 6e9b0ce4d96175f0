package bfd

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/herald-vip/herald/internal/wake"
)

// reporter passes changes of sessions to the log and the server's user. Both may be slow, so it does not block the loop.
type reporter struct {
	log    *slog.Logger
	notify func(Status)

	mu      sync.Mutex
	waiting []change
	arrived chan struct{} // has room for one
}

// change is a change of a session.
type change struct {
	status Status
	// trouble marks a change for the log only: a problem while the state is the same.
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

// run passes changes on until ctx is done, and then the remaining ones.
func (r *reporter) run(ctx context.Context) {
	wake.Loop(ctx, r.arrived, r.passAll)
	r.passAll()
}

// passAll passes on the queued changes.
func (r *reporter) passAll() (never time.Time) {
	r.mu.Lock()
	batch := r.waiting
	r.waiting = nil
	r.mu.Unlock()
	for _, c := range batch {
		r.pass(c)
	}
	return never
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
