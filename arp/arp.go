// Package arp directs neighbours to the holder of a VIP, by gratuitous ARP and unsolicited
// neighbour advertisements, and watches the link for other hosts that use the address.
//
// It does not decide which node holds an address. Frames leave through packet sockets, which
// netfilter does not filter. So an address must be withdrawn here before it is released.
package arp

import (
	"net"
	"net/netip"
	"time"

	"github.com/herald-vip/herald/netutil/rtnetlink"
)

// Options adjust an Announcer. The zero value suits a speaker.
type Options struct {
	// Watcher reports changes of links. Default: a new one.
	Watcher *rtnetlink.Watcher
	// Refresh is the time between announcements of an address after its burst. They keep the entries of switches and
	// neighbours from ageing out. With the last announcement of the burst, and each later one, a watched address is
	// probed: that finds hosts that use it but only answer requests. Default: 60s.
	Refresh time.Duration
	// Observe, which may be nil, is called with the first State of each watched address and each change of a State, in
	// order. It runs on a goroutine of Run that otherwise only logs, and may call the Announcer's methods.
	Observe func(Finding)
}

// Policy is the reaction to another host that uses a watched address.
type Policy int

const (
	// Defend announces the address again, at most once a second (RFC 5227, section 2.4, case c).
	Defend Policy = iota
	// Yield does nothing: the caller gives up the address until it is Free.
	Yield
)

func (p Policy) String() string { return [...]string{"defend", "yield"}[p] }

// Watched is an address to watch on a link.
type Watched struct {
	Link   string
	Addr   netip.Addr
	Policy Policy
	// Probe probes for the address before it counts as Free (RFC 5227, section 2.1;
	// RFC 4862, section 5.4), unless it is announced. This takes 400 ms while the link is up.
	Probe bool
}

// State is the use of an address by other hosts.
type State int

const (
	// Unknown means that probing has not finished, or not begun as the link is down.
	Unknown State = iota
	// Free means that no other host, members excepted, is known to use the address.
	Free
	// Taken means that a host that is not a member uses it.
	Taken
)

func (s State) String() string { return [...]string{"unknown", "free", "taken"}[s] }

// Finding is the result of watching an address.
type Finding struct {
	Link  string
	Addr  netip.Addr
	State State
	// MAC is the first host that used it since it became Taken; nil otherwise.
	MAC net.HardwareAddr
	// Rival is a member that held the address within the last minute while it is announced here; nil without
	// one. The lease should prevent that.
	Rival net.HardwareAddr
	// Count is the number of packets from such hosts since it became Taken.
	Count uint64
}

// Stats counts events on all links since New.
type Stats struct {
	Announced uint64 // announcements sent; one includes all frames for an address.
	Probed    uint64 // probes sent
	Defended  uint64 // announcements that defended an address; part of Announced.
	Failed    uint64 // announcements and probes that could not be sent
	Received  uint64 // statements of other hosts about watched addresses.
	Conflicts uint64 // conflicting statements of hosts that are not members; part of Received
}
