// Package bgp announces host routes to BGP peers from an embedded GoBGP
// server, and accepts nothing from them. It is the only package that knows
// GoBGP: callers state peers with [Server.Apply] and routes with
// [Server.Announce] and [Server.Withdraw], and read [Session] values back.
//
// What GoBGP leaves to its embedder, or does not do well, is done here: a lost session is retried
// at once rather than after GoBGP's fixed idle time, a peer that stops reading is given up
// (RFC 9687), a session that does not come up is examined until the reason can be told, paths are
// watched by BFD, and what a peer may cost is bounded.
//
// The files are layers, each of which refers to those before it only. Terms and pure functions
// come first (bgp, marks, encode, limits, event, reasons, dial, examine, peer), then state.go, which
// has the [Server]'s state and what GoBGP is told of each peer, then one file for each thing that
// changes it (connect, path, unnumbered, routes, session), and server.go, which starts and ends all.
package bgp

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/bgp/bfd"
	"github.com/herald-vip/herald/internal/seconds"
)

// Config is what [Server.Apply] brings about.
type Config struct {
	// ASN is the own autonomous system number.
	ASN uint32
	// RouterID is the BGP identifier, an IPv4 address (RFC 6286).
	RouterID netip.Addr
	// ListenPort accepts sessions on this TCP port; 0 accepts none.
	ListenPort uint16
	// ListenAddresses limit the listener; empty means all addresses.
	ListenAddresses []netip.Addr
	// ConnectRetry is the longest wait between two attempts, in whole seconds.
	ConnectRetry time.Duration
	// Peers are those to have sessions with.
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
		return fmt.Sprintf("the peer's ASN is %d like this node's, and asn: external takes any other: give its number for iBGP", received)
	case p.ASN == v1alpha1.External && err != nil:
		return fmt.Sprintf("the peer's ASN is %d: %v", received, err)
	}
	return ""
}

// gatewayName returns the name of the default gateway that p is; empty if it is none.
func gatewayName(p v1alpha1.Peer) string {
	if p.DefaultGateway == "" {
		return ""
	}
	return v1alpha1.GatewayName(p.DefaultGateway)
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
	// Draining marks the route with GRACEFUL_SHUTDOWN (RFC 8326) and the worst
	// MED and local preference, so that peers move traffic away before it is
	// withdrawn.
	Draining bool
	// Peers are the names of the peers that get the route; nil is all, those
	// that are configured later included.
	Peers []string
	// Leaving are further peers, which get it as if Draining.
	Leaving []string
}

// isFor reports whether the route is to be sent to a peer.
func (r Route) isFor(peer string) bool {
	return r.Peers == nil || slices.Contains(r.Peers, peer) || slices.Contains(r.Leaving, peer)
}

// State is a BGP session's state (RFC 4271 section 8.2.2).
type State string

// The states of a session. Waiting is Herald's own: a peer whose address is not
// known yet.
const (
	Waiting     State = "waiting"
	Idle        State = "idle"
	Active      State = "active"
	OpenSent    State = "opensent"
	OpenConfirm State = "openconfirm"
	Established State = "established"
)

// Session is the session with one peer. Its JSON is part of what `herald status -o json` prints.
type Session struct {
	// Name is the peer's name in the configuration.
	Name string `json:"name"`
	// Gateway is the name of the default gateway that the peer is; empty if it is none.
	Gateway string `json:"gateway,omitempty"`
	// Address is the peer's; unset while no router advertisement of an unnumbered peer has arrived, or there is no default gateway.
	Address netip.Addr `json:"address,omitzero"`
	// LocalAddress is the session's own end, unset unless established.
	LocalAddress netip.Addr `json:"localAddress,omitzero"`
	// ASN is the peer's, as in its last OPEN if the configuration leaves it open; 0 before that.
	ASN uint32 `json:"asn"`
	// State is the session's.
	State State `json:"state"`
	// Since is when the session came up or went down.
	Since time.Time `json:"since,omitzero"`
	// Reason says why the session is not established, or why a family or
	// attribute cannot be carried; empty when all is well.
	Reason string `json:"reason,omitempty"`
	// Drops counts established sessions that were lost.
	Drops uint64 `json:"drops"`
	// HoldTime is the negotiated hold time.
	HoldTime seconds.Duration `json:"holdTimeSeconds,omitempty"`
	// Advertised are the prefixes that the peer was sent and not told to forget, or a part of them, and Routes counts them all.
	Advertised []netip.Prefix `json:"advertised"`
	Routes     int            `json:"routes"`
	// BFD is the session that watches the path; nil if there is none.
	BFD *bfd.Status `json:"bfd,omitempty"`

	// IPv4 and IPv6 are the address families that the session is to carry.
	IPv4 bool `json:"-"`
	IPv6 bool `json:"-"`
}

// AS returns the peer's ASN for people: "external" while it is open.
func (s Session) AS() string { return cmp.Or(v1alpha1.ASN(s.ASN), v1alpha1.External).String() }

// Sent returns how many routes the peer was sent.
func (s Session) Sent() int { return max(s.Routes, len(s.Advertised)) }
