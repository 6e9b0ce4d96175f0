package election

import (
	"maps"
	"net/netip"
	"time"
)

// Offer is what a member serves, as it says itself.
type Offer struct {
	Draining bool            // it keeps the connections that it has, and wants no new ones
	Checks   map[string]bool // by name; false is unhealthy; one without a verdict yet is left out
}

// Offered is what a member, with or without a vote, has offered last.
type Offered struct {
	Member  string
	Address netip.AddrPort // where it is in the election
	Self    bool           // it is this member
	Offer   Offer
	// Silent says that it has not been heard for as long as its last message holds: one
	// lease, more in large clusters; or that it has left.
	Silent bool
	// Left says that it is silent because it has stopped by itself, for an upgrade
	// perhaps: nothing speaks against what it served.
	Left  bool
	Heard time.Time
}

// Offer tells all members that are alive what this one serves, at once, again and
// again, and whenever somebody joins. It replaces what was offered before, and holds
// across Apply; until it is called, nothing is told. At most 32 checks are told of, by
// the order of their names, whose names have up to 63 bytes, and no more than fit one
// packet. Offer never blocks.
func (e *Election) Offer(o Offer) {
	o.Checks = maps.Clone(o.Checks)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.offer = &o
	if e.node != nil {
		e.node.offering.offer(o)
	}
}

// Offers lists what members have offered, this one included, by their sorted names. It
// is empty while there is no configuration. The observer is told when it changes. The
// maps of checks are not to be changed.
func (e *Election) Offers() []Offered {
	e.mu.Lock()
	running := e.node
	e.mu.Unlock()
	if running == nil {
		return nil
	}
	return running.offering.list()
}
