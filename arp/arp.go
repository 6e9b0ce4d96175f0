// Package arp makes the neighbours of a VIP's holder send to it, by gratuitous
// ARP and unsolicited neighbour advertisements, and watches the wire for anyone
// else who uses the address.
//
// It decides nothing about who holds an address. Frames leave through packet
// sockets, which netfilter does not see: so an address must be withdrawn here
// before it is released.
package arp

import (
	"fmt"
	"net"
	"net/netip"
	"time"
)

// Options adjust an Announcer. The zero value is right for a speaker.
type Options struct {
	// Refresh is the time between announcements of an address after its burst, so
	// that switches and neighbours, whose tables age, do not forget where it is. With
	// the last of the burst, and each that follows, a watched address is probed: who
	// uses it and tells only those who ask is found then. Default: 60s.
	Refresh time.Duration
	// Observe, which may be nil, is told of each change of a Finding's State, and
	// the first State of each watched address, in order, on a goroutine of Run that
	// does nothing else but log. It may call the Announcer's methods.
	Observe func(Finding)
}

// Policy is what to do about someone else who uses a watched address.
type Policy int

const (
	// Defend announces the address anew, at most once a second (RFC 5227, section
	// 2.4, case c).
	Defend Policy = iota
	// Yield leaves it to the caller to give the address up, until it is Free.
	Yield
)

func (p Policy) String() string {
	switch p {
	case Defend:
		return "defend"
	case Yield:
		return "yield"
	}
	return fmt.Sprintf("policy %d", int(p))
}

// Watched is an address to watch on a link.
type Watched struct {
	Link   string
	Addr   netip.Addr
	Policy Policy
	// Probe asks the link for the address before it counts as Free (RFC 5227,
	// section 2.1; RFC 4862, section 5.4), once in the life of the Announcer. This
	// takes 400 ms of a link that is up.
	Probe bool
}

// State is whether someone else uses an address.
type State int

const (
	// Unknown is the state while the link is probed, or cannot be yet.
	Unknown State = iota
	// Free is the state when nobody else is known to use the address.
	Free
	// Taken is the state when someone other than a member does.
	Taken
)

func (s State) String() string {
	switch s {
	case Unknown:
		return "unknown"
	case Free:
		return "free"
	case Taken:
		return "taken"
	}
	return fmt.Sprintf("state %d", int(s))
}

// Finding is what the watch knows about an address.
type Finding struct {
	Link  string
	Addr  netip.Addr
	State State
	// MAC is the first of those who use it if it is Taken.
	MAC net.HardwareAddr
	// Since is when State began.
	Since time.Time
	// Count is how many packets of others who use the address came since then.
	Count uint64
}

// Stats counts what happened on all links since New.
type Stats struct {
	Announced uint64 // announcements sent, each of all forms for one address
	Probed    uint64 // probes sent
	Defended  uint64 // announcements among Announced that answered someone else's use
	Failed    uint64 // announcements and probes that could not be sent
	Heard     uint64 // packets of others read that say something about a watched address
	Conflicts uint64 // packets among Heard that came from neither this node nor a member
}
