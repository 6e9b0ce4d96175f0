// Package bfd is a speaker of Bidirectional Forwarding Detection: RFC 5880 in asynchronous mode, without echo and
// without authentication, over one hop (RFC 5881) or several (RFC 5883), in IPv4 and IPv6.
//
// A [Server] keeps the sessions given to [Server.Apply] and reports each change of their state. The caller decides how to
// react (see RFC 5882); [Status.Failed] tells a failed path from a session that was shut down on purpose.
package bfd

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/herald-vip/herald/internal/seconds"
)

// ErrClosed is the result of a call to a server that is closed.
var ErrClosed = errors.New("the BFD server is closed")

// The limits of a [Config].
const (
	MinInterval = 10 * time.Millisecond
	MaxInterval = time.Minute
)

// Config is a session to keep.
type Config struct {
	// Peer is the far end. A link-local address has the interface as its zone.
	Peer netip.Addr
	// Local is the source address of the packets; unset leaves it to the
	// kernel. A multihop session needs it (RFC 5883 section 4).
	Local netip.Addr
	// Interval is the shortest time between two packets that this end sends and can receive, in whole microseconds from MinInterval to
	// MaxInterval. The slower end sets the pace of each direction.
	Interval time.Duration
	// Multiplier is the detection multiplier: the peer's detection time is this many of the agreed intervals.
	Multiplier uint8
	// Multihop is for a peer that is not on a shared link: UDP port 4784 instead of 3784, and MinTTL instead of 255.
	Multihop bool
	// MinTTL is the lowest accepted TTL or hop limit of packets in a multihop session. Packets start at 255, so
	// 254 allows one router between.
	MinTTL uint8
}

// Validate returns the first mistake in the configuration, or nil.
func (c Config) Validate() error {
	switch {
	case !c.Peer.IsValid():
		return fmt.Errorf("a BFD session needs the address of its peer")
	case c.Peer.Is4In6() || c.Local.Is4In6():
		return fmt.Errorf("BFD session with %v: an IPv4 address is written without ::ffff", c.Peer)
	case c.Peer.IsUnspecified() || c.Peer.IsMulticast():
		return fmt.Errorf("BFD session with %v: this is not the address of one host", c.Peer)
	case c.Peer.IsLinkLocalUnicast() && c.Peer.Is6() && c.Peer.Zone() == "":
		return fmt.Errorf("BFD session with %v: a link-local address needs its interface, as in %v%%eth0", c.Peer, c.Peer)
	case c.Local.IsValid() && c.Local.Is4() != c.Peer.Is4():
		return fmt.Errorf("BFD session with %v: the local address %v is of the other family", c.Peer, c.Local)
	case c.Local.IsValid() && (c.Local.IsUnspecified() || c.Local.IsMulticast()):
		return fmt.Errorf("BFD session with %v: %v is not the address of one host", c.Peer, c.Local)
	case c.Multihop && !c.Local.IsValid():
		return fmt.Errorf("BFD session with %v: a multihop session needs a local address", c.Peer)
	case c.Multihop && c.Peer.IsLinkLocalUnicast():
		return fmt.Errorf("BFD session with %v: a link-local address is never several hops away", c.Peer)
	case !c.Multihop && c.MinTTL != 0:
		return fmt.Errorf("BFD session with %v: only a multihop session has a minimum TTL, others require 255", c.Peer)
	case c.Interval < MinInterval || c.Interval > MaxInterval:
		return fmt.Errorf("BFD session with %v: the interval is %v, which is not between %v and %v", c.Peer, c.Interval, MinInterval, MaxInterval)
	case c.Interval%time.Microsecond != 0:
		return fmt.Errorf("BFD session with %v: the interval %v is not in whole microseconds", c.Peer, c.Interval)
	case c.Multiplier == 0:
		return fmt.Errorf("BFD session with %v: the multiplier must be from 1 to 255", c.Peer)
	}
	return nil
}

// port is where both ends listen (RFC 5881 section 4, RFC 5883 section 5).
func (c Config) port() int {
	if c.Multihop {
		return 4784
	}
	return 3784
}

// minTTL is the lowest TTL or hop limit that is accepted (RFC 5881 section 5).
func (c Config) minTTL() uint8 {
	if c.Multihop {
		return c.MinTTL
	}
	return 255
}

// State is the state of a session (RFC 5880 section 6.2).
type State uint8

// The states, by their values on the wire.
const (
	AdminDown State = iota // shut down by an administrator
	Down                   // nothing received, or the peer says Down
	Init                   // packets of the peer arrive; it is unknown whether it receives ours
	Up                     // both ends receive packets
)

// String is the state's name in the RFC, in lower case.
func (s State) String() string {
	names := [...]string{"admin-down", "down", "init", "up"}
	if int(s) < len(names) {
		return names[s]
	}
	return fmt.Sprintf("state %d", uint8(s))
}

// MarshalText implements [encoding.TextMarshaler].
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (s *State) UnmarshalText(text []byte) error {
	for state := AdminDown; state <= Up; state++ {
		if state.String() == string(text) {
			*s = state
			return nil
		}
	}
	return fmt.Errorf("no BFD state is called %q", text)
}

// Diagnostic is why a session last left the state Up (RFC 5880 section 4.1).
type Diagnostic uint8

// The diagnostics that this package gives.
const (
	NoDiagnostic         Diagnostic = 0
	DetectionTimeExpired Diagnostic = 1
	NeighborSignaledDown Diagnostic = 3
	AdministrativelyDown Diagnostic = 7
)

// String is the diagnostic in words.
func (d Diagnostic) String() string {
	names := [...]string{
		"no diagnostic", "control detection time expired", "echo function failed",
		"neighbor signaled session down", "forwarding plane reset", "path down",
		"concatenated path down", "administratively down", "reverse concatenated path down",
	}
	if int(d) < len(names) {
		return names[d]
	}
	return fmt.Sprintf("diagnostic %d", uint8(d))
}

// Status is the present state of a session. Its JSON is part of the output of `herald status -o json`.
type Status struct {
	// Peer is the far end, as configured.
	Peer netip.Addr `json:"-"`
	// Local is the source address of the packets, unset while there is no socket.
	Local netip.Addr `json:"-"`
	// State is this end's, Remote the peer's as last received, Down before that.
	State  State `json:"state"`
	Remote State `json:"-"`
	// Since is when State was entered.
	Since time.Time `json:"since,omitzero"`
	// Failed reports that the path has failed: the session was up and is not, and neither end has shut it down on purpose
	// (RFC 5882 section 4.2).
	Failed bool `json:"-"`
	// Diagnostic is why this end last left Up.
	Diagnostic Diagnostic `json:"-"`
	// Reason says why the session is not up, in words; empty when it is up and well.
	Reason string `json:"reason,omitempty"`
	// TxInterval is the agreed time between two packets to the peer, less jitter.
	TxInterval seconds.Duration `json:"intervalSeconds"`
	// DetectionTime is the time without packets after which the peer is down; 0 before its first packet.
	DetectionTime seconds.Duration `json:"detectionTimeSeconds"`
	// Downs counts how often the session has left Up.
	Downs uint64 `json:"downs"`
	// In and Out count packets received and sent, Discarded packets from the peer's address that broke a rule.
	In        uint64 `json:"packetsIn"`
	Out       uint64 `json:"packetsOut"`
	Discarded uint64 `json:"packetsDiscarded"`
}
