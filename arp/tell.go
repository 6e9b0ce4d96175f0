package arp

import "context"

// What is to be logged, and what the observer is to be told, goes through a queue to a
// goroutine of its own: neither may keep announcements waiting. The Announcer's mutex is held
// by those who put something into it.

// changed tells a new state.
func (a *Announcer) changed(s *segment, e *entry) {
	f, policy, was := s.finding(e), e.watch.policy, e.watch.told
	e.watch.told = f.State
	a.later(func() {
		switch {
		case f.State == Taken:
			a.log.Error("someone outside the electorate uses a VIP",
				"address", f.Addr, "interface", f.Link, "mac", f.MAC.String(), "policy", policy)
		case f.State == Free && was == Taken:
			a.log.Info("nobody outside the electorate uses the VIP any more", "address", f.Addr, "interface", f.Link)
		}
		if a.opts.Observe != nil {
			a.opts.Observe(f)
		}
	})
}

// stranger tells that by uses an address too that is Taken already.
func (a *Announcer) stranger(s *segment, e *entry, by mac) {
	addr, link, policy := e.addr, s.name, e.watch.policy
	a.later(func() {
		a.log.Error("one more outside the electorate uses a VIP",
			"address", addr, "interface", link, "mac", by.hardware().String(), "policy", policy)
	})
}

// broken tells why a link's sockets cannot be opened, until they can.
func (a *Announcer) broken(s *segment, err error) {
	if s.broken == (err != nil) {
		return
	}
	s.broken = err != nil
	link := s.name
	a.later(func() {
		if err != nil {
			a.log.Error("cannot announce or watch VIPs on a link", "interface", link, "err", err)
			return
		}
		a.log.Info("can announce and watch VIPs on the link again", "interface", link)
	})
}

func (a *Announcer) later(f func()) {
	a.untold = append(a.untold, f)
	signal(a.news)
}

// tell tells what is in the queue until ctx is done.
func (a *Announcer) tell(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.news:
		}
		a.mu.Lock()
		untold := a.untold
		a.untold = nil
		a.mu.Unlock()
		for _, f := range untold {
			f()
		}
	}
}
