// Package bgp announces host routes to BGP peers from an embedded GoBGP server, and accepts no routes from them.
// No other package knows GoBGP: callers configure peers with [Server.Apply], announce routes with [Server.Announce] and
// [Server.Withdraw], and read [Session] values.
//
// The package adds to GoBGP: it retries a lost session at once instead of after GoBGP's fixed idle time, and gives up a
// peer that stops reading (RFC 9687). It examines a session that does not come up until it knows the reason, watches
// paths by BFD, and bounds the resources that a peer can use.
//
// bgp.go has the types, and encode.go their translation for GoBGP. examine.go and reasons.go find why a session is down.
// peer.go has the state of one peer and bounds its resources. state.go has the state of the [Server] and its calls to
// GoBGP per peer. Each cause of a change has a file (connect, unnumbered, routes, session), and server.go starts and
// stops all. routes.go also has the marks of routes and their wait for BFD.
package bgp

import (
	"cmp"
	"fmt"
	"net/netip"
	"time"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/bgp/bfd"
	"github.com/herald-vip/herald/internal/seconds"
)

// Config is the configuration that [Server.Apply] puts in force.
type Config struct {
	// ASN is the own autonomous system number.
	ASN uint32
	// RouterID is the BGP identifier, an IPv4 address (RFC 6286).
	RouterID netip.Addr
	// ListenPort accepts sessions on this TCP port; 0 accepts none.
	ListenPort uint16
	// ListenAddresses limit the listener; empty means all addresses.
	ListenAddresses []netip.Addr
	// ConnectRetry is the longest wait between two attempts, in whole seconds, for peers without their own.
	ConnectRetry time.Duration
	// Peers are the routers to have sessions with, their derived fields set: Families and BFD.Multihop.
	Peers []v1alpha1.Peer
}

// ownASN returns the speaker's ASN on the session with p, given the usual one.
func ownASN(p v1alpha1.Peer, usual uint32) uint32 { return cmp.Or(uint32(p.LocalASN), usual) }

// mismatch explains why the ASN of an OPEN is not that of p, on a session where the speaker's is own. It is empty if they agree.
func mismatch(p v1alpha1.Peer, own, received uint32) string {
	switch err := v1alpha1.ASN(received).Check(); {
	case p.ASN != v1alpha1.External && received != uint32(p.ASN):
		return fmt.Sprintf("the peer's ASN is %d, not %d as configured", received, uint32(p.ASN))
	case p.ASN == v1alpha1.External && received == own:
		return fmt.Sprintf("the peer's ASN is %d like this node's, but asn: external is for other ASNs: set asn to this number for iBGP", received)
	case p.ASN == v1alpha1.External && err != nil:
		return fmt.Sprintf("the peer's ASN is %d: %v", received, err)
	}
	return ""
}

// leastTTL returns the lowest TTL of packets from p, which leave with 255 and lose one per router passed
// (RFC 5082 section 3). It applies to BGP under GTSM and to BFD.
func leastTTL(p v1alpha1.Peer) uint8 {
	return 255 - max(p.Multihop, p.TTLSecurity, 1) + 1
}

// Route is a route to announce.
type Route struct {
	Prefix     netip.Prefix
	Attributes v1alpha1.Attributes
	// Draining marks the route with GRACEFUL_SHUTDOWN (RFC 8326) and the worst MED and local preference, so that peers
	// move traffic away before the withdrawal.
	Draining bool
	// Peers are the names of the peers that get the route; nil means all, including peers configured later.
	Peers []string
	// DrainingPeers are further peers, which get the route as if it were Draining.
	DrainingPeers []string
}

// State is a BGP session's state (RFC 4271 section 8.2.2).
type State string

// The states of a session. Waiting is specific to Herald: the address of the peer is not known yet.
const (
	Waiting     State = "waiting"
	Idle        State = "idle"
	Active      State = "active"
	OpenSent    State = "opensent"
	OpenConfirm State = "openconfirm"
	Established State = "established"
)

// Session is the session with one peer. Its JSON is part of the output of `herald status -o json`.
type Session struct {
	// Name is the peer's name in the configuration.
	Name string `json:"name"`
	// Gateway is the name of the default gateway that the peer is; empty if it is none.
	Gateway string `json:"gateway,omitempty"`
	// Address is the peer's; unset before the first router advertisement of an unnumbered peer, and while there is no default gateway.
	Address netip.Addr `json:"address,omitzero"`
	// LocalAddress is the session's own end, unset unless established.
	LocalAddress netip.Addr `json:"localAddress,omitzero"`
	// ASN is the peer's, as in its last OPEN if the configuration leaves it open; 0 before that.
	ASN uint32 `json:"asn"`
	// State is the session's.
	State State `json:"state"`
	// Since is when the session came up or went down.
	Since time.Time `json:"since,omitzero"`
	// Reason says why the session is not established, or why it does not carry some routes; empty if it carries all.
	Reason string `json:"reason,omitempty"`
	// Drops counts established sessions that were lost.
	Drops uint64 `json:"drops"`
	// HoldTime is the negotiated hold time.
	HoldTime seconds.Duration `json:"holdTimeSeconds,omitempty"`
	// Advertised are prefixes that were sent to the peer and not withdrawn, possibly a part of them; Routes counts them all.
	Advertised []netip.Prefix `json:"advertised"`
	Routes     int            `json:"routes"`
	// BFD is the session that watches the path; nil if there is none.
	BFD *bfd.Status `json:"bfd,omitempty"`

	// IPv4 and IPv6 are the configured address families.
	IPv4 bool `json:"-"`
	IPv6 bool `json:"-"`
}

// AS returns the peer's ASN for people: "external" until it is known.
func (s Session) AS() string { return cmp.Or(v1alpha1.ASN(s.ASN), v1alpha1.External).String() }

// Sent returns how many routes the peer was sent.
func (s Session) Sent() int { return max(s.Routes, len(s.Advertised)) }
