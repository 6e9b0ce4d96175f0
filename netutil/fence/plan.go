package fence

import (
	"net/netip"
	"time"
)

// set is a kind of nftables set; there is one of each for IPv4 and IPv6.
type set string

const (
	vips   set = "vips"   // gated addresses
	answer set = "answer" // first lock: ARP and neighbour solicitations for them are answered
	accept set = "accept" // first lock: packets to them are let in
	until  set = "until"  // second lock, for either

	services set = "services" // those of vips that are of Services; packets to them need no lock
)

// Change inserts an address into a set or removes it, whether or not it is there.
type Change struct {
	Set   set
	Addr  netip.Addr
	Lasts time.Duration // how long it stays; forever if negative, or 0: it is removed
}

const forever time.Duration = -1

// diffGated replaces the gated addresses, and closes those that were not gated.
func diffGated(have, want map[netip.Addr]bool) []Change {
	var changes []Change
	for addr := range have {
		if _, ok := want[addr]; !ok {
			changes = append(changes, removals([]netip.Addr{addr}, vips, answer, accept, until)...)
		}
	}
	for addr := range want {
		if _, ok := have[addr]; !ok {
			changes = append(changes, Change{vips, addr, forever})
			changes = append(changes, removals([]netip.Addr{addr}, answer, accept, until)...)
		}
	}
	return changes
}

// diffServed replaces the addresses that are of Services.
func diffServed(have, want map[netip.Addr]bool) []Change {
	var changes []Change
	for addr := range have {
		if !want[addr] {
			changes = append(changes, Change{services, addr, 0})
		}
	}
	for addr := range want {
		if !have[addr] {
			changes = append(changes, Change{services, addr, forever})
		}
	}
	return changes
}

func insertions(lasts time.Duration, addrs []netip.Addr, sets ...set) []Change {
	changes := make([]Change, 0, len(addrs)*len(sets))
	for _, s := range sets {
		for _, addr := range addrs {
			changes = append(changes, Change{s, addr, lasts})
		}
	}
	return changes
}

func removals(addrs []netip.Addr, sets ...set) []Change { return insertions(0, addrs, sets...) }

// distinct is addrs without repetitions and without IPv4 in IPv6.
func distinct(addrs []netip.Addr) []netip.Addr {
	seen := make(map[netip.Addr]bool, len(addrs))
	out := make([]netip.Addr, 0, len(addrs))
	for _, addr := range addrs {
		if addr = addr.Unmap(); !seen[addr] {
			seen[addr] = true
			out = append(out, addr)
		}
	}
	return out
}
