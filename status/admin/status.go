// Package admin is the speaker's control socket: it reports the state of the running process
// ([Status]), and drains it. [Server] is the daemon's end and [Client] that of the command line;
// they speak HTTP over a Unix socket that only its owner can open.
package admin

import (
	"fmt"
	"slices"
	"time"

	"github.com/herald-vip/herald/bgp"
	"github.com/herald-vip/herald/election/lease"
	"github.com/herald-vip/herald/health"
	"github.com/herald-vip/herald/internal/seconds"
	"github.com/herald-vip/herald/netutil/newconns"
	"github.com/herald-vip/herald/speaker"
	"github.com/herald-vip/herald/status/eventlog"
)

// Status is the state of a speaker, composed of the statuses of its parts. Its JSON form is what
// `herald status -o json` prints; durations are seconds.
type Status struct {
	Node    string    `json:"node"`
	Version string    `json:"version"`
	Started time.Time `json:"started"`
	// Realtime is [RealtimeOn], or why the process does not run in real time although the
	// configuration asks for that; empty if it does not ask.
	Realtime string `json:"realtime,omitempty"`
	// Draining is the reason of the drain; empty if the node is not drained.
	Draining string `json:"draining,omitempty"`
	// DrainingSince is when the drain began. UntilUndrain reports that it outlasts a restart.
	DrainingSince time.Time        `json:"drainingSince,omitzero"`
	UntilUndrain  bool             `json:"untilUndrain,omitempty"`
	Config        Config           `json:"config"`
	VIPs          []VIP            `json:"vips"`
	Checks        []health.Verdict `json:"checks"`
	// Peers are the BGP sessions; Advertised has their routes to VIPs alone.
	Peers []bgp.Session `json:"peers"`
	// Passing counts misrouted packets that are passed on; nil if that is not configured.
	Passing *Passing `json:"passing,omitempty"`
	// Balancers spread the connections that arrive at this node.
	Balancers []Balancer `json:"balancers,omitempty"`
	// Election is the election of holders on a flat layer 2; nil if there is none.
	Election *Election `json:"election,omitempty"`
	// Services are the VIPs of Kubernetes Services; nil if none are configured.
	Services *Services `json:"services,omitempty"`
	// Events are the last changes and troubles in the log, the newest first.
	Events []eventlog.Event `json:"events"`
}

// RealtimeOn says that the process runs in real time.
const RealtimeOn = "on"

// Config is the configuration in force.
type Config struct {
	File string `json:"file"`
	// Generation counts the configurations applied since the start.
	Generation int       `json:"generation"`
	Loaded     time.Time `json:"loaded"`
	// Error says why the present file is not in force; empty if it is.
	Error string `json:"error,omitempty"`
}

// VIP is one address of a VIP: the speaker's status, and what other parts know of the address.
type VIP struct {
	// Status has as Since the time from which State holds, and as Peers the peers that can carry the route.
	speaker.Status
	// State is the stage if it is in effect, else [Blocked] or [Unsent].
	State speaker.Stage `json:"state"`
	// Sent are the names of the peers that have been sent the route.
	Sent []string `json:"sent,omitempty"`
	// Checks are the VIP's.
	Checks []string `json:"checks,omitempty"`
	// Bridge says how new connections that still arrive at an address on its way out are forwarded, or why they are not; empty
	// if there is nothing to report.
	Bridge string `json:"bridge,omitempty"`
	// BridgedTo are the members that they are forwarded to.
	BridgedTo []string `json:"bridgedTo,omitempty"`
	// Bridged is when forwarding last began.
	Bridged time.Time `json:"bridged,omitzero"`
	// Restored counts how often the address was put back after something removed it.
	Restored int `json:"restored"`
	// Conflict is the hardware address of a foreign machine that uses the address, and Conflicts counts its packets.
	Conflict  string `json:"conflict,omitempty"`
	Conflicts uint64 `json:"conflicts,omitempty"`
	// Rival is the hardware address of a member that was seen to hold the address as well as this node.
	Rival string `json:"rival,omitempty"`
	// Arrivals counts new connections to the address on this node; nil if they are not counted.
	Arrivals *newconns.Count `json:"arrivals,omitempty"`
}

// Passing counts misrouted packets, which this node passes on to the members that own their connections.
type Passing struct {
	// Members are the others that take part.
	Members []string `json:"members"`
	// Passed counts packets that went on to the next member. Answered counts packets that this node answered because no
	// member was left, Refused because there were too many.
	Passed   uint64 `json:"passed"`
	Answered uint64 `json:"answered"`
	Refused  uint64 `json:"refused"`
	// Error says why packets are not passed on.
	Error string `json:"error,omitempty"`
}

// Election is the election of holders of VIPs on a flat layer 2.
type Election struct {
	// Quorum is majority or none, Lease the duration of a lease.
	Quorum string  `json:"quorum"`
	Lease  float64 `json:"leaseSeconds"`
	// Problem says why this node takes no part, such as that it receives no majority; empty if it does.
	Problem string `json:"problem,omitempty"`
	// Change names the members that a change of the electorate waits for; empty without one.
	Change string `json:"change,omitempty"`
	// Insecure reports that messages are neither encrypted nor authenticated.
	Insecure bool `json:"insecure,omitempty"`
	// Exposed says that other users may read the key file, and the cure; empty if they may not.
	Exposed string `json:"exposed,omitempty"`
	// Fence is [FenceOn], or says why the kernel does not stop answers after the end of a lease.
	Fence string `json:"fence"`
	// Members are voters, configured voters, and members without a vote while they are remembered.
	Members []lease.Member `json:"members"`
	Leases  []Lease        `json:"leases"`
	// Offers are the advertisements of members, also of those without a vote.
	Offers []Offer `json:"offers,omitempty"`
	// Strangers counts packets from addresses of no member, Undecipherable packets that no key of this node opens, and
	// Ignored votes that did not count.
	Strangers      uint64 `json:"strangers"`
	Undecipherable uint64 `json:"undecipherable"`
	Ignored        uint64 `json:"ignored"`
}

// FenceOn says that the fence is installed.
const FenceOn = "on"

// Lease is the right to answer for a VIP.
type Lease struct {
	lease.LeaseStatus
	// Reason explains why no holder is known; empty if there is one.
	Reason string `json:"reason,omitempty"`
	// Left is the remaining time of the lease.
	Left seconds.Duration `json:"secondsLeft"`
}

// Ready reports whether the speaker works, and if not, why. It works if every check has a result, at least one peer has
// been sent the routes, and each balancer in force has a backend. A speaker that withholds the VIP of an unhealthy
// apiserver works, too.
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
		announced = announced || v.Stage == speaker.Announced
		routed = routed || v.Stage == speaker.Announced && v.Announce == speaker.ByBGP
	}
	if s.Services != nil {
		if ready, why := s.Services.ready(); !ready {
			return false, why
		}
		announced, routed = announced || s.Services.Routes > 0, routed || s.Services.Routes > 0
	}
	for _, b := range s.Balancers {
		if why := b.Why(); b.InForce() && why != "" {
			return false, fmt.Sprintf("balancer %s: %s", b.Name, why)
		}
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
