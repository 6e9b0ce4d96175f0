package arp

import (
	"context"
	"log/slog"
	"time"

	"github.com/herald-vip/herald/internal/wake"
)

// Log messages and calls of Options.Observe go through a queue to a separate goroutine, so that they never delay
// announcements. The functions that queue them are called with the Announcer's mutex held.

func (a *Announcer) reportState(s *linkState, e *entry) {
	f, policy, prev := s.finding(e), e.watch.policy, e.watch.reported
	e.watch.reported = f.State
	a.enqueue(func() {
		switch {
		case f.State == Taken:
			a.log.Error("a host that is not a member uses a VIP",
				"address", f.Addr, "link", f.Link, "mac", f.MAC.String(), "policy", policy)
		case f.State == Free && prev == Taken:
			a.log.Info("only members use the VIP again", "address", f.Addr, "link", f.Link)
		}
		if a.opts.Observe != nil {
			a.opts.Observe(f)
		}
	})
}

// reportWires reports that a link's sockets cannot be opened, and the end of that.
func (a *Announcer) reportWires(s *linkState, err error) {
	if s.broken == (err != nil) {
		return
	}
	if s.broken = err != nil; s.broken {
		a.logLater(slog.LevelError, "cannot announce or watch VIPs on a link", "link", s.name, "err", err)
	} else {
		a.logLater(slog.LevelInfo, "can announce and watch VIPs on the link again", "link", s.name)
	}
}

func (a *Announcer) logLater(level slog.Level, message string, attributes ...any) {
	a.enqueue(func() { a.log.Log(context.Background(), level, message, attributes...) })
}

func (a *Announcer) enqueue(f func()) {
	a.reports = append(a.reports, f)
	wake.Up(a.reported)
}

// report handles the queue until ctx is done.
func (a *Announcer) report(ctx context.Context) {
	wake.Loop(ctx, a.reported, func() (never time.Time) {
		a.mu.Lock()
		reports := a.reports
		a.reports = nil
		a.mu.Unlock()
		for _, f := range reports {
			f()
		}
		return never
	})
}
