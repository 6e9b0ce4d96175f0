package bridge

import (
	"net/netip"
	"time"

	"github.com/herald-vip/herald/balancer"
)

const (
	// quiet is how long after the last new connection the bridge closes. The kernel has the timeout, so the bridge
	// also closes after this process ends.
	quiet = 2 * time.Second
	// countEvery is the interval between counts of connections.
	countEvery = time.Second
)

// target is a member to forward new connections to.
type target struct {
	member string
	addr   netip.Addr // its own address
}

// opening is an address with forwarding of new connections.
type opening struct {
	until    time.Time // latest end
	ends     time.Time // end in the kernel
	counted  time.Time // when it was opened, or last counted
	received uint64    // connections at the last count
}

// open returns o opened until a time, and the limit for the kernel.
func (o opening) open(now, until time.Time) (opening, time.Duration) {
	limit := min(quiet, until.Sub(now))
	return opening{until: until, ends: now.Add(limit), counted: now, received: o.received}, limit
}

// due reports whether to count. It is false just after the opening, which counting would delay.
func (o opening) due(now time.Time) bool {
	return now.Sub(o.counted) >= countEvery || !now.Before(o.ends)
}

// renew returns o after a count, and the new limit for the kernel; 0 lets it close.
func (o opening) renew(now time.Time, received uint64) (opening, time.Duration) {
	limit := min(quiet, o.until.Sub(now))
	next := o
	next.counted, next.received = now, received
	if received == o.received || limit <= 0 {
		return next, 0
	}
	next.ends = now.Add(limit)
	return next, limit
}

// healthy returns the members that serve a VIP with these checks, and have an address of the VIP's family that the kernel
// can forward to. One bad address would make the kernel refuse all.
func healthy(checks []string, vip netip.Addr, members []balancer.Member) []target {
	var out []target
	for _, m := range members {
		own := m.Addr.Unmap()
		if m.Serves(checks) && own.Is4() == vip.Is4() && own.IsGlobalUnicast() && own.Zone() == "" {
			out = append(out, target{m.Name, own})
		}
	}
	return out
}

func names(targets []target) []string {
	out := make([]string, len(targets))
	for i, t := range targets {
		out[i] = t.member
	}
	return out
}

func addresses(targets map[netip.Addr][]target) map[netip.Addr][]netip.Addr {
	out := make(map[netip.Addr][]netip.Addr, len(targets))
	for vip, list := range targets {
		for _, t := range list {
			out[vip] = append(out[vip], t.addr)
		}
	}
	return out
}
