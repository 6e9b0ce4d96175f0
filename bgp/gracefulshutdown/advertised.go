package gracefulshutdown

import (
	"slices"
	"time"

	"github.com/herald-vip/herald/internal/wake"
)

// Advertised is the peers that a route is advertised to: the wanted peers, and further peers that keep it, marked as
// draining, for [Notice] after it moved away from them. It is a value.
type Advertised struct {
	Peers    []string // nil means all
	draining []stalePath
}

// stalePath is a peer that keeps a draining route until at.
type stalePath struct {
	peer string
	at   time.Time
}

// Next returns the state after a change of the wanted peers to want; nil means all. New peers get the route at once.
// Others keep it for [Notice], marked as draining, so that they move traffic away before the withdrawal. all names
// every configured peer. again is the time of the next change without a new call; zero means never.
func (a Advertised) Next(now time.Time, want, all []string) (next Advertised, again time.Time) {
	wanted := func(peer string) bool { return want == nil || slices.Contains(want, peer) }
	next.Peers = want
	for _, p := range a.draining {
		if now.Before(p.at) && !wanted(p.peer) && slices.Contains(all, p.peer) {
			next.draining = append(next.draining, p)
		}
	}
	had := a.Peers
	if had == nil {
		had = all
	}
	for _, peer := range had {
		if !wanted(peer) && slices.Contains(all, peer) { // a deleted peer needs no notice
			next.draining = append(next.draining, stalePath{peer, now.Add(Notice)})
		}
	}
	for _, p := range next.draining {
		again = wake.Earlier(again, p.at)
	}
	return next, again
}

// Draining returns the peers that get the route marked as draining, sorted; nil if there are none.
func (a Advertised) Draining() []string {
	var out []string
	for _, p := range a.draining {
		out = append(out, p.peer)
	}
	slices.Sort(out)
	return out
}
