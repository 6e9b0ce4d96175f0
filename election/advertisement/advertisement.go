// Package offer has the members of an election tell each other what they serve, and
// whether that is healthy. It knows nothing of leases but how long they take.
package advertisement

import (
	"maps"
	"net/netip"
	"time"
)

// Advertisement is what a member serves, as it says itself.
type Advertisement struct {
	Draining bool            // it keeps the connections that it has, and wants no new ones
	Passing  bool            // it passes packets of others' connections on
	Checks   map[string]bool // by name; false is unhealthy; one without a verdict yet is left out
}

// MemberState is what a member, with or without a vote, has offered last.
type MemberState struct {
	Member        string
	Address       netip.AddrPort // where it is in the election
	Self          bool           // it is this member
	Advertisement Advertisement
	// TimedOut says that it has not been heard for as long as its last message holds: one
	// lease, more in large clusters; or that it has left.
	TimedOut bool
	// Left says that it is silent because it has stopped by itself, for an upgrade
	// perhaps: nothing speaks against what it served.
	Left     bool
	Received time.Time
}

func (o Advertisement) equal(other Advertisement) bool {
	return o.Draining == other.Draining && o.Passing == other.Passing && maps.Equal(o.Checks, other.Checks)
}

// same reports whether two say the same, whenever each was heard.
func (o MemberState) same(other MemberState) bool {
	return o.Member == other.Member && o.Address == other.Address && o.Self == other.Self &&
		o.TimedOut == other.TimedOut && o.Left == other.Left && o.Advertisement.equal(other.Advertisement)
}
