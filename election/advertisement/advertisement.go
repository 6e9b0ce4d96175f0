// Package advertisement distributes the state of each member's servers among the members of an election. Of leases it
// knows only their length.
package advertisement

import (
	"maps"
	"net/netip"
	"time"
)

// Advertisement is the state of a member's servers, by its own word.
type Advertisement struct {
	Draining bool            `json:"draining,omitempty"` // keeps its connections and wants no new ones
	Passing  bool            `json:"-"`                  // forwards packets of other members' connections
	Checks   map[string]bool `json:"checks"`             // healthy, by name of the check; without a verdict, omitted
}

// MemberState is the last advertisement of a member, with or without a vote.
type MemberState struct {
	Member  string         `json:"member"`
	Address netip.AddrPort `json:"-"`              // in the election
	Self    bool           `json:"self,omitempty"` // this member
	Advertisement
	// TimedOut is true if no advertisement arrived during the hold time of the last one: one lease, more in large
	// clusters. It is also true after leaving.
	TimedOut bool `json:"silent,omitempty"`
	// Left is true if the member timed out because it left by itself, perhaps for an upgrade: its servers may still be
	// healthy.
	Left     bool      `json:"left,omitempty"`
	Received time.Time `json:"heard,omitzero"`
}

func (o Advertisement) equal(other Advertisement) bool {
	return o.Draining == other.Draining && o.Passing == other.Passing && maps.Equal(o.Checks, other.Checks)
}

// same reports whether two states are equal, ignoring Received.
func (o MemberState) same(other MemberState) bool {
	return o.Member == other.Member && o.Address == other.Address && o.Self == other.Self &&
		o.TimedOut == other.TimedOut && o.Left == other.Left && o.Advertisement.equal(other.Advertisement)
}
