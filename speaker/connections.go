package speaker

import (
	"context"
	"net/netip"
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
