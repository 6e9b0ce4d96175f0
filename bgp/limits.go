package bgp

import (
	"fmt"
	"time"

	"github.com/osrg/gobgp/v4/api"
)

// This file keeps a peer from costing the speaker more than a session may.
// GoBGP bounds none of it: it stores every route although the import policy
// refuses them all, sends the whole table again for each ROUTE-REFRESH and
// queues what the peer does not read. It has a limit of prefixes, but counts
// all of them again at every UPDATE, which takes a CPU for half a minute.

const (
	// defaultMaxRoutes is far above what a router sends to a node on purpose,
	// and about 10 MB.
	defaultMaxRoutes = 10_000
	// maxRefreshes is how many ROUTE-REFRESHs a peer may send between two looks
	// at it. Operators cause one for each family at a time.
	maxRefreshes = 10
	// ban is how long a peer that went too far is left alone.
	ban = time.Minute
	// A session is short if it lasts less than short. After the third one in a
	// row there is a pause before the next, at first pauseMin and ever longer up
	// to pauseMax. Without it a peer could flap a hundred times a second.
	short    = time.Second
	pauseMin = time.Second
	pauseMax = 30 * time.Second
)

// usage is what a session costs the speaker.
type usage struct {
	routes    uint64 // received, of all families
	refreshes uint64 // asked for since the session came up
}

func newUsage(g *api.Peer) usage {
	u := usage{refreshes: g.GetState().GetMessages().GetReceived().GetRefresh()}
	for _, f := range g.GetAfiSafis() {
		u.routes += f.GetState().GetReceived()
	}
	return u
}

// excess says how a session goes too far, or nothing if it does not. before is
// its usage when it was last looked at.
func excess(before, now usage, holdTime time.Duration, maxRoutes uint32) string {
	switch {
	case now.routes > uint64(maxRoutes):
		return fmt.Sprintf("the peer sent more than %d routes, which are of no use here: filter what it sends to this node", maxRoutes)
	case now.refreshes > before.refreshes+maxRefreshes:
		return fmt.Sprintf("the peer asked for all routes again %d times in a second", now.refreshes-before.refreshes)
	case holdTime == 0:
		return "the peer proposes a hold time of 0, with which neither end would notice that the other is dead: set its timers"
	}
	return ""
}

// damp is the pause before the next session when the last n were short (the
// peer oscillation damping of RFC 4271 section 8.1.1).
func damp(n int) time.Duration {
	const free = 3
	if n <= free {
		return 0
	}
	return min(pauseMin<<min(n-free-1, 10), pauseMax)
}
