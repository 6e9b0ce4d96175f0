package bgp

import (
	"fmt"
	"math"
	"net/netip"
	"slices"

	"github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/apiutil"
	"github.com/osrg/gobgp/v4/pkg/config/oc"
	"github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"github.com/herald-vip/herald/api/v1alpha1"
)

// This file translates Herald's types into GoBGP's. Its functions are pure.

const (
	importPolicy = "herald-import"
	exportPolicy = "herald-export"
)

// The metrics of a draining route are the worst possible. GoBGP treats a local preference of 0 as unset.
const (
	drainMED       = math.MaxUint32
	drainLocalPref = 1
)

// encodeGlobal returns the server-wide configuration.
func encodeGlobal(c Config) *api.Global {
	g := &api.Global{
		Asn:        c.ASN,
		RouterId:   c.RouterID.String(),
		ListenPort: -1,
		// The families that Herald announces. By default GoBGP makes tables for all families
		// that it knows, two of 2,048 maps each, which take 7 MB even when empty.
		Families: []uint32{uint32(oc.AFI_SAFI_TYPE_IPV4_UNICAST.ToInt()), uint32(oc.AFI_SAFI_TYPE_IPV6_UNICAST.ToInt())},
	}
	if c.ListenPort != 0 {
		g.ListenPort = int32(c.ListenPort)
		for _, a := range c.ListenAddresses {
			g.ListenAddresses = append(g.ListenAddresses, a.String())
		}
	}
	return g
}

// encodePeer returns one peer at addr, which for an unnumbered peer is the link-local address from its router
// advertisements. It sets all timers: GoBGP's defaults are for the edge of the Internet, not for failover.
func encodePeer(c Config, p v1alpha1.Peer, addr netip.Addr) *api.Peer {
	hold, retry := uint64(p.HoldTime.Seconds()), c.ConnectRetry
	if p.ConnectRetry != nil {
		retry = p.ConnectRetry.Duration
	}
	asn := uint32(p.ASN)
	if p.ASN == v1alpha1.External {
		asn = 0 // GoBGP accepts any
	}
	out := &api.Peer{
		Conf: &api.PeerConf{
			NeighborAddress: addr.String(),
			PeerAsn:         asn,
			LocalAsn:        ownASN(p, c.ASN),
			AuthPassword:    p.Password,
		},
		Timers: &api.Timers{Config: &api.TimersConfig{
			ConnectRetry:           uint64(retry.Seconds()),
			HoldTime:               hold,
			KeepaliveInterval:      max(hold/3, 1),
			IdleHoldTimeAfterReset: 1,
		}},
		Transport: &api.Transport{RemotePort: uint32(p.Port)},
	}
	if p.LocalAddress.IsValid() {
		out.Transport.LocalAddress = p.LocalAddress.String()
	}
	if p.Multihop > 0 {
		out.EbgpMultihop = &api.EbgpMultihop{Enabled: true, MultihopTtl: uint32(p.Multihop)}
	}
	if p.TTLSecurity > 0 {
		out.TtlSecurity = &api.TtlSecurity{Enabled: true, TtlMin: uint32(leastTTL(p))}
	}
	if p.Carries(v1alpha1.IPv4) {
		out.AfiSafis = append(out.AfiSafis, afiSafi(api.Family_AFI_IP))
	}
	if p.Carries(v1alpha1.IPv6) {
		out.AfiSafis = append(out.AfiSafis, afiSafi(api.Family_AFI_IP6))
	}
	return out
}

func afiSafi(afi api.Family_Afi) *api.AfiSafi {
	return &api.AfiSafi{Config: &api.AfiSafiConfig{Family: unicast(afi), Enabled: true}}
}

func unicast(afi api.Family_Afi) *api.Family {
	return &api.Family{Afi: afi, Safi: api.Family_SAFI_UNICAST}
}

// encodePath returns a route, with its marks, as a locally originated path. Its next hop stays
// unspecified: each session sets its own.
func encodePath(asn uint32, r Route, marks []v1alpha1.LargeCommunity) (*apiutil.Path, error) {
	nlri, err := bgp.NewIPAddrPrefix(r.Prefix)
	if err != nil {
		return nil, fmt.Errorf("prefix %s: %w", r.Prefix, err)
	}
	family := bgp.RF_IPv4_UC
	var hop bgp.PathAttributeInterface
	if r.Prefix.Addr().Is6() {
		family = bgp.RF_IPv6_UC
		hop, err = bgp.NewPathAttributeMpReachNLRI(family, []bgp.PathNLRI{{NLRI: nlri}}, netip.IPv6Unspecified())
	} else {
		hop, err = bgp.NewPathAttributeNextHop(netip.IPv4Unspecified())
	}
	if err != nil {
		return nil, fmt.Errorf("next hop of %s: %w", r.Prefix, err)
	}
	attrs := []bgp.PathAttributeInterface{bgp.NewPathAttributeOrigin(bgp.BGP_ORIGIN_ATTR_TYPE_IGP), hop}
	a := r.Attributes
	if r.Draining {
		a = a.Merge(v1alpha1.Attributes{Communities: []v1alpha1.Community{v1alpha1.GracefulShutdown}})
	}
	if a.MED != nil {
		attrs = append(attrs, bgp.NewPathAttributeMultiExitDisc(*a.MED))
	}
	if a.LocalPref != nil {
		attrs = append(attrs, bgp.NewPathAttributeLocalPref(*a.LocalPref))
	}
	if a.Prepend > 0 {
		attrs = append(attrs, bgp.NewPathAttributeAsPath([]bgp.AsPathParamInterface{
			bgp.NewAs4PathParam(bgp.BGP_ASPATH_ATTR_TYPE_SEQ, slices.Repeat([]uint32{asn}, a.Prepend)),
		}))
	}
	if len(a.Communities) > 0 {
		v := make([]uint32, len(a.Communities))
		for i, c := range a.Communities {
			v[i] = uint32(c)
		}
		attrs = append(attrs, bgp.NewPathAttributeCommunities(v))
	}
	if large := slices.Concat(a.LargeCommunities, marks); len(large) > 0 {
		v := make([]*bgp.LargeCommunity, len(large))
		for i, l := range large {
			v[i] = &bgp.LargeCommunity{ASN: l.Global, LocalData1: l.Local1, LocalData2: l.Local2}
		}
		attrs = append(attrs, bgp.NewPathAttributeLargeCommunities(v))
	}
	return &apiutil.Path{Family: family, Nlri: nlri, Attrs: attrs}, nil
}

// receiver is a peer in the export policy, with the next hops of its session.
type receiver struct {
	v1alpha1.Peer
	// number identifies the peer in marks.
	number uint32
	// addr is the configured or discovered address of the peer.
	addr netip.Addr
	// hold4 and hold6 hold back the routes of a family: the session has no next hop for them that the peer could use.
	hold4, hold6 bool
}

// encodeAssignments assigns the policies. The import policy accepts only routes that this node
// originates, which GoBGP also passes through it.
func encodeAssignments() []*api.PolicyAssignment {
	return []*api.PolicyAssignment{{
		Name:          "global",
		Direction:     api.PolicyDirection_POLICY_DIRECTION_IMPORT,
		Policies:      []*api.Policy{{Name: importPolicy}},
		DefaultAction: api.RouteAction_ROUTE_ACTION_REJECT,
	}, {
		Name:          "global",
		Direction:     api.PolicyDirection_POLICY_DIRECTION_EXPORT,
		Policies:      []*api.Policy{{Name: exportPolicy}},
		DefaultAction: api.RouteAction_ROUTE_ACTION_ACCEPT,
	}}
}

// encodePolicies returns the import policy, which accepts own routes, and the export policy. The export policy
// selects the routes of each peer, sets their next hops and adds the peer's attributes. Then one statement
// makes draining routes the worst, even if the peer has a MED, and the last one removes the marks.
func encodePolicies(asn uint32, peers []receiver) *api.SetPoliciesRequest {
	req := &api.SetPoliciesRequest{Policies: []*api.Policy{{
		Name: importPolicy,
		Statements: []*api.Statement{{
			Name:       "own",
			Conditions: &api.Conditions{RouteType: api.Conditions_ROUTE_TYPE_LOCAL},
			Actions:    &api.Actions{RouteAction: api.RouteAction_ROUTE_ACTION_ACCEPT},
		}},
	}}}
	policy := &api.Policy{Name: exportPolicy}
	for _, n := range peers {
		set := "peer-" + n.Name()
		req.DefinedSets = append(req.DefinedSets, &api.DefinedSet{
			DefinedType: api.DefinedType_DEFINED_TYPE_NEIGHBOR,
			Name:        set,
			List:        []string{netip.PrefixFrom(n.addr.WithZone(""), n.addr.BitLen()).String()},
		})
		add := func(name string, actions *api.Actions, families ...*api.Family) *api.Conditions {
			conditions := &api.Conditions{
				NeighborSet: &api.MatchSet{Type: api.MatchSet_TYPE_ANY, Name: set},
				AfiSafiIn:   families,
			}
			policy.Statements = append(policy.Statements, &api.Statement{
				Name: set + "-" + name, Conditions: conditions, Actions: actions,
			})
			return conditions
		}
		marked := func(name string, match api.MatchSet_Type, marks ...v1alpha1.LargeCommunity) *api.MatchSet {
			req.DefinedSets = append(req.DefinedSets, &api.DefinedSet{
				DefinedType: api.DefinedType_DEFINED_TYPE_LARGE_COMMUNITY,
				Name:        set + "-" + name,
				List:        texts(marks, v1alpha1.LargeCommunity.String),
			})
			return &api.MatchSet{Type: match, Name: set + "-" + name}
		}
		reject := &api.Actions{RouteAction: api.RouteAction_ROUTE_ACTION_REJECT}
		add("others", reject).LargeCommunitySet = marked("own", api.MatchSet_TYPE_INVERT, mark(markFor, everyPeer), mark(markFor, n.number))
		for _, f := range []struct {
			name string
			afi  api.Family_Afi
			hold bool
			hop  netip.Addr
		}{{"4", api.Family_AFI_IP, n.hold4, n.NextHop4}, {"6", api.Family_AFI_IP6, n.hold6, n.NextHop6}} {
			switch {
			case f.hold:
				add("hold"+f.name, reject, unicast(f.afi))
			case f.hop.IsValid():
				add("hop"+f.name, &api.Actions{Nexthop: &api.NexthopAction{Address: f.hop.String()}}, unicast(f.afi))
			}
		}
		add("attributes", encodeActions(ownASN(n.Peer, asn), n.Attributes))
		add("draining", encodeActions(ownASN(n.Peer, asn), v1alpha1.Attributes{Communities: []v1alpha1.Community{v1alpha1.GracefulShutdown}})).
			LargeCommunitySet = marked("draining", api.MatchSet_TYPE_ANY, mark(markDraining, n.number))
	}

	const draining = "draining"
	req.DefinedSets = append(req.DefinedSets, &api.DefinedSet{
		DefinedType: api.DefinedType_DEFINED_TYPE_COMMUNITY,
		Name:        draining,
		List:        []string{v1alpha1.GracefulShutdown.Numbers()},
	})
	policy.Statements = append(policy.Statements, &api.Statement{
		Name:       draining,
		Conditions: &api.Conditions{CommunitySet: &api.MatchSet{Type: api.MatchSet_TYPE_ANY, Name: draining}},
		Actions: &api.Actions{
			Med:       &api.MedAction{Type: api.MedAction_TYPE_REPLACE, Value: drainMED},
			LocalPref: &api.LocalPrefAction{Value: drainLocalPref},
		},
	}, &api.Statement{
		Name: "marks",
		Actions: &api.Actions{LargeCommunity: &api.CommunityAction{
			Type: api.CommunityAction_TYPE_REMOVE, Communities: []string{anyMark},
		}},
	})
	req.Policies = append(req.Policies, policy)
	return req
}

func encodeActions(asn uint32, a v1alpha1.Attributes) *api.Actions {
	out := &api.Actions{}
	if len(a.Communities) > 0 {
		out.Community = &api.CommunityAction{Type: api.CommunityAction_TYPE_ADD, Communities: texts(a.Communities, v1alpha1.Community.Numbers)}
	}
	if len(a.LargeCommunities) > 0 {
		out.LargeCommunity = &api.CommunityAction{Type: api.CommunityAction_TYPE_ADD, Communities: texts(a.LargeCommunities, v1alpha1.LargeCommunity.String)}
	}
	if a.MED != nil {
		out.Med = &api.MedAction{Type: api.MedAction_TYPE_REPLACE, Value: int64(*a.MED)}
	}
	if a.LocalPref != nil {
		out.LocalPref = &api.LocalPrefAction{Value: *a.LocalPref}
	}
	if a.Prepend > 0 {
		out.AsPrepend = &api.AsPrependAction{Asn: asn, Repeat: uint32(a.Prepend)}
	}
	return out
}

func texts[T any](in []T, text func(T) string) []string {
	out := make([]string, len(in))
	for i, v := range in {
		out[i] = text(v)
	}
	return out
}
