package daemon

import (
	"net/netip"
	"slices"
	"time"

	"github.com/herald-vip/herald/election"
)

const (
	// bridgeQuiet is how long no new connection may have come for new ones to be sent on
	// no more. The kernel counts it, so it ends if this process does.
	bridgeQuiet = 2 * time.Second
	// bridgeLook is how often it is looked whether any has come.
	bridgeLook = time.Second
)

// target is a member that new connections may be sent on to.
type target struct {
	member string
	addr   netip.Addr // its own
}

// crossing is an address whose new connections are sent on.
type crossing struct {
	until    time.Time // when it ends at the latest
	ends     time.Time // when the kernel ends it
	looked   time.Time // when it was opened, or looked at last
	received uint64    // by then
}

// open is c after the speaker has asked for it until a time, and for how long the kernel is to be asked.
func (c crossing) open(now, until time.Time) (crossing, time.Duration) {
	limit := min(bridgeQuiet, until.Sub(now))
	return crossing{until: until, ends: now.Add(limit), looked: now, received: c.received}, limit
}

// due says whether to look how many connections have been sent on: not when it has just been
// opened, as nothing is to be in the way of that.
func (c crossing) due(now time.Time) bool {
	return now.Sub(c.looked) >= bridgeLook || !now.Before(c.ends)
}

// look is c when so many connections have been sent on, and for how long the kernel is to be
// asked to go on; 0 is not at all.
func (c crossing) look(now time.Time, received uint64) (crossing, time.Duration) {
	limit := min(bridgeQuiet, c.until.Sub(now))
	next := c
	next.looked, next.received = now, received
	if received == c.received || limit <= 0 {
		return next, 0
	}
	next.ends = now.Add(limit)
	return next, limit
}

// healthy are the other members that serve a VIP with these checks, and are known by an
// address of the VIP's family that the kernel can send to: for one that is not it would
// refuse them all.
func healthy(checks []string, vip netip.Addr, offered []election.Offered) []target {
	var out []target
	for _, o := range offered {
		own := o.Address.Addr().Unmap()
		if o.Self || o.Silent || o.Offer.Draining || own.Is4() != vip.Is4() || !own.IsGlobalUnicast() || own.Zone() != "" {
			continue
		}
		if !slices.ContainsFunc(checks, func(name string) bool { return !o.Offer.Checks[name] }) {
			out = append(out, target{o.Member, own})
		}
	}
	return out
}

func members(targets []target) []string {
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
