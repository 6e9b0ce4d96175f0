package arp

import (
	"context"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/herald-vip/herald/internal/wake"
	"github.com/herald-vip/herald/netutil/link"
)

// sendsInARow is the number of addresses that the loop sends for before it releases the mutex.
const sendsInARow = 64

// Run opens sockets, repeats announcements and watches addresses until ctx is done; then it returns nil. An
// error means that links cannot be watched. Call it once.
func (a *Announcer) Run(ctx context.Context) error {
	a.mu.Lock()
	a.running = true
	a.mu.Unlock()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return a.net.watchLinks(ctx, a.linksChanged) })
	g.Go(func() error { wake.Loop(ctx, a.wake, a.step); return nil })
	g.Go(func() error { a.report(ctx); return nil })
	err := g.Wait()
	a.mu.Lock()
	a.running = false
	for _, s := range a.states {
		s.closeWires()
		s.up = false
	}
	a.mu.Unlock()
	a.readers.Wait()
	return err
}

// step does everything that is due, and returns the time of the next step; zero for never.
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

// stepSome does some of the work that is due. If that was all, it reports true and the time of the next step.
func (a *Announcer) stepSome(now time.Time) (next time.Time, all bool) {
	left := sendsInARow
	for _, s := range a.states {
		if !s.up {
			continue
		}
		if wake.Due(now, s.reopen) && a.fitWires(now, s) == nil {
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
		next = wake.Earlier(next, s.next())
	}
	return next, true
}

// stepEntry does the work that is due for an address, and reports whether it sent anything.
func (a *Announcer) stepEntry(now time.Time, s *linkState, e *entry) (busy bool) {
	// From the end of the burst on: by then neighbours have followed, and the previous holder has released the address.
	patrol := e.announced && e.schedule.due(now) && e.schedule.sent >= len(burst)-1
	if e.due(now) {
		_ = a.announce(now, s, e) // counted, and repeated soon
		busy = true
	}
	if e.watch == nil {
		return busy
	}
	ask, changed := e.watch.step(now)
	if changed {
		a.reportState(s, e)
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

// linksChanged updates the state of all links.
func (a *Announcer) linksChanged(links map[string]link.Link) {
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
	for name, s := range a.states {
		s.takeLink(now, links[name], a.opts.Refresh)
		_ = a.fitWires(now, s) // retried later; Announce returns the error
	}
	a.clearOffenders()
	wake.Up(a.wake)
}

// read handles the frames of a wire until it fails or is interrupted.
func (a *Announcer) read(s *linkState, f family, w wire) {
	defer w.close()
	b := make([]byte, maxFrame)
	var p pace
	for {
		n, err := w.receive(b)
		if err != nil {
			a.dropWire(s, f, w)
			return
		}
		if c, ok := parse(b[:n]); ok {
			a.takeStatement(s, c)
		}
		p.wait()
	}
}

// dropWire removes a failed wire unless it was replaced. A wire fails when its link goes down, which may end before
// the link is reported down.
func (a *Announcer) dropWire(s *linkState, f family, w wire) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s.wires[f] == w {
		s.wires[f], s.watched[f] = nil, nil
		s.reopen = time.Now().Add(reopenEvery)
		wake.Up(a.wake)
	}
}

func (a *Announcer) takeStatement(s *linkState, c statement) {
	a.mu.Lock()
	defer a.mu.Unlock()
	e := s.entries[c.addr]
	if e == nil || e.watch == nil || a.own[c.src] {
		return
	}
	now := time.Now()
	a.stats.Received++
	switch {
	case a.members[c.src]:
		if !e.allowed(now) || c.probe {
			return
		}
		if e.claim(now, c.src) { // must never happen
			a.logLater(slog.LevelError, "TWO MEMBERS ANSWER FOR A VIP: another member claims it again after this node contradicted it",
				"address", e.addr, "link", s.name, "mac", c.src.hardware().String())
		}
		// The member may not know yet that the address is here, and neighbours may believe it.
		if e.answer(now, memberGrace) {
			wake.Up(a.wake)
		}
	case e.watch.conflict(c):
		a.stats.Conflicts++
		changed, stranger := e.watch.taken(now, c.src)
		if changed {
			a.reportState(s, e)
		} else if stranger {
			a.logLater(slog.LevelError, "another host that is not a member uses a VIP",
				"address", e.addr, "link", s.name, "mac", c.src.hardware().String(), "policy", e.watch.policy)
		}
		if e.announced && e.watch.policy == Defend && e.answer(now, 0) {
			a.stats.Defended++
			wake.Up(a.wake)
		}
	}
}

const (
	// maxFrame is the size of the read buffer in bytes: statements fit any link's MTU.
	maxFrame = 1514

	// paceReads is the maximum number of reads of a wire in each paceTime. Further packets wait in the socket's buffer,
	// or the kernel drops them, which is cheap: a flood repeats the same statements.
	paceReads = 100
	paceTime  = 100 * time.Millisecond
)

// pace limits a reader's use of the CPU.
type pace struct {
	start time.Time
	reads int
}

// wait sleeps after too many reads. Call it after each read.
func (p *pace) wait() {
	now := time.Now()
	if now.Sub(p.start) >= paceTime {
		p.start, p.reads = now, 0
	}
	if p.reads++; p.reads == paceReads {
		time.Sleep(paceTime - now.Sub(p.start))
	}
}

// burst holds the times of announcements after an address has moved. The first leaves at once, the next soon, as they
// are not acknowledged. The others follow at growing distances, for slow switches and busy neighbours.
//
// RFC 5227, section 2.3, has two announcements 2 s apart, and RFC 4861, section 7.2.6, three
// announcements 1 s apart. Both are too slow for a service that waits for one.
var burst = [...]time.Duration{
	0,
	50 * time.Millisecond,
	150 * time.Millisecond,
	350 * time.Millisecond,
	750 * time.Millisecond,
	1500 * time.Millisecond,
	3 * time.Second,
}

// schedule holds the times of an address's announcements.
type schedule struct {
	start   time.Time
	sent    int // announcements of the burst
	next    time.Time
	refresh time.Duration
}

// startSchedule begins a burst.
func startSchedule(now time.Time, refresh time.Duration) schedule {
	return schedule{start: now, next: now, refresh: refresh}
}

func (s schedule) due(now time.Time) bool { return !now.Before(s.next) }

// done returns the schedule after an announcement. It skips announcements that are overdue.
func (s schedule) done(now time.Time) schedule {
	for s.sent++; s.sent < len(burst); s.sent++ {
		if s.next = s.start.Add(burst[s.sent]); s.next.After(now) {
			return s
		}
	}
	s.sent = len(burst)
	s.next = now.Add(s.refresh)
	return s
}
