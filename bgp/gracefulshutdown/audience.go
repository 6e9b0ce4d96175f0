package gracefulshutdown

import (
	"slices"
	"time"

	"github.com/herald-vip/herald/internal/wake"
)

// Audience is who has been told of an address: the peers that have its route,
// and those that still have it, marked as going, after it moved away from
// them. It is a value.
type Audience struct {
	Peers   []string // nil is all there are
	leaving []parting
}

// parting is a peer that the route is about to leave, and when.
type parting struct {
	peer string
	at   time.Time
}

// Next turns to the peers that want names; nil is all. New ones are told at
// once, and those no longer wanted keep the route for the notice, marked as
// going, so that they move traffic away before it leaves them. all names every
// peer there is. If time alone will change the audience, again is when.
func (a Audience) Next(now time.Time, want, all []string) (to Audience, again time.Time) {
	wanted := func(peer string) bool { return want == nil || slices.Contains(want, peer) }
	to.Peers = want
	for _, p := range a.leaving {
		if now.Before(p.at) && !wanted(p.peer) && slices.Contains(all, p.peer) {
			to.leaving = append(to.leaving, p)
		}
	}
	had := a.Peers
	if had == nil {
		had = all
	}
	for _, peer := range had {
		if !wanted(peer) && slices.Contains(all, peer) { // one that is gone has nothing to be told
			to.leaving = append(to.leaving, parting{peer, now.Add(Notice)})
		}
	}
	for _, p := range to.leaving {
		again = wake.Earlier(again, p.at)
	}
	return to, again
}

// Leaving lists the peers that the route is about to leave, nil if there are none.
func (a Audience) Leaving() []string {
	var out []string
	for _, p := range a.leaving {
		out = append(out, p.peer)
	}
	slices.Sort(out)
	return out
}
