package arp

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/herald-vip/herald/netutil"
)

// sendsInARow is for how many addresses the loop sends before it lets others in.
const sendsInARow = 64

// Run opens sockets, repeats announcements and watches until ctx is done, and returns
// nil then. An error means that links cannot be watched. Run it once.
func (a *Announcer) Run(ctx context.Context) error {
	a.mu.Lock()
	a.running = true
	a.mu.Unlock()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return a.net.watchLinks(ctx, a.linksChanged) })
	g.Go(func() error { a.loop(ctx); return nil })
	g.Go(func() error { a.tell(ctx); return nil })
	err := g.Wait()
	a.rest()
	return err
}

// rest ends what Run kept going.
func (a *Announcer) rest() {
	a.mu.Lock()
	a.running = false
	for _, s := range a.segments {
		s.detach()
		s.up = false
	}
	a.mu.Unlock()
	a.readers.Wait()
}

// loop does what is due.
func (a *Announcer) loop(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.wake:
		case <-timer.C:
		}
		next := a.step()
		if next.IsZero() {
			timer.Stop()
			continue
		}
		timer.Reset(time.Until(next))
	}
}

// step does all that is due and returns when the next is; zero for never.
func (a *Announcer) step() time.Time {
	for {
		a.mu.Lock()
		next, all := a.stepSome(time.Now())
		a.mu.Unlock()
		if all {
			return next
		}
	}
}

// stepSome does some of what is due. It returns whether that was all, and if so when
// the next is.
func (a *Announcer) stepSome(now time.Time) (next time.Time, all bool) {
	left := sendsInARow
	for _, s := range a.segments {
		if !s.up {
			continue
		}
		if !s.reopen.IsZero() && !now.Before(s.reopen) && a.fit(now, s) == nil {
			s.restart(now, a.opts.Refresh)
		}
		for _, e := range s.entries {
			if left == 0 {
				return time.Time{}, false
			}
			if a.stepEntry(now, s, e) {
				left--
			}
		}
		next = earlier(next, s.next())
	}
	return next, true
}

// stepEntry does what is due about an address and returns whether that was anything.
func (a *Announcer) stepEntry(now time.Time, s *segment, e *entry) (busy bool) {
	patrol := e.announced && e.schedule.due(now) && e.schedule.steady()
	if e.due(now) {
		_ = a.announce(now, s, e) // counted, and the next is on its way
		busy = true
	}
	if e.watch == nil {
		return busy
	}
	ask, changed := e.watch.step(now)
	if changed {
		a.changed(s, e)
	}
	if ask || patrol && e.allowed(now) {
		busy = true
		if s.send(e.addr, probe(s.src, e.addr)) != nil {
			a.stats.Failed++
		} else {
			a.stats.Probed++
		}
	}
	return busy
}

// linksChanged takes in the state of all links.
func (a *Announcer) linksChanged(links map[string]netutil.Link) {
	own := make(map[mac]bool, len(links))
	for _, l := range links {
		if m, ok := macOf(l.MAC); ok {
			own[m] = true
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	a.links, a.own = links, own
	for name, s := range a.segments {
		s.attach(now, links[name], a.opts.Refresh)
		_ = a.fit(now, s) // tried again, and Announce tells
	}
	a.acquit(now)
	signal(a.wake)
}

// read takes in what a wire receives until it fails or is let go of.
func (a *Announcer) read(s *segment, f family, w wire) {
	defer w.close()
	b := make([]byte, maxFrame)
	var p pace
	for {
		n, err := w.receive(b)
		if err != nil {
			a.lost(s, f, w)
			return
		}
		if c, ok := parse(b[:n]); ok {
			a.heard(s, c)
		}
		p.wait()
	}
}

// lost notes that a wire is of no more use, if it is in use. It fails when its link
// goes down, which may be over before the link is told to be down.
func (a *Announcer) lost(s *segment, f family, w wire) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s.wires[f] == w {
		s.wires[f], s.watched[f] = nil, nil
		s.reopen = time.Now().Add(reopenEvery)
		signal(a.wake)
	}
}

// heard judges a claim.
func (a *Announcer) heard(s *segment, c claim) {
	a.mu.Lock()
	defer a.mu.Unlock()
	e := s.entries[c.addr]
	if e == nil || e.watch == nil || a.own[c.src] {
		return
	}
	now := time.Now()
	a.stats.Heard++
	switch {
	case a.members[c.src]:
		// One of them may not know yet that the address is here, and neighbours may believe it.
		if e.announced && !c.probe && e.answer(now, settle) {
			signal(a.wake)
		}
	case e.watch.conflict(c):
		a.stats.Conflicts++
		changed, stranger := e.watch.taken(now, c.src)
		if changed {
			a.changed(s, e)
		} else if stranger {
			a.stranger(s, e, c.src)
		}
		if e.announced && e.watch.policy == Defend && e.answer(now, 0) {
			a.stats.Defended++
			signal(a.wake)
		}
	}
}
