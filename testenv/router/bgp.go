package router

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	"github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/apiutil"
	"github.com/osrg/gobgp/v4/pkg/packet/bgp"
	"github.com/osrg/gobgp/v4/pkg/server"
)

// bgpServer is GoBGP, set up to listen and learn and never to announce.
type bgpServer struct {
	server *server.BgpServer
	served chan struct{} // closed when its main loop has ended
}

// event is what the router hears from a neighbour: a change of its session or of its routes.
type event struct {
	session *apiutil.Peer
	paths   []*apiutil.Path
}

// startBGP listens for cfg's neighbours and passes all events to on, one at a
// time, until ctx ends; close ends the sessions.
func startBGP(ctx context.Context, cfg *Config, port uint16, log *slog.Logger, on func(event)) (_ *bgpServer, err error) {
	level := new(slog.LevelVar)
	s := &bgpServer{
		server: server.NewBgpServer(server.LoggerOption(slog.New(warnings{log.Handler()}), level)),
		served: make(chan struct{}),
	}
	go func() {
		defer close(s.served)
		s.server.Serve()
	}()
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	err = s.server.StartBgp(ctx, &api.StartBgpRequest{Global: &api.Global{
		Asn:        cfg.ASN,
		RouterId:   cfg.RouterID.String(),
		ListenPort: int32(port),
	}})
	if err != nil {
		return nil, fmt.Errorf("listen on port %d: %w", port, err)
	}
	// Export nothing, whatever is learned.
	err = s.server.SetPolicyAssignment(ctx, &api.SetPolicyAssignmentRequest{Assignment: &api.PolicyAssignment{
		Name:          "global",
		Direction:     api.PolicyDirection_POLICY_DIRECTION_EXPORT,
		DefaultAction: api.RouteAction_ROUTE_ACTION_REJECT,
	}})
	if err != nil {
		return nil, fmt.Errorf("set export policy: %w", err)
	}
	// Watch before there are neighbours, so that nothing is missed.
	err = s.server.WatchEvent(ctx, server.WatchEventMessageCallbacks{
		OnPathUpdate: func(paths []*apiutil.Path, _ time.Time) { on(event{paths: paths}) },
		OnPeerUpdate: func(e *apiutil.WatchEventMessage_PeerEvent, _ time.Time) {
			if e.Type == apiutil.PEER_EVENT_STATE {
				on(event{session: &e.Peer})
			}
		},
	}, server.WatchPostUpdate(false, "", ""), server.WatchPeer())
	if err != nil {
		return nil, fmt.Errorf("watch neighbours: %w", err)
	}
	for _, n := range cfg.Neighbors {
		if err := s.add(ctx, n); err != nil {
			return nil, fmt.Errorf("neighbor %v: %w", n.Address, err)
		}
	}
	return s, nil
}

// add makes GoBGP accept connections from n. It does so as a dynamic neighbour
// in a group of its own: a static one, after its session has ended, closes all
// connections for five seconds, and no timer changes that.
func (s *bgpServer) add(ctx context.Context, n *Neighbor) error {
	group := &api.PeerGroup{
		Conf: &api.PeerGroupConf{
			PeerGroupName: n.Address.String(),
			PeerAsn:       n.ASN,
			AuthPassword:  n.Password,
		},
		Timers: &api.Timers{Config: &api.TimersConfig{
			HoldTime:               uint64(n.Hold / time.Second),
			KeepaliveInterval:      uint64(n.Keepalive / time.Second),
			IdleHoldTimeAfterReset: 1, // the default is 30 s
		}},
		Transport: &api.Transport{PassiveMode: true},
	}
	if n.Multihop > 0 {
		group.EbgpMultihop = &api.EbgpMultihop{Enabled: true, MultihopTtl: uint32(n.Multihop)}
	}
	if n.TTLSecurity > 0 {
		group.TtlSecurity = &api.TtlSecurity{Enabled: true, TtlMin: 256 - uint32(n.TTLSecurity)}
	}
	families := []struct {
		policy *Policy
		family *api.Family
	}{
		{n.IPv4, &api.Family{Afi: api.Family_AFI_IP, Safi: api.Family_SAFI_UNICAST}},
		{n.IPv6, &api.Family{Afi: api.Family_AFI_IP6, Safi: api.Family_SAFI_UNICAST}},
	}
	for _, f := range families {
		if f.policy != nil {
			group.AfiSafis = append(group.AfiSafis, &api.AfiSafi{Config: &api.AfiSafiConfig{Family: f.family, Enabled: true}})
		}
	}
	if len(group.AfiSafis) == 0 {
		return errors.New("no address family is active")
	}
	if err := s.server.AddPeerGroup(ctx, &api.AddPeerGroupRequest{PeerGroup: group}); err != nil {
		return err
	}
	only := netip.PrefixFrom(n.Address.WithZone(""), n.Address.BitLen())
	return s.server.AddDynamicNeighbor(ctx, &api.AddDynamicNeighborRequest{DynamicNeighbor: &api.DynamicNeighbor{
		Prefix:    only.String(),
		PeerGroup: n.Address.String(),
	}})
}

// close ends all sessions with a notification and waits for GoBGP to stop.
func (s *bgpServer) close() {
	s.server.Stop()
	<-s.served
}

// warnings passes on what GoBGP logs from warnings up: the router logs the
// changes of sessions and routes itself.
type warnings struct{ slog.Handler }

func (h warnings) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn && h.Handler.Enabled(ctx, level)
}

func (h warnings) WithAttrs(attrs []slog.Attr) slog.Handler {
	return warnings{h.Handler.WithAttrs(attrs)}
}
func (h warnings) WithGroup(name string) slog.Handler { return warnings{h.Handler.WithGroup(name)} }

// errWithdrawn marks an update that takes a route back.
var errWithdrawn = errors.New("withdrawn")

// readPath turns an update into the prefix and the path it is about, or into
// errWithdrawn or an error saying why the path cannot be used. In all cases
// the peer's former path to the prefix is gone. linkTo returns the link on
// which an address is a neighbour.
func readPath(u *apiutil.Path, local uint32, linkTo func(netip.Addr) (string, error)) (netip.Prefix, Path, error) {
	nlri, ok := u.Nlri.(*bgp.IPAddrPrefix)
	if !ok {
		return netip.Prefix{}, Path{}, errors.New("no unicast route")
	}
	prefix := nlri.Prefix.Masked()
	p := Path{Peer: u.PeerAddress, LocalPref: 100, External: u.PeerASN != local}
	if u.Withdrawal {
		return prefix, p, errWithdrawn
	}
	for _, attr := range u.Attrs {
		switch a := attr.(type) {
		case *bgp.PathAttributeNextHop:
			p.NextHop = a.Value.Unmap()
		case *bgp.PathAttributeMpReachNLRI:
			p.NextHop = a.Nexthop.Unmap()
			if !p.NextHop.IsValid() || p.NextHop.IsUnspecified() {
				p.NextHop = a.LinkLocalNexthop
			}
		case *bgp.PathAttributeAsPath:
			for _, segment := range a.Value {
				p.ASPath = append(p.ASPath, segment.GetAS()...)
				p.ASPathLength += segment.ASLen()
			}
		case *bgp.PathAttributeOrigin:
			p.Origin = a.Value
		case *bgp.PathAttributeMultiExitDisc:
			p.MED = a.Value
		case *bgp.PathAttributeLocalPref:
			p.LocalPref = a.Value
		case *bgp.PathAttributeCommunities:
			for _, c := range a.Value {
				// GoBGP knows it by the name it had before RFC 8326.
				if bgp.WellKnownCommunity(c) == bgp.COMMUNITY_PLANNED_SHUT {
					p.GracefulShutdown = true
				}
			}
		}
	}
	switch {
	case !p.NextHop.IsValid() || p.NextHop.IsUnspecified():
		return prefix, p, errors.New("no next hop")
	case p.NextHop.Is4() != prefix.Addr().Is4():
		return prefix, p, fmt.Errorf("next hop %v is of the other address family", p.NextHop)
	case p.NextHop.Is6() && p.NextHop.IsLinkLocalUnicast():
		link, err := linkTo(p.Peer)
		if err != nil {
			return prefix, p, fmt.Errorf("next hop %v: %w", p.NextHop, err)
		}
		p.NextHop = p.NextHop.WithZone(link)
	}
	return prefix, p, nil
}
