package bridge

import (
	"net/netip"
	"time"

	"github.com/herald-vip/herald/balancer"
)

const (
	// quiet is how long no new connection may have come for the bridge to close. The kernel counts it, so
	// it closes if this process ends, too.
	quiet = 2 * time.Second
	// countEvery is how often connections are counted.
	countEvery = time.Second
)

// target is a member that new connections may be sent on to.
type target struct {
	member string
	addr   netip.Addr // its own
}

// opening is an address whose new connections are sent on.
type opening struct {
	until    time.Time // when it ends at the latest
	ends     time.Time // when the kernel ends it
	counted  time.Time // when it was opened, or connections were counted last
	received uint64    // by then
}

// open is o after it was asked for until a time, and for how long the kernel is to be asked.
func (o opening) open(now, until time.Time) (opening, time.Duration) {
	limit := min(quiet, until.Sub(now))
	return opening{until: until, ends: now.Add(limit), counted: now, received: o.received}, limit
}

// due reports whether to count: not when it has just been opened, as nothing is to delay that.
func (o opening) due(now time.Time) bool {
	return now.Sub(o.counted) >= countEvery || !now.Before(o.ends)
}

// renew is o when so many connections have been sent on, and for how long the kernel is to be
// asked to go on; 0 is not at all.
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

// healthy are the members that serve a VIP with these checks, and are known by an
// address of the VIP's family that the kernel can send to: it refuses all if one is not.
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
	for vip, to := range targets {
		for _, t := range to {
			out[vip] = append(out[vip], t.addr)
		}
	}
	return out
}
