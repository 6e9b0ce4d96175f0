package admin

// Stage is how far the announcement of an address has come: what was decided, or what is so, which may
// fall short of that.
type Stage string

// The stages that are decided.
const (
	Withdrawn Stage = "withdrawn"
	Announced Stage = "announced"
	Draining  Stage = "draining"
	Lingering Stage = "lingering"
	Demoted   Stage = "demoted"
)

// How an address falls short of what was decided.
const (
	Blocked Stage = "blocked" // something stands in the way of the stage
	Unsent  Stage = "unsent"  // to be announced by BGP, and no peer was sent the route
)

// CheckState is what a check has found.
type CheckState string

// The states of a check.
const (
	Unknown   CheckState = "unknown"
	Healthy   CheckState = "healthy"
	Unhealthy CheckState = "unhealthy"
)

// SessionState is that of a BGP session, of which this is the one that carries routes. The others are
// named as in RFC 4271, in lower case.
type SessionState string

// Established is the state of a session that is up.
const Established SessionState = "established"

// BFDState is that of a BFD session: admin-down, down, init or up.
type BFDState string

// BFDUp is the state of a BFD session in which both ends hear each other.
const BFDUp BFDState = "up"

// ServingState is what a backend, or a member with an offer, does with new connections.
type ServingState string

// Backends are serving, draining or dead, members serving, draining, silent or left.
const (
	ServingNew      ServingState = "serving"
	ServingDraining ServingState = "draining"
	ServingDead     ServingState = "dead"
	ServingSilent   ServingState = "silent"
	ServingLeft     ServingState = "left"
)

// Announcement is the way in which a VIP is announced.
type Announcement string

// The ways: by routes to peers, on a flat layer 2, and by routes in a table of the kernel.
const (
	ByBGP    Announcement = "bgp"
	ByARP    Announcement = "arp"
	ByKernel Announcement = "kernel"
)
