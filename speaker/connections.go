package speaker

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"github.com/herald-vip/herald/internal/wake"
)

// countInterval is the time between two counts of the connections that a drain waits for.
const countInterval = time.Second

// connections holds the last count of the connections that a drain waits for. [Speaker.mu] guards it.
type connections struct {
	counts map[netip.Addr]int // per address; an address that is missing has not been counted yet
	err    error              // why the last count failed
	last   time.Time          // time of the last count in this drain; zero before the first
}

// countConnections counts the connections that a drain waits for, until ctx is done. The kernel lists all its sockets for
// a count, which takes long: s.mu is not held meanwhile, so that no withdrawal waits.
func (s *Speaker) countConnections(ctx context.Context) {
	wake.Loop(ctx, s.count, func() time.Time {
		addrs, due := s.toCount(time.Now())
		if len(addrs) == 0 {
			return due
		}
		held, err := s.bridge.Held(addrs...)
		now := time.Now()
		counts := make(map[netip.Addr]int, len(addrs))
		for _, a := range addrs {
			counts[a] = held[a]
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if err != nil && s.connections.err == nil {
			s.log.Warn("cannot count connections: the drain waits until its deadline", "err", err)
		}
		s.connections = connections{counts: counts, err: err, last: now}
		s.reconcile()
		return now.Add(countInterval)
	})
}

// toCount lists the addresses to count now. Without any it returns when the next count is due; zero means that none is.
func (s *Speaker) toCount(now time.Time) (addrs []netip.Addr, due time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, u := range s.order {
		if s.waits(now, u) {
			addrs = append(addrs, u.Addr)
		}
	}
	if due = s.connections.last.Add(countInterval); len(addrs) > 0 && now.Before(due) {
		return nil, due
	}
	return addrs, time.Time{}
}

// waits reports whether u stays while clients have connections to it: in a drain with a deadline, over BGP, where other
// members forward packets of such connections to this node.
func (s *Speaker) waits(now time.Time, u *unit) bool {
	return s.bridge != nil && u.vip.Bridge && u.vip.Flat == nil && (u.at.stage == Draining || u.at.stage == Lingering) && now.Before(s.deadline)
}

// linger returns how long u stays in [Lingering]: until the deadline while it has connections. An address that could not
// be counted, or not yet, may have some.
func (s *Speaker) linger(now time.Time, u *unit) time.Duration {
	n, counted := s.connections.counts[u.Addr]
	if !s.waits(now, u) || counted && n == 0 && s.connections.err == nil {
		return u.vip.Linger
	}
	since := now
	if u.at.stage == Lingering {
		since = u.at.since
	}
	return max(u.vip.Linger, s.deadline.Sub(since))
}

// Bridge forwards new connections to a VIP to other nodes that serve it, while routers or neighbours still send them to
// this node. Open and Close never wait, since a withdrawal calls them, and take effect in the order of the calls. The
// bridge itself reports its errors: nothing here depends on it.
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
