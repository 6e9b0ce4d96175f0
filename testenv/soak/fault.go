package soak

import (
	"cmp"
	"fmt"
	"time"

	"github.com/herald-vip/herald/testenv/lab"
)

// Kind names a way to break something.
type Kind string

// The kinds, in the order of the parts that they break. These are apiserver and
// registry, speaker, VIP addresses, nftables rules, lease messages, link and router.
// The flat topology also has the bridge, the electorate and a whole machine.
const (
	APIServerKilled Kind = "apiserver killed"
	APIServerFrozen Kind = "apiserver frozen"
	APIServerHangs  Kind = "apiserver hangs"     // accepts requests, sends nothing
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
	Recoloured      Kind = "communities changed" // its routes carry other communities.
	BadFile         Kind = "bad file"            // replaces the configuration.
	AddressDeleted  Kind = "address deleted"     // the IPv4 address of the VIP, by hand.
	AddressesGone   Kind = "addresses flushed"   // all of them
	RulesFlushed    Kind = "nftables flushed"    // all rules, the lease filter's too.
	GossipCut       Kind = "gossip cut"          // the election's port only
	LinkCut         Kind = "link cut"            // silently, both ways
	LinkCutOut      Kind = "link cut outwards"   // the router receives nothing from the master
	LinkCutIn       Kind = "link cut inwards"    // the master receives nothing from the router
	LinkDown        Kind = "link without carrier"
	LinkFlaps       Kind = "link flaps" // its carrier comes and goes
	BGPKilled       Kind = "bgpd killed"
	RouterFrozen    Kind = "router frozen"
	RouterRebooted  Kind = "router rebooted"     // its daemons are killed.
	Parted          Kind = "parted"              // from the other masters; all other hosts receive everything.
	Unheard         Kind = "unheard by one"      // the next master receives nothing from this one.
	StrangerHas     Kind = "VIP of a stranger"   // a host that is no master.
	AllRestarted    Kind = "all speakers killed" // at once, and all started again at once
	MemberRemoved   Kind = "member removed"      // from the other masters' lists, then added again.
	MemberMoved     Kind = "member moved"        // to another address, in all lists.
	LeaseDoubled    Kind = "lease doubled"       // in all files, and then halved again
	DiskLost        Kind = "installed anew"      // reinstalled with the same name and address
	PowerCut        Kind = "power cut"
)

// Part names the component that a fault breaks.
type Part string

// The parts of a network. A machine includes everything on a master. Gossip and the
// parts after it exist on the flat topology only.
const (
	APIServer Part = "apiserver"
	Registry  Part = "registry"
	Speaker   Part = "speaker"
	Address   Part = "address"
	Link      Part = "link"
	Router    Part = "router"
	Machine   Part = "machine"
	Gossip    Part = "gossip"   // a master's lease messages
	LAN       Part = "lan"      // the bridge between the masters
	Stranger  Part = "stranger" // a host that is no master
	Everyone  Part = "everyone" // all masters' speakers
	Lists     Part = "lists"    // the members listed in the masters' files
	Member    Part = "member"   // the lists and one speaker
)

// common reports whether the part belongs to no single master.
func (p Part) common() bool { return p == Router || p == Stranger || p == Everyone }

// trait describes a kind.
type trait struct {
	kind         Kind
	part         Part
	nature       nature
	routed, flat odds // on the bgp topology and on the flat one
	do, undo     act  // how to break it and to mend it; undo is nil if it mends itself
}

// nature is the set of properties of a kind.
type nature int

const (
	fatal    nature = 1 << iota // the master cannot serve meanwhile
	restarts                    // the speaker's process ends
	planned                     // an operator's change, which must cost no connection
	listed                      // only where the files list the members
	joined                      // only where the members join
)

func (n nature) includes(what nature) bool { return n&what != 0 }

// odds are a kind's relative weight, and the bounds of its duration in milliseconds.
// They are zero if the topology lacks the kind.
type odds struct{ weight, least, most int }

// traits returns all kinds. Faults of the flat topology are shorter, except a few that
// may outlast a lease.
func traits() []trait {
	kill, freeze, thaw := process((*lab.Node).Kill), process((*lab.Node).Freeze), process((*lab.Node).Thaw)
	boot, well, heal := node((*lab.Node).Boot), answers(""), link((*lab.Link).Heal)
	return []trait{
		{APIServerKilled, APIServer, fatal, odds{6, 200, 8000}, odds{5, 200, 3000}, kill, boot},
		{APIServerFrozen, APIServer, fatal, odds{4, 200, 8000}, odds{3, 500, 3000}, freeze, thaw},
		{APIServerHangs, APIServer, fatal, odds{2, 500, 6000}, odds{}, answers("hang=headers"), well},
		{APIServerErrors, APIServer, fatal, odds{4, 200, 6000}, odds{3, 200, 3000}, answers("status=500"), well},
		{APIServerSlow, APIServer, fatal, odds{3, 500, 6000}, odds{}, answers("delay=700ms"), well},
		{RegistryKilled, Registry, fatal, odds{4, 200, 8000}, odds{}, kill, boot},
		{RegistryFrozen, Registry, fatal, odds{2, 500, 6000}, odds{}, freeze, thaw},
		{RegistryErrors, Registry, fatal, odds{4, 200, 6000}, odds{}, answers("status=500"), well},
		{RegistryLogin, Registry, 0, odds{1, 1000, 6000}, odds{}, answers("status=401"), well},
		{SpeakerKilled, Speaker, fatal | restarts, odds{4, 100, 14000}, odds{6, 100, 3000}, kill, boot},
		{SpeakerFrozen, Speaker, fatal, odds{4, 100, 14000}, odds{8, 50, 3000}, freeze, thaw},
		{SpeakerStopped, Speaker, fatal | restarts | planned, odds{2, 100, 4000}, odds{3, 100, 2000}, node((*lab.Node).Stop), boot},
		{SpeakerDrained, Speaker, fatal | planned, odds{3, 500, 6000}, odds{4, 500, 3000}, herald("drain"), herald("undrain")},
		{MEDRaised, Speaker, planned, odds{1, 1000, 6000}, odds{}, changeFile, restoreFile},
		{Recoloured, Speaker, planned, odds{1, 1000, 6000}, odds{}, changeFile, restoreFile},
		{BadFile, Speaker, planned, odds{1, 1000, 6000}, odds{}, changeFile, restoreFile},
		{AddressDeleted, Address, 0, odds{1, 500, 500}, odds{2, 500, 500}, deleteAddress, nil},
		{AddressesGone, Address, 0, odds{1, 500, 500}, odds{}, runs("ip", "address", "flush", "dev", "lo", "scope", "global"), nil},
		// It claims the speaker: only a running speaker restores the filter, so a killed
		// speaker's address would answer until it expires.
		{RulesFlushed, Speaker, 0, odds{}, odds{3, 500, 500}, runs("nft", "flush ruleset"), nil},
		{GossipCut, Gossip, 0, odds{}, odds{6, 300, 3000}, runs("nft", gossipCut), runs("nft", "add table inet lab; delete table inet lab")}, // the table may have been flushed
		{LinkCut, Link, 0, odds{2, 300, 10000}, odds{4, 300, 3000}, link((*lab.Link).Cut), heal},
		{LinkCutOut, Link, 0, odds{1, 300, 10000}, odds{3, 300, 3000}, cutOut, heal},
		{LinkCutIn, Link, 0, odds{1, 300, 10000}, odds{3, 300, 3000}, cutIn, heal},
		{LinkDown, Link, 0, odds{2, 300, 8000}, odds{3, 300, 3000}, link((*lab.Link).Down), heal},
		{LinkFlaps, Link, 0, odds{2, 1000, 4000}, odds{2, 1000, 3000}, link((*lab.Link).Down), heal},
		{BGPKilled, Router, 0, odds{1, 1000, 6000}, odds{}, killBGP, reboot},
		{RouterFrozen, Router, 0, odds{1, 500, 8000}, odds{}, freeze, thaw},
		{RouterRebooted, Router, 0, odds{1, 1000, 6000}, odds{}, kill, reboot},
		{Parted, LAN, 0, odds{}, odds{8, 300, 4000}, part, join},
		{Unheard, LAN, 0, odds{}, odds{5, 300, 4000}, deafenNext, join},
		{StrangerHas, Stranger, 0, odds{}, odds{1, 300, 1500}, strangers("add"), strangers("del")},
		{AllRestarted, Everyone, fatal | restarts, odds{}, odds{2, 50, 1000}, kill, boot},
		{MemberRemoved, Lists, listed, odds{}, odds{6, 100, 4000}, changeFile, restoreFile},
		{LeaseDoubled, Lists, listed, odds{}, odds{6, 100, 4000}, changeFile, restoreFile},
		{MemberMoved, Member, listed | fatal | restarts, odds{}, odds{6, 100, 4000}, moves(changeFile), moves(restoreFile)},
		{DiskLost, Member, joined | fatal | restarts, odds{}, odds{8, 50, 2000}, loseDisk, boot},
		{PowerCut, Machine, fatal | restarts, odds{2, 1000, 8000}, odds{3, 500, 3000}, process((*lab.Node).PowerOff), node((*lab.Node).PowerOn)},
	}
}

// Fault is one thing to break and to mend again.
type Fault struct {
	Kind Kind `json:"kind"`
	Part Part `json:"part"`
	// Master is the affected master, or the one cut off from the others; empty if the part is common.
	Master string `json:"master,omitempty"`
	// Router is the affected router, or the far end of the affected link; else empty.
	Router string `json:"router,omitempty"`
	// At is when to break it, since the start of the round; For is the duration.
	At  time.Duration `json:"atNs"`
	For time.Duration `json:"forNs"`
}

// String returns the fault and its place, as in "m1: apiserver killed".
func (f Fault) String() string {
	switch {
	case f.Master == "":
		return fmt.Sprintf("%s: %s", cmp.Or(f.Router, string(f.Part)), f.Kind)
	case f.Router != "":
		return fmt.Sprintf("%s-%s: %s", f.Master, f.Router, f.Kind)
	}
	return fmt.Sprintf("%s: %s", f.Master, f.Kind)
}
