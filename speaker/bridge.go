package speaker

import (
	"net/netip"
	"slices"
	"time"
)

// Bridge forwards new connections to a VIP to other nodes that serve it, while routers or
// neighbours still send them to this node. Open and Close never wait, since a
// withdrawal calls them, and take effect in the order of the calls. The bridge itself reports
// its errors: nothing here depends on it.
type Bridge interface {
	// Open forwards new connections to addrs until they cease, at the latest at a time. It leaves
	// connections alone if no other node is known to serve them.
	Open(until time.Time, addrs ...netip.Addr)
	// Close stops the forwarding. The speaker calls it before it serves addrs again.
	Close(addrs ...netip.Addr)
	// Held counts, per VIP, the established connections from remote clients that other members forward here. It lists all
	// sockets of the node, which can take a second: it is called once a second in a drain with a deadline, without a lock.
	Held(addrs ...netip.Addr) (map[netip.Addr]int, error)
}

// longestBridge is the maximum time of forwarding after a step that routers react to.
const longestBridge = time.Minute

// step is the input for the decision whether a change of stage opens the bridge.
type step struct {
	from, dst Stage
	bound     bool // clients may know the address
	paused    bool // a pause made the knowledge of other members stale
	flat      bool
	lease     time.Time // end of the held lease; zero if not held
}

// bridgeUntil returns the time until which the bridge forwards at most; zero means that it stays closed.
//
// Over BGP each step of a withdrawal opens the bridge, since routers react to each with their own
// delay. On a flat layer 2 the bridge closes when the lease that the node gives up would have
// ended: until then no other node may answer anyway. A lost lease does not open the bridge.
func (s step) bridgeUntil(now time.Time) time.Time {
	switch {
	case !s.from.Advertised() || s.dst == s.from || s.dst == Announced || !s.bound || s.paused:
		return time.Time{}
	case !s.flat:
		return now.Add(longestBridge)
	case now.Before(s.lease):
		return s.lease
	}
	return time.Time{}
}

// bridging is the state of the bridge for one address.
type bridging struct {
	until time.Time // zero if it is closed
	told  bool      // the bridge knows
}

// closeBridge closes the bridge for addresses that this node announces again, on any link.
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

// openBridge opens the bridge for addresses that leave. It comes last, after routes, addresses and leases.
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
