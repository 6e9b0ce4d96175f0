package bgp

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/apiutil"
	packet "github.com/osrg/gobgp/v4/pkg/packet/bgp"
	gobgp "github.com/osrg/gobgp/v4/pkg/server"

	"github.com/herald-vip/herald/bgp/bfd"
)

// Server is the embedded BGP speaker. Its methods are safe for concurrent use.
type Server struct {
	log     *slog.Logger
	options Options
	gobgp   *gobgp.BgpServer
	bfd     *bfd.Server
	reasons *reasons
	// accepted is GoBGP's channel of accepted connections; nil if this version has none.
	accepted *chan net.Conn

	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
	events chan apiutil.PeerState // of GoBGP

	mu      sync.Mutex
	started bool
	closing bool
	config  Config
	peers   map[string]*peer
	numbers numbers
	// exported are the peers in GoBGP's export policy.
	exported []receiver
	routes   map[netip.Prefix]Route
}

// Options configure a server; the zero value is valid.
type Options struct {
	// MaxRoutes limits the routes of a peer; a session with more is ended for a minute. Herald uses no received
	// routes, but GoBGP keeps them all, and a speaker that runs out of memory loses its VIPs. Default: 10,000.
	MaxRoutes uint32
	// NextHop6 finds a global IPv6 address on the link that carries local. It
	// becomes the next hop of IPv6 routes on a session over IPv4.
	NextHop6 func(local netip.Addr) (netip.Addr, error)
}

func (s *Server) find(addr netip.Addr) *peer {
	for _, p := range s.peers {
		if p.addr == addr {
			return p
		}
	}
	return nil
}

// add gives p to GoBGP if GoBGP does not have it and its address is known.
func (s *Server) add(p *peer) {
	if p.present || !p.addr.IsValid() || time.Now().Before(p.banned) {
		return
	}
	if other := s.namesake(p); other != "" {
		p.reason = fmt.Sprintf("peer %s has the same address on another link, and GoBGP cannot tell the two apart: give the routers different link-local addresses", other)
		return
	}
	if err := s.gobgp.AddPeer(s.ctx, &api.AddPeerRequest{Peer: encodePeer(s.config, p.Peer, p.addr)}); err != nil {
		p.reason = err.Error() // tried again every second
		return
	}
	p.present = true
	p.state = Idle
	p.added = time.Now()
}

// namesake returns the name of another peer in GoBGP with the same address in another zone; empty if there is none.
// GoBGP's policies ignore zones.
func (s *Server) namesake(p *peer) string {
	for name, other := range s.peers {
		if other != p && other.present && other.addr.WithZone("") == p.addr.WithZone("") {
			return name
		}
	}
	return ""
}

// drop removes p from GoBGP, which ends its session.
func (s *Server) drop(p *peer) {
	if !p.present {
		return
	}
	if p.state == Established {
		// Counted here: GoBGP sends no event for a peer that is deleted.
		p.down("reconfigured")
	}
	s.forget(p)
	p.state = Idle
}

// forget deletes p from GoBGP.
func (s *Server) forget(p *peer) {
	if err := s.gobgp.DeletePeer(s.ctx, &api.DeletePeerRequest{Address: p.addr.String()}); err != nil {
		s.log.Debug("cannot delete the peer", "peer", p.Name(), "err", err)
	}
	p.present = false
	p.epoch++
}

// renew deletes the peer from GoBGP and adds it again. GoBGP tries a new peer within two seconds, but a lost one only
// after its fixed idle time of five seconds.
func (s *Server) renew(p *peer) {
	s.forget(p)
	s.add(p)
}

// export updates GoBGP's policy to the peers, and re-sends the routes of peers with changed attributes.
func (s *Server) export() {
	var all []receiver
	for _, name := range slices.Sorted(maps.Keys(s.peers)) {
		if p := s.peers[name]; p.addr.IsValid() {
			all = append(all, p.receiver())
		}
	}
	if reflect.DeepEqual(all, s.exported) {
		return
	}
	if err := s.gobgp.SetPolicies(s.ctx, encodePolicies(s.config.ASN, all)); err != nil {
		s.log.Error("cannot set policies", "err", err)
		return
	}
	before := s.exported
	s.exported = all
	for _, n := range all {
		same := func(old receiver) bool { return reflect.DeepEqual(old, n) }
		if s.peers[n.Name()].state != Established || slices.ContainsFunc(before, same) {
			continue
		}
		if err := s.gobgp.ResetPeer(s.ctx, &api.ResetPeerRequest{
			Address: n.addr.String(), Soft: true, Direction: api.ResetPeerRequest_DIRECTION_OUT,
		}); err != nil {
			s.log.Warn("cannot send routes again", "peer", n.Name(), "err", err)
		}
	}
}

// lose records that the session with p has ended, and retries it unless Close ended it.
func (s *Server) lose(p *peer, reason string) {
	now := time.Now()
	if p.shorts++; now.Sub(p.since) > short {
		p.shorts = 0
	}
	p.banned = now.Add(damp(p.shorts))
	p.down(reason)
	s.export()
	if p.closed != nil {
		s.log.Info("session closed", "peer", p.Name(), "state", "down")
		close(p.closed)
		p.closed = nil
		return
	}
	s.log.Warn("session lost", "peer", p.Name(), "state", "down", "reason", reason)
	s.renew(p)
}

// stateOf returns the state for one of GoBGP's.
func stateOf(s packet.FSMState) State {
	switch s {
	case packet.BGP_FSM_ESTABLISHED:
		return Established
	case packet.BGP_FSM_OPENCONFIRM:
		return OpenConfirm
	case packet.BGP_FSM_OPENSENT:
		return OpenSent
	case packet.BGP_FSM_ACTIVE, packet.BGP_FSM_CONNECT:
		return Active
	}
	return Idle
}

// offers are the capabilities in a peer's OPEN. Without capabilities of families it implies IPv4 (RFC 4760 section 8).
type offers struct {
	ipv4, ipv6 bool
	extended4  bool // IPv4 routes with an IPv6 next hop (RFC 8950)
}

func offersOf(capabilities []packet.ParameterCapabilityInterface) offers {
	o, says := offers{}, false
	for _, c := range capabilities {
		switch c := c.(type) {
		case *packet.CapMultiProtocol:
			says = true
			o.ipv4 = o.ipv4 || c.CapValue == packet.RF_IPv4_UC
			o.ipv6 = o.ipv6 || c.CapValue == packet.RF_IPv6_UC
		case *packet.CapExtendedNexthop:
			for _, t := range c.Tuples {
				o.extended4 = o.extended4 || t.NLRIAFI == packet.AFI_IP && t.NexthopAFI == packet.AFI_IP6
			}
		}
	}
	o.ipv4 = o.ipv4 || !says
	return o
}

// explainEnd explains why an established session ended.
func explainEnd(e apiutil.PeerState) string {
	switch e.DisconnectReason {
	case api.PeerState_DISCONNECT_REASON_READ_FAILED:
		return "the peer closed the connection"
	case api.PeerState_DISCONNECT_REASON_WRITE_FAILED:
		return "cannot write to the connection"
	case api.PeerState_DISCONNECT_REASON_HOLD_TIMER_EXPIRED:
		return "hold timer expired: no message from the peer"
	}
	return nameCease(e.DisconnectMessage)
}

// nameCease names the subcodes of Cease that GoBGP does not know, of RFC 8538 and RFC 9384.
func nameCease(said string) string {
	const cease = "code 6(cease) subcode "
	return strings.NewReplacer(cease+"9(undefined)", cease+"9(hard reset)", cease+"10(undefined)", cease+"10(bfd down)").Replace(said)
}
