package speaker

import (
	"slices"
	"time"
)

// audience is who has been told of an address: the peers that have its route,
// and those that still have it, marked as going, after the VIP moved away from
// them. It is a value.
type audience struct {
	peers   []string // nil is all there are
	leaving []parting
}

// parting is a peer that the route is about to leave, and when.
type parting struct {
	peer string
	at   time.Time
}

// next turns to the peers that want names; nil is all. New ones are told at
// once, and those no longer wanted keep the route for the notice, marked as
// going, so that they move traffic away before it leaves them. all names every
// peer there is. If time alone will change the audience, again is when.
func (a audience) next(now time.Time, want, all []string) (to audience, again time.Time) {
	wanted := func(peer string) bool { return want == nil || slices.Contains(want, peer) }
	to.peers = want
	for _, p := range a.leaving {
		if now.Before(p.at) && !wanted(p.peer) {
			to.leaving = append(to.leaving, p)
		}
	}
	had := a.peers
	if had == nil {
		had = all
	}
	for _, peer := range had {
		if !wanted(peer) && slices.Contains(all, peer) { // one that is gone has nothing to be told
			to.leaving = append(to.leaving, parting{peer, now.Add(notice)})
		}
	}
	for _, p := range to.leaving {
		if again.IsZero() || p.at.Before(again) {
			again = p.at
		}
	}
	return to, again
}

// names lists the peers that the route is about to leave, nil if there are none.
func (a audience) names() []string {
	var out []string
	for _, p := range a.leaving {
		out = append(out, p.peer)
	}
	slices.Sort(out)
	return out
}
