package sim

import (
	"slices"
	"time"

	"github.com/herald-vip/herald/election/lease"
)

// A speaker models what acts on the machine in Herald: one worker that opens and closes
// the fence, step by step, and stands for leases or resigns them.
type speaker struct {
	*process
	vips []vip
	busy bool
}

// A vip is what the speaker knows of one VIP and has yet to do for it.
type vip struct {
	campaigning bool      // it told the machine to stand
	stale       bool      // the config file has another candidacy by now
	until       time.Time // a grant to act on; zero: none
	lost        bool      // the lease was lost: close, and give back what others may have granted since
	yield       bool      // hand over
	rest        bool      // after a handover it does not stand for a while
}

// observe takes in what the machine tells, on the machine's goroutine. Only the
// last word on a lease counts.
func (s *speaker) observe(e lease.Event) {
	w := s.w
	switch e := e.(type) {
	case lease.Granted:
		v, now := vipOf(e.Lease), s.now()
		w.log(s.name, "granted vip%d epoch %d for %v", v, e.Epoch, e.Until.Sub(now))
		w.figures.grants++
		if active, _ := s.machine.Electorates(); !slices.Contains(active.Members, s.member()) {
			w.figures.observers++
		}
		if other := w.check.claim(v, s.index, w.now, s.clock.when(e.Until)); other >= 0 && w.exclusive() && w.variant.watchesHolds() {
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
		w.log(s.name, "is to yield vip%d to %s: %v", v, e.To, e.Reason)
		w.figures.transferTo++
		s.vips[v].yield = s.vips[v].campaigning
	}
	s.work()
}

// work starts the next thing to do, if it is not at one already.
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
}

// step does one thing after the time it takes to get there.
func (s *speaker) step(what func()) {
	s.busy = true
	s.strike(s.w.set.strike)
	s.after(s.latency(), what)
}

func (s *speaker) done() {
	s.busy = false
	s.work()
}

func (s *speaker) log(format string, args ...any) { s.w.log(s.name, format, args...) }

// open opens the fence until a lease ends: arm, read the clock, open.
func (s *speaker) open(v int, until time.Time) {
	s.step(func() {
		s.arm()
		s.step(func() {
			d := until.Sub(s.now()) - s.w.set.arm - 2*s.w.set.jiffy
			s.step(func() {
				if s.vips[v].until.Equal(until) {
					s.vips[v].until = time.Time{} // nothing newer came meanwhile
				}
				if d > 0 && !s.node.open(v, d) && s.vips[v].until.IsZero() && !s.vips[v].lost {
					s.vips[v].until = until // once more
				}
				s.done()
			})
		})
	})
}

// resign hands a VIP over, or gives back what was lost: the fence is closed before the lease is released.
func (s *speaker) stepDown(v int) {
	handover := s.vips[v].yield
	s.step(func() {
		if !s.w.variant.earlyRelease {
			s.close(v)
		}
		s.step(func() {
			s.log("resigns vip%d", v)
			// Whatever the machine said before this is void.
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
