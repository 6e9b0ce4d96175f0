// Package router is an upstream BGP router in one process, so that the demo runs
// without FRR: it learns host routes by GoBGP and installs them in the kernel as ECMP
// routes.
//
// It listens only and exports nothing. It uses all routes to a prefix, except that
// routes with GRACEFUL_SHUTDOWN (RFC 8326) are used only if there are no others. Run
// it once per network namespace; it leaves its kernel state when it ends.
package router

import (
	"context"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/apiutil"
	"github.com/osrg/gobgp/v4/pkg/packet/bgp"
	"github.com/osrg/gobgp/v4/pkg/server"

	"github.com/herald-vip/herald/testenv/step"
)

// Config holds the accepted peers and routes.
type Config struct {
	ASN uint32
	ID  netip.Addr
	// Peers are the networks from where speakers of PeerASN may connect.
	PeerASN uint32
	Peers   []netip.Prefix
	// VIPs are the networks of the accepted host routes.
	VIPs []netip.Prefix
}

// route is a route announced by one peer.
type route struct {
	nextHop netip.Addr
	leaving bool // GRACEFUL_SHUTDOWN
}

// rib holds the accepted routes by prefix and peer. Only GoBGP's watcher, a single
// goroutine, uses it.
type rib struct {
	log    *slog.Logger
	vips   []netip.Prefix
	routes map[netip.Prefix]map[netip.Addr]route
	used   map[netip.Prefix][]netip.Addr
	kernel nextHops
}

// Run routes until ctx ends.
func Run(ctx context.Context, log *slog.Logger, c Config) error {
	b := server.NewBgpServer(server.LoggerOption(slog.New(slog.DiscardHandler), new(slog.LevelVar)))
	served := make(chan struct{})
	go func() { defer close(served); b.Serve() }()
	defer func() { b.Stop(); <-served }()
	r := &rib{log: log, vips: c.VIPs, routes: make(map[netip.Prefix]map[netip.Addr]route), used: make(map[netip.Prefix][]netip.Addr), kernel: make(nextHops)}
	if err := step.Run(func() { r.start(ctx, b, c) }); err != nil {
		return err
	}
	log.Info("router is up", "asn", c.ASN, "id", c.ID)
	<-ctx.Done()
	return nil
}

// start starts BGP without exports, and lets peers connect.
func (r *rib) start(ctx context.Context, b *server.BgpServer, c Config) {
	global := &api.Global{Asn: c.ASN, RouterId: c.ID.String(), ListenPort: 179}
	step.Doing("start BGP", b.StartBgp(ctx, &api.StartBgpRequest{Global: global}))
	step.Doing("set the export policy", b.SetPolicyAssignment(ctx, &api.SetPolicyAssignmentRequest{Assignment: &api.PolicyAssignment{
		Name: "global", Direction: api.PolicyDirection_POLICY_DIRECTION_EXPORT, DefaultAction: api.RouteAction_ROUTE_ACTION_REJECT,
	}}))
	step.Doing("watch the peers", b.WatchEvent(ctx, server.WatchEventMessageCallbacks{
		OnPathUpdate: func(paths []*apiutil.Path, _ time.Time) {
			for _, p := range paths {
				r.update(p)
			}
		},
		OnPeerUpdate: func(e *apiutil.WatchEventMessage_PeerEvent, _ time.Time) {
			if e.Type == apiutil.PEER_EVENT_STATE {
				r.followSession(e.Peer.State.NeighborAddress, e.Peer.State.SessionState)
			}
		},
	}, server.WatchPostUpdate(false, "", ""), server.WatchPeer()))
	// GoBGP refuses a static peer for five seconds after its session has ended.
	group := &api.PeerGroup{
		Conf:      &api.PeerGroupConf{PeerGroupName: "speakers", PeerAsn: c.PeerASN},
		Timers:    &api.Timers{Config: &api.TimersConfig{HoldTime: 3, KeepaliveInterval: 1, IdleHoldTimeAfterReset: 1}},
		Transport: &api.Transport{PassiveMode: true},
		AfiSafis: []*api.AfiSafi{
			{Config: &api.AfiSafiConfig{Enabled: true, Family: &api.Family{Afi: api.Family_AFI_IP, Safi: api.Family_SAFI_UNICAST}}},
			{Config: &api.AfiSafiConfig{Enabled: true, Family: &api.Family{Afi: api.Family_AFI_IP6, Safi: api.Family_SAFI_UNICAST}}},
		},
	}
	step.Doing("accept peers", b.AddPeerGroup(ctx, &api.AddPeerGroupRequest{PeerGroup: group}))
	for _, p := range c.Peers {
		step.Doing("accept peers: "+p.String(), b.AddDynamicNeighbor(ctx, &api.AddDynamicNeighborRequest{
			DynamicNeighbor: &api.DynamicNeighbor{Prefix: p.String(), PeerGroup: "speakers"},
		}))
	}
}

// followSession drops a peer's routes when its session ends.
func (r *rib) followSession(peer netip.Addr, state bgp.FSMState) {
	r.log.Debug("session", "peer", peer, "state", state)
	if state == bgp.BGP_FSM_ESTABLISHED {
		return
	}
	for prefix, routes := range r.routes {
		delete(routes, peer)
		r.decide(prefix)
	}
}

// update applies a peer's announcement or withdrawal.
func (r *rib) update(p *apiutil.Path) {
	nlri, ok := p.Nlri.(*bgp.IPAddrPrefix)
	if !ok || !nlri.Prefix.IsSingleIP() || !slices.ContainsFunc(r.vips, func(v netip.Prefix) bool { return v.Contains(nlri.Prefix.Addr()) }) {
		return
	}
	if r.routes[nlri.Prefix] == nil {
		r.routes[nlri.Prefix] = make(map[netip.Addr]route)
	}
	delete(r.routes[nlri.Prefix], p.PeerAddress)
	if announced := readRoute(p.Attrs); !p.Withdrawal && announced.nextHop.IsValid() {
		r.routes[nlri.Prefix][p.PeerAddress] = announced
	}
	r.decide(nlri.Prefix)
}

func readRoute(attrs []bgp.PathAttributeInterface) (r route) {
	for _, attr := range attrs {
		switch a := attr.(type) {
		case *bgp.PathAttributeNextHop:
			r.nextHop = a.Value.Unmap()
		case *bgp.PathAttributeMpReachNLRI:
			r.nextHop = a.Nexthop.Unmap()
		case *bgp.PathAttributeCommunities:
			// GoBGP uses the name that GRACEFUL_SHUTDOWN had before RFC 8326.
			r.leaving = slices.Contains(a.Value, uint32(bgp.COMMUNITY_PLANNED_SHUT))
		}
	}
	return r
}

// decide sets the kernel's route to prefix if its next hops change.
func (r *rib) decide(prefix netip.Prefix) {
	var stay, leave []netip.Addr
	for a := range maps.Values(r.routes[prefix]) {
		if a.leaving {
			leave = append(leave, a.nextHop)
		} else {
			stay = append(stay, a.nextHop)
		}
	}
	if len(stay) == 0 {
		stay = leave
	}
	slices.SortFunc(stay, netip.Addr.Compare)
	if stay = slices.Compact(stay); slices.Equal(stay, r.used[prefix]) {
		return
	}
	r.log.Info("route changes", "prefix", prefix, "nextHops", stay)
	if err := r.kernel.set(prefix, stay); err != nil {
		r.log.Error("route cannot be set", "prefix", prefix, "err", err)
		return
	}
	r.used[prefix] = stay
}
