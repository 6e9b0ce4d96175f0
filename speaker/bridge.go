package speaker

import (
	"net/netip"
	"slices"
	"time"
)

// Bridge sends new connections to a VIP on to other nodes that serve it, for as long as
// routers, or neighbours, still send them to this one. Open and Close never wait, since a
// withdrawal calls them, and take effect in the order of the calls. The bridge itself reports
// its errors: nothing here depends on it.
type Bridge interface {
	// Open sends new connections to addrs on, while there are any and until a time at the
	// latest. Those for which no other node is known to serve are left as they are.
	Open(until time.Time, addrs ...netip.Addr)
	// Close ends that. It is called before addrs are served here again.
	Close(addrs ...netip.Addr)
	// Held counts, per VIP, the established connections from remote clients that other members forward here. It lists all
	// sockets of the node, which can take a second: it is called once a second in a drain with a deadline, without a lock.
	Held(addrs ...netip.Addr) (map[netip.Addr]int, error)
}

// longestBridge is how long new connections are sent on at most after a step of a
// withdrawal that routers are to act on.
const longestBridge = time.Minute

// step is all that bears on whether new connections to an address are sent on when its
// stage changes.
type step struct {
	from, to Stage
	bound    bool      // it had got onto its link, so that somebody may know the way to it
	paused   bool      // this process stood still: what it knows of the others is old, too
	flat     bool      // a flat layer 2
	lease    time.Time // when the lease ends that is given up; zero if this node does not hold it
}

// bridgeUntil says until when new connections are sent on, at most; zero is not at all.
//
// Over BGP each step on the way out opens the bridge, since routers act on each with a
// delay of their own. On a flat layer 2 it is open for no longer than the lease would have
// lasted that is given up: within that time nobody but this node was to answer anyway. A lease
// that was lost opens nothing.
func (s step) bridgeUntil(now time.Time) time.Time {
	switch {
	case !s.from.Advertised() || s.to == s.from || s.to == Announced || !s.bound || s.paused:
		return time.Time{}
	case !s.flat:
		return now.Add(longestBridge)
	case now.Before(s.lease):
		return s.lease
	}
	return time.Time{}
}

// bridging is what of an address the bridge is to do, and has been told.
type bridging struct {
	until time.Time // zero if it is closed
	told  bool
}

// closeBridge closes the bridge for addresses that are here again, on whichever link.
func (s *Speaker) closeBridge() {
	leaving := func(u *unit) bool { return !u.bridging.until.IsZero() }
	if s.bridge == nil || !slices.ContainsFunc(s.order, leaving) {
		return
	}
	here := make(map[netip.Addr]bool)
	for _, u := range s.order {
		here[u.Addr] = here[u.Addr] || u.at.stage == Announced
	}
	var closing []netip.Addr
	for _, u := range s.order {
		if leaving(u) && (here[u.Addr] || !u.vip.Bridge) {
			if u.bridging.told {
				closing = append(closing, u.Addr)
			}
			u.bridging = bridging{}
		}
	}
	if len(closing) > 0 {
		s.bridge.Close(closing...)
	}
}

// openBridge opens the bridge for addresses that are leaving: last of all, when routes, addresses and
// leases are out of the way.
func (s *Speaker) openBridge() {
	if s.bridge == nil {
		return
	}
	var ends []time.Time
	opening := make(map[time.Time][]netip.Addr)
	for _, u := range s.order {
		if u.bridging.told || u.bridging.until.IsZero() {
			continue
		}
		u.bridging.told = true
		if opening[u.bridging.until] == nil {
			ends = append(ends, u.bridging.until)
		}
		opening[u.bridging.until] = append(opening[u.bridging.until], u.Addr)
	}
	for _, until := range ends {
		s.bridge.Open(until, opening[until]...)
	}
}
