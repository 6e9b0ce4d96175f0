package bgp

import (
	"fmt"
	"time"

	"github.com/herald-vip/herald/internal/wake"
)

// This file bounds the resources that a peer can use. GoBGP has no bounds: it stores every route, although
// the import policy rejects them all. It sends the whole table again for each ROUTE-REFRESH, and queues
// messages for a peer that does not read. It has a prefix limit, but counts all prefixes again
// at every UPDATE, which takes half a minute of CPU time.

const (
	// defaultMaxRoutes is far above the number of routes that a router sends to a node on purpose. So many take about 10 MB.
	defaultMaxRoutes = 10_000
	// maxRefreshes limits the ROUTE-REFRESHs of a peer between two inspections. Operators cause
	// one for each family at a time.
	maxRefreshes = 10
	// ban is the pause after a session that was ended for its excess.
	ban = time.Minute
	// A session is short if it lasts less than short. After the third short session in a row, the
	// next one is delayed by the pauses of damping. Otherwise a peer could flap a hundred times a second.
	short = time.Second
)

var damping = wake.Backoff{Min: time.Second, Max: 30 * time.Second}

// usage is the resource usage of a session.
type usage struct {
	routes    uint64 // received, of all families
	refreshes uint64 // asked for since the session came up
}

// excess describes the limit that a session exceeds; empty if it exceeds none. before is its usage at the
// previous inspection.
func excess(before, now usage, holdTime time.Duration, maxRoutes uint32) string {
	switch {
	case now.routes > uint64(maxRoutes):
		return fmt.Sprintf("the peer sent more than %d routes, which Herald does not use: filter the routes to this node there", maxRoutes)
	case now.refreshes > before.refreshes+maxRefreshes:
		return fmt.Sprintf("the peer asked for all routes again %d times in a second", now.refreshes-before.refreshes)
	case holdTime == 0:
		return "the peer proposes a hold time of 0, which disables the detection of a dead peer: set its timers"
	}
	return ""
}

// damp returns the pause before the next session after n short ones in a row (the peer oscillation damping of
// RFC 4271 section 8.1.1).
func damp(n int) time.Duration {
	const free = 3
	return damping.After(n - free)
}
