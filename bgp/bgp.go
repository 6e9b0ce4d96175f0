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

	"github.com/herald-vip/herald/bgp/asn"
	"github.com/herald-vip/herald/bgp/bfd"
	"github.com/herald-vip/herald/bgp/community"
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
	Peers []Peer
}

// Peer is a router to have a session with.
type Peer struct {
	// Address is the peer's; unset for an unnumbered peer, and for a default gateway while
	// there is none, whose session waits.
	Address netip.Addr
	// Gateway says which default gateway the peer is, and names it while it has no address;
	// empty if it is none.
	Gateway string
	// Interface names the link of an unnumbered peer, whose address is learnt
	// from its router advertisements.
	Interface string
	// ASN is the peer's; equal to the own one it makes the session iBGP. 0 is any but the
	// own one: that which the peer's OPEN has.
	ASN uint32
	// LocalASN is the own ASN on this session, in the place of [Config.ASN]; 0 is
	// that one. What a [Route] itself prepends stays the latter.
	LocalASN uint32
	// Port is the peer's TCP port.
	Port uint16
	// LocalAddress is the session's source address; unset leaves it to the kernel.
	LocalAddress netip.Addr
	// Password is the TCP MD5 secret (RFC 2385); empty is none.
	Password string
	// HoldTime is proposed to the peer, in whole seconds; keepalives go at a third of it.
	HoldTime time.Duration
	// Multihop is the TTL towards an eBGP peer that is not on a shared link; 0 is directly connected.
	Multihop uint8
	// TTLSecurity is how many hops away the peer may be under GTSM (RFC 5082); 0 is off.
	TTLSecurity uint8
	// BFD watches the path to the peer; nil does not.
	BFD *BFD
	// IPv4 and IPv6 are the address families the session carries.
	IPv4, IPv6 bool
	// NextHop4 and NextHop6 are the next hops of the routes sent. Unset means
	// the session's own local address or, for IPv6 routes on an IPv4 session,
	// a global IPv6 address of the same link.
	NextHop4, NextHop6 netip.Addr
	// Attributes are laid over a route's own for this peer.
	Attributes Attributes
}

// Name identifies the peer in status, logs and metrics: its address, its
// interface when unnumbered, or what default gateway it would be.
func (p Peer) Name() string {
	switch {
	case p.Interface != "":
		return p.Interface
	case p.Address.IsValid():
		return p.Address.String()
	}
	return p.Gateway
}

// own is the own ASN on the session with p, of a speaker whose ASN is asn.
func (p Peer) own(asn uint32) uint32 { return cmp.Or(p.LocalASN, asn) }

// mismatch says why p is not the peer whose OPEN has an ASN, on a session where the own one is given; empty if it is.
func (p Peer) mismatch(own, heard uint32) string {
	switch err := asn.Check(heard); {
	case p.ASN != 0 && heard != p.ASN:
		return fmt.Sprintf("the peer's ASN is %d, not %d as configured", heard, p.ASN)
	case p.ASN == 0 && heard == own:
		return fmt.Sprintf("the peer's ASN is %d like this node's, and asn: external takes any other: give its number for iBGP", heard)
	case p.ASN == 0 && err != nil:
		return fmt.Sprintf("the peer's ASN is %d: %v", heard, err)
	}
	return ""
}

// leastTTL is the least TTL that packets of the peer may arrive with which were
// sent with 255 and lost one per router passed (RFC 5082 section 3): those of
// BGP under GTSM, and those of BFD.
func (p Peer) leastTTL() uint8 {
	return 255 - max(p.Multihop, p.TTLSecurity, 1) + 1
}

// BFD asks for a BFD session beside the BGP session, to notice within
// milliseconds that the path to the peer is gone.
type BFD struct {
	// Interval is the time between two packets, each way.
	Interval time.Duration
	// Multiplier is how many intervals of silence end the session.
	Multiplier uint8
	// Multihop speaks the BFD of paths over several hops (RFC 5883). Routers
	// have ideas of their own when that is: FRR for multihop sessions and for
	// all under GTSM, even on a shared link.
	Multihop bool
}

// Attributes are the path attributes a user may set.
type Attributes struct {
	// Communities of RFC 1997.
	Communities []community.Community
	// LargeCommunities of RFC 8092.
	LargeCommunities []community.Large
	// MED is the multi-exit discriminator, unset if nil.
	MED *uint32
	// LocalPref is the local preference, sent to iBGP peers only; nil is the default of 100.
	LocalPref *uint32
	// Prepend repeats the own ASN this many more times in the AS path.
	Prepend int
}

// Merge lays over on top of a: lists and prepending add up, other numbers replace.
func (a Attributes) Merge(over Attributes) Attributes {
	a.Communities = sortedSet(a.Communities, over.Communities, cmp.Compare[community.Community])
	a.LargeCommunities = sortedSet(a.LargeCommunities, over.LargeCommunities, community.Large.Compare)
	if over.MED != nil {
		a.MED = over.MED
	}
	if over.LocalPref != nil {
		a.LocalPref = over.LocalPref
	}
	a.Prepend += over.Prepend
	return a
}

func sortedSet[T comparable](a, b []T, order func(T, T) int) []T {
	all := slices.Concat(a, b)
	slices.SortFunc(all, order)
	return slices.Compact(all)
}

// Route is a route to announce.
type Route struct {
	Prefix     netip.Prefix
	Attributes Attributes
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
	// Gateway is [Peer.Gateway].
	Gateway string `json:"gateway,omitempty"`
	// Address is the peer's; unset while no router advertisement of an unnumbered peer has arrived, or there is no default gateway.
	Address netip.Addr `json:"address,omitzero"`
	// LocalAddress is the session's own end, unset unless established.
	LocalAddress netip.Addr `json:"localAddress,omitzero"`
	// ASN is the peer's, as in its last OPEN if [Peer.ASN] leaves it open; 0 before that.
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
func (s Session) AS() string { return cmp.Or(asn.Peer(s.ASN), asn.External).String() }

// Sent returns how many routes the peer was sent.
func (s Session) Sent() int { return max(s.Routes, len(s.Advertised)) }
