// Package admin is the speaker's control socket: what the running process
// tells of itself ([Status]), and how an operator drains it. [Server] is the
// daemon's end and [Client] that of the command line; they speak HTTP over a
// Unix socket that only its owner can open.
package admin

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/herald-vip/herald/bgp/asn"
)

// Status is everything a speaker tells of itself. Its JSON form is what
// `herald status -o json` prints; durations are seconds.
type Status struct {
	Node    string    `json:"node"`
	Version string    `json:"version"`
	Started time.Time `json:"started"`
	// Realtime is [RealtimeOn], or why the process is not in real time although
	// it is to be; empty if it is not to be.
	Realtime string `json:"realtime,omitempty"`
	// Draining is why everything is withdrawn on purpose; empty if it is not.
	Draining string `json:"draining,omitempty"`
	// DrainingSince is when that began, UntilUndrain whether it outlasts a restart.
	DrainingSince time.Time `json:"drainingSince,omitzero"`
	UntilUndrain  bool      `json:"untilUndrain,omitempty"`
	Config        Config    `json:"config"`
	VIPs          []VIP     `json:"vips"`
	Checks        []Check   `json:"checks"`
	Peers         []Peer    `json:"peers"`
	// Passing is how packets of others' connections are passed on; nil if they are not to be.
	Passing *Passing `json:"passing,omitempty"`
	// Balancers spread the connections that arrive at this node; none if there are to be none.
	Balancers []Balancer `json:"balancers,omitempty"`
	// Election is how the members of a flat layer 2 agree on holders; nil if there is none.
	Election *Election `json:"election,omitempty"`
	// Services are the VIPs of Kubernetes Services; nil if there are to be none.
	Services *Services `json:"services,omitempty"`
	// Events are the last changes and troubles that were logged, the newest first.
	Events []Event `json:"events"`
}

// RealtimeOn says that the process is in real time.
const RealtimeOn = "on"

// Config is the configuration in force.
type Config struct {
	File string `json:"file"`
	// Generation counts the configurations applied since the start.
	Generation int       `json:"generation"`
	Loaded     time.Time `json:"loaded"`
	// Error is why the file as it is now is not in force; empty if it is.
	Error string `json:"error,omitempty"`
}

// VIP is one address of a VIP.
type VIP struct {
	Name      string     `json:"name"`
	Address   netip.Addr `json:"address"`
	Interface string     `json:"interface"`
	// Stage is what was decided, State what is so, and Since since when.
	Stage Stage     `json:"stage"`
	State Stage     `json:"state"`
	Since time.Time `json:"since,omitzero"`
	// Reason is why it is in its stage, Error what stands in the way of it.
	Reason string `json:"reason"`
	Error  string `json:"error,omitempty"`
	// Peers are the names of the peers to which it is announced, Sent of those that have
	// been sent the route; none on a flat layer 2.
	Peers []string `json:"peers,omitempty"`
	Sent  []string `json:"sent,omitempty"`
	// Checks are those that must pass.
	Checks []string `json:"checks,omitempty"`
	// Bridge says what is done with new connections that still arrive although the address is
	// on its way out, or why nothing could be; empty if there is nothing to say.
	Bridge string `json:"bridge,omitempty"`
	// BridgedTo are the members to which they are sent on.
	BridgedTo []string `json:"bridgedTo,omitempty"`
	// Bridged is when they last began to be sent on.
	Bridged time.Time `json:"bridged,omitzero"`
	// Kept says that it is announced as the last resort though its checks fail, as no other member is known to serve it.
	Kept bool `json:"kept,omitempty"`
	// Decided says whether the checks have spoken.
	Decided  bool         `json:"decided"`
	Announce Announcement `json:"announce"`
	// Table is the kernel's that has its route, which another daemon redistributes; 0 if none does.
	Table int `json:"table,omitempty"`
	// Prefix is what is announced in its place, if anything.
	Prefix netip.Prefix `json:"prefix,omitzero"`
	// Restored counts how often the address was put back after something removed it.
	Restored int `json:"restored"`
	// Conflict is a foreign machine seen using the address, and Conflicts how often.
	Conflict  string `json:"conflict,omitempty"`
	Conflicts uint64 `json:"conflicts,omitempty"`
	// Rival is a member that was seen to hold the address as well as this node.
	Rival          string      `json:"rival,omitempty"`
	LastWithdrawal *Withdrawal `json:"lastWithdrawal,omitempty"`
	// Arrivals are the connections that others began to the address here; nil if they are not counted.
	Arrivals *Arrivals `json:"arrivals,omitempty"`
}

// Passing is how packets that routers bring to this node are passed on to the members that own their connections.
type Passing struct {
	// Members are the others that take part.
	Members []string `json:"members"`
	// Passed are packets that went on to the next member, Answered those that nobody was left for, so that this node
	// answered, and Refused those that it answered as there were too many.
	Passed   uint64 `json:"passed"`
	Answered uint64 `json:"answered"`
	Refused  uint64 `json:"refused"`
	// Error is what stands in the way.
	Error string `json:"error,omitempty"`
}

// Arrivals are the connections of TCP that came to an address, by their first packets.
type Arrivals struct {
	// Count is how many the process has counted, Since from when on without a gap.
	Count uint64    `json:"count"`
	Since time.Time `json:"since"`
	// Last is when the last one was seen, ten seconds late at most.
	Last time.Time `json:"last,omitzero"`
}

// Withdrawal is how the last unplanned withdrawal went.
type Withdrawal struct {
	At      time.Time `json:"at"`
	Seconds float64   `json:"seconds"`
	Reason  string    `json:"reason"`
}

// Check is one health check.
type Check struct {
	Name     string     `json:"name"`
	State    CheckState `json:"state"`
	Reason   string     `json:"reason"`
	Warning  string     `json:"warning,omitempty"`
	Since    time.Time  `json:"since,omitzero"`
	Latency  float64    `json:"latencySeconds"`
	Passes   uint64     `json:"passes"`
	Failures uint64     `json:"failures"`
}

// Peer is one BGP session.
type Peer struct {
	Name string `json:"name"`
	// Gateway is what the peer is called in the configuration, if it is a default gateway.
	Gateway      string       `json:"gateway,omitempty"`
	Address      netip.Addr   `json:"address,omitzero"`
	LocalAddress netip.Addr   `json:"localAddress,omitzero"`
	ASN          uint32       `json:"asn"` // 0 while it is open
	State        SessionState `json:"state"`
	Since        time.Time    `json:"since,omitzero"`
	Reason       string       `json:"reason,omitempty"`
	Drops        uint64       `json:"drops"`
	HoldTime     float64      `json:"holdTimeSeconds,omitempty"`
	// Advertised are the routes to VIPs that the peer was sent, Routes is the number of
	// all, with those of Services.
	Advertised []netip.Prefix `json:"advertised"`
	Routes     int            `json:"routes"`
	BFD        *BFD           `json:"bfd,omitempty"`
}

// AS is the peer's autonomous system as it is shown.
func (p Peer) AS() string { return cmp.Or(asn.Peer(p.ASN), asn.External).String() }

// Sent is how many routes the peer was sent.
func (p Peer) Sent() int { return max(p.Routes, len(p.Advertised)) }

// BFD is the session that watches the path to a peer.
type BFD struct {
	State BFDState  `json:"state"`
	Since time.Time `json:"since,omitzero"`
	// Reason is why it is not up.
	Reason string `json:"reason,omitempty"`
	// Interval is the agreed time between two packets to the peer, DetectionTime
	// how long the peer may be silent.
	Interval      float64 `json:"intervalSeconds"`
	DetectionTime float64 `json:"detectionTimeSeconds"`
	// Downs counts how often it ended the BGP session.
	Downs uint64 `json:"downs"`
	In    uint64 `json:"packetsIn"`
	Out   uint64 `json:"packetsOut"`
	// Discarded counts packets from the peer's address that broke a rule.
	Discarded uint64 `json:"packetsDiscarded"`
}

// Election is the agreement on who holds the VIPs of a flat layer 2.
type Election struct {
	// Quorum is majority or none, Lease how long one lasts.
	Quorum string  `json:"quorum"`
	Lease  float64 `json:"leaseSeconds"`
	// Problem is why this node takes no part, such as that it has not heard a majority; empty if it does.
	Problem string `json:"problem,omitempty"`
	// Change is what a change of the electorate waits for; empty if none is under way.
	Change string `json:"change,omitempty"`
	// Insecure says that messages are neither encrypted nor authenticated.
	Insecure bool `json:"insecure,omitempty"`
	// Exposed says that others may read the key file, and what to do; empty if they may not.
	Exposed string `json:"exposed,omitempty"`
	// Fence is [FenceOn], or why the kernel does not guard against answers after the end of a lease.
	Fence   string   `json:"fence"`
	Members []Member `json:"members"`
	Leases  []Lease  `json:"leases"`
	// Offers are what members serve, those without a vote among them.
	Offers []Offer `json:"offers,omitempty"`
	// Strangers counts packets from addresses that no member has, Undecipherable those
	// that no key of this node opens, Ignored votes that did not count.
	Strangers      uint64 `json:"strangers"`
	Undecipherable uint64 `json:"undecipherable"`
	Ignored        uint64 `json:"ignored"`
}

// FenceOn says that the kernel guards who answers.
const FenceOn = "on"

// Member is a node that takes part in the election.
type Member struct {
	Name    string         `json:"name"`
	Address netip.AddrPort `json:"address,omitzero"`
	Self    bool           `json:"self,omitempty"`
	// Voter says whether its vote counts; one without a vote is listed while it is remembered.
	Voter bool `json:"voter,omitempty"`
	// Alive says whether votes are heard from it; this node always is.
	Alive bool `json:"alive"`
	// Heard is when the last vote or greeting came from it.
	Heard time.Time `json:"heard,omitzero"`
	// Stands is how many VIPs it would take the lease of.
	Stands int `json:"stands"`
	// Reason says what is wrong with it, such as that it belongs to another cluster.
	Reason string `json:"reason,omitempty"`
}

// Lease is the right to answer for a VIP.
type Lease struct {
	VIP string `json:"vip"`
	// Holder is a member's name, empty if nobody is known to hold the lease; Reason is why.
	Holder string `json:"holder,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Epoch grows with every new holder.
	Epoch uint64 `json:"epoch"`
	// Votes are the members that agreed to this node's lease last; Needed is how many it takes.
	Votes  []string `json:"votes,omitempty"`
	Needed int      `json:"votesNeeded"`
	// Left is how long the lease lasts unless it is renewed.
	Left float64 `json:"secondsLeft"`
	// Stands says whether this node would take the lease.
	Stands bool `json:"stands"`
}

// Event is one change or trouble, as it was logged.
type Event struct {
	At time.Time `json:"at"`
	// Level is INFO, WARN or ERROR.
	Level string `json:"level"`
	// What happened, to what, and why.
	What  string `json:"what"`
	About string `json:"about,omitempty"`
	Why   string `json:"why,omitempty"`
	// Of and State are, of a change of state, what has it (`vip NAME ADDRESS`, `check NAME` or `peer NAME`) and what it is now.
	Of    string `json:"of,omitempty"`
	State string `json:"state,omitempty"`
}

// Ready says whether the speaker does its job as well as the node's health
// lets it, and if not, why: every check has spoken, and what should be
// announced is, to at least one peer, and each balancer in force has a backend.
// Withholding the VIP of an unhealthy apiserver is doing the job.
func (s Status) Ready() (bool, string) {
	if s.Draining != "" {
		return false, "draining: " + s.Draining
	}
	if e := s.Election; e != nil && e.Problem != "" {
		return false, "election: " + e.Problem
	}
	announced, routed := false, false
	for _, v := range s.VIPs {
		switch {
		case !v.Decided:
			return false, fmt.Sprintf("vip %s %s: %s", v.Name, v.Address, v.Reason)
		case v.State == Blocked:
			return false, fmt.Sprintf("vip %s %s: %s", v.Name, v.Address, v.Error)
		}
		announced = announced || v.Stage == Announced
		routed = routed || v.Stage == Announced && v.Announce == ByBGP
	}
	if s.Services != nil {
		if ready, why := s.Services.ready(); !ready {
			return false, why
		}
		announced, routed = announced || s.Services.Routes > 0, routed || s.Services.Routes > 0
	}
	if why := s.balances(); why != "" {
		return false, why
	}
	switch {
	case !announced && slices.ContainsFunc(s.Balancers, Balancer.InForce):
		return true, "balancing"
	case !announced:
		return true, "nothing to announce"
	case !routed:
		return true, "announcing"
	}
	for _, p := range s.Peers {
		if p.Sent() > 0 {
			return true, "announcing"
		}
	}
	return false, "no peer has been sent a route"
}
