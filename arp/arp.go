// Package arp makes the neighbours of a VIP's holder send to it, by gratuitous
// ARP and unsolicited neighbour advertisements, and watches the wire for anyone
// else who uses the address.
//
// It decides nothing about who holds an address. Frames leave through packet
// sockets, which netfilter does not see: so an address must be withdrawn here
// before it is released.
package arp

import (
	"net"
	"net/netip"
	"time"

	"github.com/herald-vip/herald/netutil/rtnetlink"
)

// Options adjust an Announcer. The zero value is right for a speaker.
type Options struct {
	// Watcher tells of changes of links. Default: one of its own.
	Watcher *rtnetlink.Watcher
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

func (p Policy) String() string { return [...]string{"defend", "yield"}[p] }

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

func (s State) String() string { return [...]string{"unknown", "free", "taken"}[s] }

// Finding is what the watch knows about an address.
type Finding struct {
	Link  string
	Addr  netip.Addr
	State State
	// MAC is the first of those who use it, since it became Taken.
	MAC net.HardwareAddr
	// Rival is a member that was seen within a minute to hold the address, which is announced here; nil
	// if none was. Two members that do is what the lease is to prevent.
	Rival net.HardwareAddr
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
