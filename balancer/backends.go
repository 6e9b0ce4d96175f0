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
	// grace is how long one that was well and has fallen silent keeps its connections: less
	// than clients wait for an answer, and more than a busy machine is silent for, or one on which
	// Herald was killed and is started again. New ones go to others at once.
	grace = 2 * time.Second
	// farewell is how long a backend that had said it would leave, or that was heard last
	// without a verdict, keeps its connections: an upgrade of Herald there takes seconds.
	farewell = time.Minute
	// maxGone is how many backends that are gone are remembered. A name in DNS may resolve to
	// others each time.
	maxGone = 64
)

// word is what is said of a backend.
type word int

const (
	nothing word = iota // no verdict yet
	sick
	leaving
	well
)

// sighting is what a source knows of a backend now.
type sighting struct {
	name   string
	addr   netip.AddrPort
	said   word
	reason string
	// silent: nothing is heard of it any more, and what was said last is all there is.
	silent bool
	// gone: the source does not list it any more, so that it is to be forgotten one day.
	gone bool
}

// backend is what is remembered of one.
type backend struct {
	Backend
	since time.Time // in its state

	last sighting  // what was said last that was not nothing
	now  sighting  // the last one of all
	mute time.Time // since when nothing is said; zero if something is
	gone time.Time // since when it is; zero if it is not

	orphan bool // by the configuration it is no backend any more, unless it is seen again
}

// backends are those of one service. They are a matter of what is seen and when: no clock, no
// goroutine.
type backends struct {
	forget  time.Duration
	known   map[netip.AddrPort]*backend
	hearing time.Time // since when somebody, if not always the same, is heard; zero while nobody is
}

func newBackends(forget time.Duration) backends {
	return backends{forget: forget, known: make(map[netip.AddrPort]*backend)}
}

// see takes in what a source knows now; backends that it does not mention are gone.
func (bs *backends) see(now time.Time, sightings []sighting) {
	seen := make(map[netip.AddrPort]sighting)
	for _, s := range sightings {
		// Of two with one address the one that is heard counts: a node may have been renamed.
		if other, twice := seen[s.addr]; !twice || compareSightings(s, other) > 0 {
			seen[s.addr] = s
		}
	}
	for addr, s := range seen {
		b := bs.known[addr]
		if b == nil {
			b = &backend{Backend: Backend{Addr: addr, State: unseen}}
			bs.known[addr] = b
		}
		b.orphan = false
		b.see(now, s)
	}
	for addr, b := range bs.known {
		if _, ok := seen[addr]; ok {
			continue
		}
		s := sighting{name: b.Name, addr: addr, silent: true, gone: true, reason: "is no member any more"}
		if b.orphan && b.last.said != sick {
			s.said, s.silent, s.reason = leaving, false, "is not configured any more"
		}
		b.see(now, s)
	}
	bs.listen(now, sightings)
	bs.forgetLongest()
}

// listen notes whether anybody is heard.
func (bs *backends) listen(now time.Time, sightings []sighting) {
	switch {
	case !slices.ContainsFunc(sightings, func(s sighting) bool { return !s.silent }):
		bs.hearing = time.Time{}
	case bs.hearing.IsZero():
		bs.hearing = now
	}
}

// orphan has backends drain, rather than die, that are not seen any more because something else
// was configured.
func (bs *backends) orphan() {
	for _, b := range bs.known {
		b.orphan = true
	}
}

// unseen is the state of a backend that has none yet.
const unseen State = -1

func compareSightings(x, y sighting) int {
	if x.silent != y.silent {
		if x.silent {
			return -1
		}
		return 1
	}
	return cmp.Or(cmp.Compare(x.said, y.said), cmp.Compare(x.name, y.name))
}

func (b *backend) see(now time.Time, s sighting) {
	b.Name, b.now = s.name, s
	mute := s.silent || s.said == nothing
	if s.said != nothing {
		b.last = s
	}
	switch {
	case !mute:
		b.mute = time.Time{}
	case b.mute.IsZero():
		b.mute = now
	}
	switch {
	case !s.gone:
		b.gone = time.Time{}
	case b.gone.IsZero():
		b.gone = now
	}
}

// forgetLongest forgets those that have been gone for longest, if there are too many.
func (bs *backends) forgetLongest() {
	var gone []*backend
	for _, b := range bs.known {
		if !b.gone.IsZero() {
			gone = append(gone, b)
		}
	}
	slices.SortFunc(gone, func(x, y *backend) int { return cmp.Or(y.gone.Compare(x.gone), x.Addr.Compare(y.Addr)) })
	for _, b := range gone[min(len(gone), maxGone):] {
		delete(bs.known, b.Addr)
	}
}

// update brings all states up to date and forgets backends that are gone for long, unless they are
// a last resort. It returns those whose state changed, or is known for the first time, and when to do so again though nothing
// new be seen; zero for never.
func (bs *backends) update(now time.Time) (changed []Backend, next time.Time) {
	later := func(t time.Time) bool {
		if !now.Before(t) {
			return false
		}
		next = wake.Earlier(next, t)
		return true
	}
	list := bs.sorted()
	verdicts := make([]Backend, len(list))
	serve := false
	for i, b := range list {
		parting := !b.mute.IsZero() && later(bs.patience(b))
		verdicts[i] = b.Backend
		verdicts[i].State, verdicts[i].Reason = b.alone(parting)
		verdicts[i].TimedOut = b.now.silent && b.last.said == well
		serve = serve || verdicts[i].State == Serving
	}
	if !serve {
		lastResort(list, verdicts)
	}
	for i, b := range list {
		if !b.gone.IsZero() && !later(b.gone.Add(bs.forget)) && verdicts[i].State != Serving {
			delete(bs.known, b.Addr)
			continue
		}
		if b.State != verdicts[i].State {
			b.since = now
			if b.State != unseen || b.last.said != nothing {
				changed = append(changed, verdicts[i])
			}
		}
		b.Backend = verdicts[i]
	}
	return changed, next
}

// alone is what a backend is good for by itself; parting is whether it may still take its time
// to leave, or to come to a verdict.
func (b *backend) alone(parting bool) (State, string) {
	switch {
	case b.last.said == sick && b.now.silent:
		return Dead, b.now.reason
	case b.last.said == sick:
		return Dead, b.last.reason
	case b.mute.IsZero() && b.last.said == well:
		return Serving, b.last.reason
	case b.mute.IsZero():
		return Draining, b.last.reason
	case parting:
		return Draining, b.now.reason
	default:
		return Dead, b.now.reason
	}
}

// patience is until when a backend of which nothing is heard keeps its connections.
func (bs *backends) patience(b *backend) time.Time {
	switch {
	case b.last.said == sick, b.now.silent && b.last.said == nothing:
		return b.mute
	case b.now.silent && b.last.said == well && bs.hearing.After(b.mute):
		// After a silence of all, which was this node's, they are heard again one after the other.
		return bs.hearing.Add(grace)
	case b.now.silent && b.last.said == well:
		return b.mute.Add(grace)
	}
	return b.mute.Add(farewell)
}

// lastResort makes backends serve that would not by themselves, because trying them is better
// than refusing everybody: those that drain; or else those that were well when they were heard
// last, as the silence of all is more likely this node's fault than theirs; or else those
// that drained before. Never one that said it is sick.
func lastResort(list []*backend, verdicts []Backend) {
	for _, willing := range []func(*backend) bool{
		func(b *backend) bool { return b.last.said == leaving && b.mute.IsZero() },
		func(b *backend) bool { return b.last.said == well },
		func(b *backend) bool { return b.last.said == leaving },
	} {
		found := false
		for i, b := range list {
			if willing(b) {
				found = true
				verdicts[i].State = Serving
				verdicts[i].Reason += ", but nobody else serves"
			}
		}
		if found {
			return
		}
	}
}

// sorted are all backends by their addresses.
func (bs *backends) sorted() []*backend {
	return slices.SortedFunc(maps.Values(bs.known), func(x, y *backend) int { return x.Addr.Compare(y.Addr) })
}
