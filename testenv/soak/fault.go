package soak

import (
	"cmp"
	"fmt"
	"time"
)

// Kind is a way to break something.
type Kind string

// What is done to a master's apiserver and registry, to its speaker, to its
// VIP addresses, to one of its links, to a router, and to a whole machine.
const (
	APIServerKilled Kind = "apiserver killed"
	APIServerFrozen Kind = "apiserver frozen"
	APIServerHangs  Kind = "apiserver hangs"     // takes requests, sends nothing
	APIServerErrors Kind = "apiserver fails"     // answers 500
	APIServerSlow   Kind = "apiserver slow"      // answers after the check's timeout
	RegistryKilled  Kind = "registry killed"     //
	RegistryFrozen  Kind = "registry frozen"     //
	RegistryErrors  Kind = "registry fails"      // answers 500
	RegistryLogin   Kind = "registry wants auth" // answers 401, which is healthy
	SpeakerKilled   Kind = "speaker killed"
	SpeakerFrozen   Kind = "speaker frozen"
	SpeakerStopped  Kind = "speaker stopped" // by SIGTERM
	SpeakerDrained  Kind = "speaker drained"
	MEDRaised       Kind = "MED raised"          // the router prefers the other masters
	Recoloured      Kind = "communities changed" // of the routes
	BadFile         Kind = "bad file"            // in place of the configuration
	AddressDeleted  Kind = "address deleted"     // one of the VIP's, by hand
	AddressesGone   Kind = "addresses flushed"   // all of them
	LinkCut         Kind = "link cut"            // silently, both ways
	LinkCutOut      Kind = "link cut outwards"   // the router hears nothing of the master
	LinkCutIn       Kind = "link cut inwards"    // the master hears nothing of the router
	LinkDown        Kind = "link without carrier"
	LinkFlaps       Kind = "link flaps" // its carrier comes and goes
	BGPKilled       Kind = "bgpd killed"
	RouterFrozen    Kind = "router frozen"
	RouterRebooted  Kind = "router rebooted" // its daemons are killed
	PowerCut        Kind = "power cut"
)

// Part is what a fault breaks.
type Part string

// The parts of a network. A machine is all that a master has. Those from
// Gossip on are of the flat topology.
const (
	APIServer Part = "apiserver"
	Registry  Part = "registry"
	Speaker   Part = "speaker"
	Address   Part = "address"
	Link      Part = "link"
	Router    Part = "router"
	Machine   Part = "machine"
	Gossip    Part = "gossip"   // a master's lease messages
	Segment   Part = "segment"  // what lies between the masters
	Stranger  Part = "stranger" // a host that is no master
	Everyone  Part = "everyone" // all masters' speakers
)

// common reports whether the part is no one master's.
func (p Part) common() bool { return p == Router || p == Stranger || p == Everyone }

// trait is what a schedule needs to know of a kind.
type trait struct {
	kind        Kind
	part        Part
	weight      int           // how often it is drawn, relative to the others
	least, most time.Duration // how long it lasts
	fatal       bool          // the master cannot serve meanwhile
	restarts    bool          // the speaker's process ends
	planned     bool          // an operator's doing, which is to cost no connection
}

// traits are those of all kinds of faults in the bgp topology.
func traits() []trait {
	const ms = time.Millisecond
	return []trait{
		{kind: APIServerKilled, part: APIServer, weight: 6, least: 200 * ms, most: 8000 * ms, fatal: true},
		{kind: APIServerFrozen, part: APIServer, weight: 4, least: 200 * ms, most: 8000 * ms, fatal: true},
		{kind: APIServerHangs, part: APIServer, weight: 2, least: 500 * ms, most: 6000 * ms, fatal: true},
		{kind: APIServerErrors, part: APIServer, weight: 4, least: 200 * ms, most: 6000 * ms, fatal: true},
		{kind: APIServerSlow, part: APIServer, weight: 3, least: 500 * ms, most: 6000 * ms, fatal: true},
		{kind: RegistryKilled, part: Registry, weight: 4, least: 200 * ms, most: 8000 * ms, fatal: true},
		{kind: RegistryFrozen, part: Registry, weight: 2, least: 500 * ms, most: 6000 * ms, fatal: true},
		{kind: RegistryErrors, part: Registry, weight: 4, least: 200 * ms, most: 6000 * ms, fatal: true},
		{kind: RegistryLogin, part: Registry, weight: 1, least: 1000 * ms, most: 6000 * ms},
		{kind: SpeakerKilled, part: Speaker, weight: 4, least: 100 * ms, most: 14000 * ms, fatal: true, restarts: true},
		{kind: SpeakerFrozen, part: Speaker, weight: 4, least: 100 * ms, most: 14000 * ms, fatal: true},
		{kind: SpeakerStopped, part: Speaker, weight: 2, least: 100 * ms, most: 4000 * ms, fatal: true, restarts: true, planned: true},
		{kind: SpeakerDrained, part: Speaker, weight: 3, least: 500 * ms, most: 6000 * ms, fatal: true, planned: true},
		{kind: MEDRaised, part: Speaker, weight: 1, least: 1000 * ms, most: 6000 * ms, planned: true},
		{kind: Recoloured, part: Speaker, weight: 1, least: 1000 * ms, most: 6000 * ms, planned: true},
		{kind: BadFile, part: Speaker, weight: 1, least: 1000 * ms, most: 6000 * ms, planned: true},
		{kind: AddressDeleted, part: Address, weight: 1, least: 500 * ms, most: 500 * ms},
		{kind: AddressesGone, part: Address, weight: 1, least: 500 * ms, most: 500 * ms},
		{kind: LinkCut, part: Link, weight: 2, least: 300 * ms, most: 10000 * ms},
		{kind: LinkCutOut, part: Link, weight: 1, least: 300 * ms, most: 10000 * ms},
		{kind: LinkCutIn, part: Link, weight: 1, least: 300 * ms, most: 10000 * ms},
		{kind: LinkDown, part: Link, weight: 2, least: 300 * ms, most: 8000 * ms},
		{kind: LinkFlaps, part: Link, weight: 2, least: 1000 * ms, most: 4000 * ms},
		{kind: BGPKilled, part: Router, weight: 1, least: 1000 * ms, most: 6000 * ms},
		{kind: RouterFrozen, part: Router, weight: 1, least: 500 * ms, most: 8000 * ms},
		{kind: RouterRebooted, part: Router, weight: 1, least: 1000 * ms, most: 6000 * ms},
		{kind: PowerCut, part: Machine, weight: 2, least: 1000 * ms, most: 8000 * ms, fatal: true, restarts: true},
	}
}

// Fault is one thing to break and to mend again.
type Fault struct {
	Kind Kind `json:"kind"`
	Part Part `json:"part"`
	// Master is whose it is, or who is parted from the others; empty if it is no
	// one master's.
	Master string `json:"master,omitempty"`
	// Router is the router's, or the far end of the link's, name; else empty.
	Router string `json:"router,omitempty"`
	// At is when to break it, from the start of the round; For is how long.
	At  time.Duration `json:"atNs"`
	For time.Duration `json:"forNs"`
}

// String names the fault and its place, as in "m1: apiserver killed".
func (f Fault) String() string {
	switch {
	case f.Master == "":
		return fmt.Sprintf("%s: %s", cmp.Or(f.Router, string(f.Part)), f.Kind)
	case f.Router != "":
		return fmt.Sprintf("%s-%s: %s", f.Master, f.Router, f.Kind)
	}
	return fmt.Sprintf("%s: %s", f.Master, f.Kind)
}
