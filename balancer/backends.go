package balancer

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/herald-vip/herald/internal/wake"
)

const (
	// grace is how long a healthy backend keeps its connections after it timed out. Clients wait longer for an answer; a
	// busy machine or a killed Herald is back sooner. New connections go to other backends at once.
	grace = 2 * time.Second
	// farewell is how long a backend keeps its connections after it announced to leave, or lost its check results: an
	// upgrade of Herald there takes seconds.
	farewell = time.Minute
	// maxGone is how many gone backends are remembered. A DNS name may resolve to other addresses each time.
	maxGone = 64
)

// condition is the health that a source reports of a backend.
type condition int

const (
	unknown condition = iota // no result yet
	unhealthy
	leaving
	healthy
)

// observation is the current knowledge of a source about a backend.
type observation struct {
	name      string
	addr      netip.AddrPort
	condition condition
	reason    string
	// timedOut reports that the source no longer receives anything about the backend. The condition is then the last one.
	timedOut bool
	// gone reports that the source no longer lists the backend, so that it is forgotten some time later.
	gone bool
}

// backend is the memory of a backend.
type backend struct {
	Backend
	since time.Time // of its state

	last    observation // the last one with a known condition
	now     observation // the last one
	unheard time.Time   // since when it has timed out or has no known condition; zero if neither
	gone    time.Time   // since when it is gone; zero if it is not

	orphan bool // the configuration changed and has to list it again
}

// backends are the backends of a balancer. They depend only on observations and times: they use no clock and
// no goroutine.
type backends struct {
	forget  time.Duration
	known   map[netip.AddrPort]*backend
	hearing time.Time // since when at least one backend has not timed out; zero while all have
}

func newBackends(forget time.Duration) backends {
	return backends{forget: forget, known: make(map[netip.AddrPort]*backend)}
}

// observe records the current observations of a source. Backends without one are gone.
func (bs *backends) observe(now time.Time, observations []observation) {
	seen := make(map[netip.AddrPort]observation)
	for _, o := range observations {
		// A renamed node leaves two members with one address: a timed-out one does not count.
		if other, twice := seen[o.addr]; !twice || o.beats(other) {
			seen[o.addr] = o
		}
	}
	for addr, o := range seen {
		b := bs.known[addr]
		if b == nil {
			b = &backend{Backend: Backend{Addr: addr}}
			bs.known[addr] = b
		}
		b.orphan = false
		b.observe(now, o)
	}
	for addr, b := range bs.known {
		if _, ok := seen[addr]; ok {
			continue
		}
		o := observation{name: b.Name, addr: addr, timedOut: true, gone: true, reason: "is no longer a member"}
		if b.orphan && b.last.condition != unhealthy {
			o.condition, o.timedOut, o.reason = leaving, false, "is no longer configured"
		}
		b.observe(now, o)
	}
	bs.hearing = since(bs.hearing, now, slices.ContainsFunc(observations, func(o observation) bool { return !o.timedOut }))
	bs.forgetLongest()
}

// since returns the start of a condition: before if it lasts, now if it begins, and zero if it does not hold.
func since(before, now time.Time, holds bool) time.Time {
	switch {
	case !holds:
		return time.Time{}
	case before.IsZero():
		return now
	}
	return before
}

func (o observation) beats(other observation) bool {
	if o.timedOut != other.timedOut {
		return other.timedOut
	}
	return cmp.Or(cmp.Compare(o.condition, other.condition), cmp.Compare(o.name, other.name)) > 0
}

func (b *backend) observe(now time.Time, o observation) {
	b.Name, b.now = o.name, o
	if o.condition != unknown {
		b.last = o
	}
	b.unheard = since(b.unheard, now, o.timedOut || o.condition == unknown)
	b.gone = since(b.gone, now, o.gone)
}

// forgetLongest forgets the backends that have been gone for longest if there are more than maxGone.
func (bs *backends) forgetLongest() {
	gone := slices.DeleteFunc(bs.sorted(), func(b *backend) bool { return b.gone.IsZero() })
	slices.SortStableFunc(gone, func(x, y *backend) int { return y.gone.Compare(x.gone) })
	for _, b := range gone[min(len(gone), maxGone):] {
		delete(bs.known, b.Addr)
	}
}

// update updates all states, and forgets backends that have been gone for long unless they are a last resort. It returns
// the backends with a new state, and when to call it again without new input; zero means never.
func (bs *backends) update(now time.Time) (changed []Backend, next time.Time) {
	later := func(t time.Time) bool {
		if !now.Before(t) {
			return false
		}
		next = wake.Earlier(next, t)
		return true
	}
	list := bs.sorted()
	results := make([]Backend, len(list))
	serve := false
	for i, b := range list {
		waiting := !b.unheard.IsZero() && later(bs.patience(b))
		results[i] = b.Backend
		results[i].State, results[i].Reason = b.judge(waiting)
		results[i].TimedOut = b.now.timedOut && b.last.condition == healthy
		serve = serve || results[i].State == Serving
	}
	if !serve {
		lastResort(list, results)
	}
	for i, b := range list {
		if !b.gone.IsZero() && !later(b.gone.Add(bs.forget)) && results[i].State != Serving {
			delete(bs.known, b.Addr)
			continue
		}
		if b.State != results[i].State {
			b.since = now
			if b.State != "" || b.last.condition != unknown {
				changed = append(changed, results[i])
			}
		}
		b.Backend = results[i]
	}
	return changed, next
}

// judge returns the state of a backend regardless of others. With waiting the backend still has time to
// leave, or to get a check result.
func (b *backend) judge(waiting bool) (State, string) {
	switch {
	case b.last.condition == unhealthy && b.now.timedOut:
		return Dead, b.now.reason
	case b.last.condition == unhealthy:
		return Dead, b.last.reason
	case b.unheard.IsZero() && b.last.condition == healthy:
		return Serving, b.last.reason
	case b.unheard.IsZero():
		return Draining, b.last.reason
	case waiting:
		return Draining, b.now.reason
	default:
		return Dead, b.now.reason
	}
}

// patience returns until when an unheard backend keeps its connections.
func (bs *backends) patience(b *backend) time.Time {
	switch {
	case b.last.condition == unhealthy, b.now.timedOut && b.last.condition == unknown:
		return b.unheard
	case b.now.timedOut && b.last.condition == healthy && bs.hearing.After(b.unheard):
		// After all had timed out, which was this node's fault, their messages arrive one after the other.
		return bs.hearing.Add(grace)
	case b.now.timedOut && b.last.condition == healthy:
		return b.unheard.Add(grace)
	}
	return b.unheard.Add(farewell)
}

// lastResort makes backends serve if no backend does, because trying them is better than refusing all clients. It prefers
// draining backends. Otherwise it takes backends that were healthy before they timed out, as a timeout of all is more likely
// this node's fault. Otherwise it takes backends that drained before they timed out. It never takes unhealthy ones.
func lastResort(list []*backend, results []Backend) {
	for _, willing := range []func(*backend) bool{
		func(b *backend) bool { return b.last.condition == leaving && b.unheard.IsZero() },
		func(b *backend) bool { return b.last.condition == healthy },
		func(b *backend) bool { return b.last.condition == leaving },
	} {
		found := false
		for i, b := range list {
			if willing(b) {
				found = true
				results[i].State = Serving
				results[i].Reason += ", but no other backend serves"
			}
		}
		if found {
			return
		}
	}
}

// sorted returns all backends, ordered by address.
func (bs *backends) sorted() []*backend {
	return slices.SortedFunc(maps.Values(bs.known), func(x, y *backend) int { return x.Addr.Compare(y.Addr) })
}
