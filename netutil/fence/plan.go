package fence

import (
	"net/netip"
	"time"
)

// Set is a kind of nftables set; there is one of each for IPv4 and IPv6.
type Set string

const (
	vips   Set = "vips"   // all filtered addresses
	answer Set = "answer" // first lock for answering ARP and neighbour solicitations
	accept Set = "accept" // first lock for accepting packets
	until  Set = "until"  // second lock, for both

	services Set = "services" // filtered addresses of Services: packets to them need no lock
)

// Change inserts an address into a set or removes it, regardless of its presence.
type Change struct {
	Set   Set
	Addr  netip.Addr
	Lasts time.Duration // timeout; negative: forever, 0: remove
}

const forever time.Duration = -1

// diffFiltered returns the changes that replace the filtered addresses. New ones are closed.
func diffFiltered(have, want map[netip.Addr]bool) []Change {
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

// diffServices returns the changes that replace the Services' addresses.
func diffServices(have, want map[netip.Addr]bool) []Change {
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

func insertions(lasts time.Duration, addrs []netip.Addr, sets ...Set) []Change {
	changes := make([]Change, 0, len(addrs)*len(sets))
	for _, s := range sets {
		for _, addr := range addrs {
			changes = append(changes, Change{s, addr, lasts})
		}
	}
	return changes
}

func removals(addrs []netip.Addr, sets ...Set) []Change { return insertions(0, addrs, sets...) }

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// distinct returns addrs without repetitions, with IPv4-mapped addresses as IPv4.
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
