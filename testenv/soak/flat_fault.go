package soak

import "time"

// What only the flat topology has to break.
const (
	GossipCut    Kind = "gossip cut"          // the election's port, while all else passes
	RulesFlushed Kind = "nftables flushed"    // all rules, the fence's too
	Parted       Kind = "parted"              // from the other masters; everyone else hears all
	Unheard      Kind = "unheard by one"      // the next master hears nothing of this one
	StrangerHas  Kind = "VIP of a stranger"   // who is no master
	AllRestarted Kind = "all speakers killed" // at once, and started at once
)

// lan is the bridge of the flat topology, at the far end of each master's link.
const lan = "lan"

// stranger is who has the VIP by mistake: the observer's node, whose kernel does
// not hear what the observer asks.
const stranger = "o1"

// flatTraits are those of all kinds of faults in the flat topology. They are
// shorter than in the bgp topology, but for those that outlast a lease or not.
func flatTraits() []trait {
	const ms = time.Millisecond
	return []trait{
		{kind: APIServerKilled, part: APIServer, weight: 5, least: 200 * ms, most: 3000 * ms, fatal: true},
		{kind: APIServerFrozen, part: APIServer, weight: 3, least: 500 * ms, most: 3000 * ms, fatal: true},
		{kind: APIServerErrors, part: APIServer, weight: 3, least: 200 * ms, most: 3000 * ms, fatal: true},
		{kind: SpeakerKilled, part: Speaker, weight: 6, least: 100 * ms, most: 3000 * ms, fatal: true, restarts: true},
		{kind: SpeakerFrozen, part: Speaker, weight: 8, least: 50 * ms, most: 3000 * ms, fatal: true},
		{kind: SpeakerStopped, part: Speaker, weight: 3, least: 100 * ms, most: 2000 * ms, fatal: true, restarts: true, planned: true},
		{kind: SpeakerDrained, part: Speaker, weight: 4, least: 500 * ms, most: 3000 * ms, fatal: true, planned: true},
		{kind: AddressDeleted, part: Address, weight: 2, least: 500 * ms, most: 500 * ms},
		// It claims the speaker: with nobody to put the fence back, a killed one's
		// address answers until it expires.
		{kind: RulesFlushed, part: Speaker, weight: 3, least: 500 * ms, most: 500 * ms},
		{kind: GossipCut, part: Gossip, weight: 6, least: 300 * ms, most: 3000 * ms},
		{kind: LinkCut, part: Link, weight: 4, least: 300 * ms, most: 3000 * ms},
		{kind: LinkCutOut, part: Link, weight: 3, least: 300 * ms, most: 3000 * ms},
		{kind: LinkCutIn, part: Link, weight: 3, least: 300 * ms, most: 3000 * ms},
		{kind: LinkDown, part: Link, weight: 3, least: 300 * ms, most: 3000 * ms},
		{kind: LinkFlaps, part: Link, weight: 2, least: 1000 * ms, most: 3000 * ms},
		{kind: Parted, part: Segment, weight: 8, least: 300 * ms, most: 4000 * ms},
		{kind: Unheard, part: Segment, weight: 5, least: 300 * ms, most: 4000 * ms},
		{kind: StrangerHas, part: Stranger, weight: 1, least: 300 * ms, most: 1500 * ms},
		{kind: AllRestarted, part: Everyone, weight: 2, least: 50 * ms, most: 1000 * ms, fatal: true},
		{kind: PowerCut, part: Machine, weight: 3, least: 500 * ms, most: 3000 * ms, fatal: true, restarts: true},
	}
}

// flatSchedule is that of the flat topology. Its faults come thicker, and spare
// nobody: no one's growth is told from it.
func flatSchedule(seed uint64, storm time.Duration) Schedule {
	return Schedule{
		Seed: seed, Masters: masters, Routers: []string{lan}, Storm: storm,
		kinds: flatTraits(), wild: 400 * time.Millisecond, calm: 800 * time.Millisecond,
	}
}
