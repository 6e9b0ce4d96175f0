package fence

import (
	"net/netip"
	"time"
)

// set is a kind of nftables set; there is one of each for IPv4 and IPv6.
type set string

const (
	vips   set = "vips"   // all filtered addresses
	answer set = "answer" // first lock for answering ARP and neighbour solicitations
	accept set = "accept" // first lock for accepting packets
	until  set = "until"  // second lock, for both

	services set = "services" // filtered addresses of Services: packets to them need no lock
)

// Change inserts an address into a set or removes it, regardless of its presence.
type Change struct {
	Set   set
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
