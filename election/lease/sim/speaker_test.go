package sim

import (
	"slices"
	"time"

	"github.com/herald-vip/herald/election/lease"
)

// speaker models Herald's user of the machine: a worker that opens and closes the fence step by step, campaigns for
// leases and steps down.
type speaker struct {
	*process
	vips []vip
	busy bool
	// unanswered is since when events wait and no task has ended; zero: none waits. Until stuck, no step goes on.
	unanswered time.Time
	stuck      instant
}

// vip is the speaker's state of one VIP.
type vip struct {
	campaigning bool      // it has told the machine to campaign
	stale       bool      // the configuration file has changed
	until       time.Time // end of a grant to act on; zero: none
	lost        bool      // the lease was lost: close the fence, and release later grants
	yield       bool      // hand over
	rest        bool      // do not campaign for a while after a handover
}

// observe records the machine's events, on the machine's goroutine. Only the last event of a lease counts.
func (s *speaker) observe(e lease.Event) {
	w := s.w
	if s.unanswered.IsZero() {
		s.unanswered = s.now()
	}
	switch e := e.(type) {
	case lease.Granted:
		v, now := vipOf(e.Lease), s.now()
		w.log(s.name, "granted vip%d epoch %d for %v", v, e.Epoch, e.Until.Sub(now))
		w.figures.grants++
		if active, _ := s.machine.Electorates(); !slices.Contains(active.Members, s.member()) {
			w.figures.observers++
		}
		s.under[v] = s.disk.Committed.Cluster
		if other := w.check.claim(v, s.index, w.now, s.clock.when(e.Until)); other >= 0 && !w.allowed(v, other, s.index) && w.variant.watchesHolds() {
			w.fail("two hold", "%s is granted vip%d, which %s holds", s.name, v, w.nodes[other].name)
		}
		if s.vips[v].campaigning {
			s.vips[v].until, s.vips[v].lost = e.Until, false
		}
	case lease.Lost:
		v := vipOf(e.Lease)
		w.log(s.name, "lost vip%d: %v", v, e.Reason)
		w.figures.losses++
		s.vips[v].until, s.vips[v].lost = time.Time{}, true
	case lease.Transfer:
		v := vipOf(e.Lease)
		w.log(s.name, "must transfer vip%d to %s: %v", v, e.To, e.Reason)
		w.figures.transferTo++
		s.vips[v].yield = s.vips[v].campaigning
	}
	s.work()
}

// work starts the next task unless one is in progress.
func (s *speaker) work() {
	if s.busy {
		return
	}
	for i := range s.vips {
		v := &s.vips[i]
		switch {
		case v.campaigning && (v.yield || v.lost || s.unsound[i]):
			s.stepDown(i)
		case !v.until.IsZero():
			s.open(i, v.until)
		case !v.rest && !s.unsound[i] && (!v.campaigning || v.stale):
			v.campaigning, v.stale = true, false
			s.step(func() {
				s.log("stands for vip%d: %+v", i, s.want[i])
				s.machine.Campaign(s.now(), s.want[i])
				s.flush()
				s.done()
			})
		default:
			continue
		}
		return
	}
	s.unanswered = time.Time{}
}

// step runs one step after its latency.
func (s *speaker) step(what func()) {
	s.busy = true
	s.strike(s.w.set.strike)
	s.after(max(s.latency(), s.stuck-s.w.now), what)
}

func (s *speaker) done() {
	s.busy, s.unanswered = false, s.now()
	s.run()
	s.work()
}

// hang lets no step of the speaker go on for a while.
func (s *speaker) hang(d time.Duration) {
	s.log("is stuck for %v", d)
	s.stuck = s.w.now + d
}

func (s *speaker) log(format string, args ...any) { s.w.log(s.name, format, args...) }

// open opens the fence until a lease ends: arm, read the clock, open.
func (s *speaker) open(v int, until time.Time) {
	began := s.w.now
	s.step(func() {
		s.arm()
		s.step(func() {
			d := until.Sub(s.now()) - s.w.set.arm - 2*s.w.set.jiffy
			s.step(func() {
				if s.vips[v].until.Equal(until) {
					s.vips[v].until = time.Time{} // unless a newer grant arrived meanwhile
				}
				if d > 0 && began >= s.woke && !s.node.open(v, d) && s.vips[v].until.IsZero() && !s.vips[v].lost {
					s.vips[v].until = until // again
				}
				s.done()
			})
		})
	})
}

// stepDown hands a VIP over, or releases a lost lease: it closes the fence before it releases the lease.
func (s *speaker) stepDown(v int) {
	handover := s.vips[v].yield
	s.step(func() {
		if !s.w.variant.earlyRelease {
			s.close(v)
		}
		s.step(func() {
			s.log("resigns vip%d", v)
			// Earlier events of the machine are void.
			s.vips[v] = vip{rest: handover}
			s.w.check.release(v, s.index, s.w.now)
			s.machine.StepDown(s.now(), s.want[v].Lease)
			s.flush()
			if s.w.variant.earlyRelease {
				s.after(s.w.round(), func() { s.close(v) })
			}
			if handover {
				s.after(s.w.between(0, s.w.set.lease), func() { s.vips[v].rest = false; s.work() })
			}
			s.done()
		})
	})
}
