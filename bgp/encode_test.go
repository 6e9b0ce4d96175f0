package bgp

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"github.com/herald-vip/herald/api/v1alpha1"
)

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

func number(n uint32) *uint32 { return &n }

func TestEncodePeerSetsEveryTimer(t *testing.T) {
	c := Config{ASN: 64512, ConnectRetry: 2 * time.Second}
	got := encodePeer(c, v1alpha1.Peer{ASN: 64500, Port: 179, HoldTime: metav1.Duration{Duration: 9 * time.Second}, Families: []v1alpha1.Family{v1alpha1.IPv4, v1alpha1.IPv6}}, addr("10.0.1.254"))
	timers := got.GetTimers().GetConfig()
	if timers.GetConnectRetry() != 2 || timers.GetHoldTime() != 9 || timers.GetKeepaliveInterval() != 3 || timers.GetIdleHoldTimeAfterReset() != 1 {
		t.Errorf("timers: %v", timers)
	}
	slow := encodePeer(c, v1alpha1.Peer{ConnectRetry: &metav1.Duration{Duration: time.Minute}}, addr("10.0.1.254"))
	if retry := slow.GetTimers().GetConfig().GetConnectRetry(); retry != 60 {
		t.Errorf("the peer's own connectRetry is %d, want 60", retry)
	}
	if n := len(got.GetAfiSafis()); n != 2 {
		t.Errorf("%d families, want both", n)
	}
	if got.GetEbgpMultihop() != nil || got.GetTtlSecurity() != nil || got.GetGracefulRestart() != nil {
		t.Error("multihop, GTSM or graceful restart is on by default")
	}
}

// A session ends only for a setting that it uses: an established one uses no ConnectRetry.
func TestSameSession(t *testing.T) {
	encode := func(p v1alpha1.Peer) *api.Peer { return encodePeer(Config{ASN: 64512}, p, addr("10.0.1.254")) }
	slow, secret := v1alpha1.Peer{ConnectRetry: &metav1.Duration{Duration: time.Minute}}, v1alpha1.Peer{Password: "secret"}
	for _, established := range []bool{true, false} {
		if got := sameSession(encode(v1alpha1.Peer{}), encode(slow), established); got != established {
			t.Errorf("established %v: the session stays with another connectRetry: %v, want %v", established, got, established)
		}
		if sameSession(encode(v1alpha1.Peer{}), encode(secret), established) {
			t.Errorf("established %v: the session stays with another password", established)
		}
	}
}

func TestEncodePeerTTL(t *testing.T) {
	tests := []struct {
		name           string
		peer           v1alpha1.Peer
		multihop, gtsm uint32
	}{
		{name: "multihop", peer: v1alpha1.Peer{Multihop: 4}, multihop: 4},
		{name: "GTSM on the link", peer: v1alpha1.Peer{TTLSecurity: 1}, gtsm: 255},
		{name: "GTSM three hops away", peer: v1alpha1.Peer{TTLSecurity: 3}, gtsm: 253},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := encodePeer(Config{}, tt.peer, addr("10.0.1.254"))
			if m, g := got.GetEbgpMultihop().GetMultihopTtl(), got.GetTtlSecurity().GetTtlMin(); m != tt.multihop || g != tt.gtsm {
				t.Errorf("multihop TTL %d, least TTL %d; want %d, %d", m, g, tt.multihop, tt.gtsm)
			}
		})
	}
}

func TestEncodePath(t *testing.T) {
	route := Route{
		Prefix: netip.MustParsePrefix("10.99.0.10/32"),
		Attributes: v1alpha1.Attributes{
			Communities:      []v1alpha1.Community{64512<<16 | 100},
			LargeCommunities: []v1alpha1.LargeCommunity{{Global: 64512, Local1: 1, Local2: 2}},
			MED:              number(50), LocalPref: number(200), Prepend: 2,
		},
	}
	attrs := func(r Route) map[bgp.BGPAttrType]string {
		path, err := encodePath(64512, r, nil)
		if err != nil {
			t.Fatal(err)
		}
		out := make(map[bgp.BGPAttrType]string)
		for _, a := range path.Attrs {
			out[a.GetType()] = a.String()
		}
		return out
	}
	want := map[bgp.BGPAttrType]string{
		bgp.BGP_ATTR_TYPE_ORIGIN:          "{Origin: i}",
		bgp.BGP_ATTR_TYPE_NEXT_HOP:        "{Nexthop: 0.0.0.0}",
		bgp.BGP_ATTR_TYPE_AS_PATH:         "{AsPath: 64512 64512}",
		bgp.BGP_ATTR_TYPE_MULTI_EXIT_DISC: "{Med: 50}",
		bgp.BGP_ATTR_TYPE_LOCAL_PREF:      "{LocalPref: 200}",
		bgp.BGP_ATTR_TYPE_COMMUNITIES:     "{Communities: 64512:100}",
		bgp.BGP_ATTR_TYPE_LARGE_COMMUNITY: "{LargeCommunity: [ 64512:1:2]}",
	}
	if diff := cmp.Diff(want, attrs(route)); diff != "" {
		t.Errorf("attributes (-want +got):\n%s", diff)
	}
	route.Draining = true
	want[bgp.BGP_ATTR_TYPE_COMMUNITIES] = "{Communities: 64512:100, planned-shut}"
	if diff := cmp.Diff(want, attrs(route)); diff != "" {
		t.Errorf("attributes while draining (-want +got):\n%s", diff)
	}
}

func TestMergeAddsListsAndReplacesNumbers(t *testing.T) {
	base := v1alpha1.Attributes{Communities: []v1alpha1.Community{2, 1}, MED: number(10), LocalPref: number(1), Prepend: 1}
	over := v1alpha1.Attributes{Communities: []v1alpha1.Community{3, 1}, MED: number(0), Prepend: 3}
	want := v1alpha1.Attributes{Communities: []v1alpha1.Community{1, 2, 3}, MED: number(0), LocalPref: number(1), Prepend: 4}
	if diff := cmp.Diff(want, base.Merge(over)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if len(base.Communities) != 2 || base.Communities[0] != 2 {
		t.Errorf("the base was changed: %v", base.Communities)
	}
}

// The statement that makes a draining route the worst must come after the attributes: otherwise a peer's own MED
// would override it.
func TestEncodePoliciesPutsDrainingLast(t *testing.T) {
	peers := []receiver{
		{Peer: v1alpha1.Peer{Address: addr("10.0.1.254"), Attributes: v1alpha1.Attributes{MED: number(5)}}, addr: addr("10.0.1.254")},
		{Peer: v1alpha1.Peer{Interface: "eth1"}, addr: addr("fe80::1%eth1"), hold4: true},
		{Peer: v1alpha1.Peer{Address: addr("10.0.2.254"), NextHop6: addr("fd00::1")}, addr: addr("10.0.2.254")},
	}
	got := encodePolicies(64512, peers)
	export := got.GetPolicies()[1]
	var names []string
	for _, s := range export.GetStatements() {
		names = append(names, s.GetName())
	}
	want := []string{
		"peer-10.0.1.254-others", "peer-10.0.1.254-attributes", "peer-10.0.1.254-draining",
		"peer-eth1-others", "peer-eth1-hold4", "peer-eth1-attributes", "peer-eth1-draining",
		"peer-10.0.2.254-others", "peer-10.0.2.254-hop6", "peer-10.0.2.254-attributes", "peer-10.0.2.254-draining",
		"draining", "marks",
	}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("statements (-want +got):\n%s", diff)
	}
	for _, set := range got.GetDefinedSets() {
		if set.GetName() == "peer-eth1" && set.GetList()[0] != "fe80::1/128" {
			t.Errorf("neighbour set of an unnumbered peer: %v", set.GetList())
		}
	}
	own := got.GetPolicies()[0].GetStatements()
	if len(own) != 1 || own[0].GetConditions().GetRouteType() != api.Conditions_ROUTE_TYPE_LOCAL {
		t.Errorf("import accepts more than own routes: %v", own)
	}
	for _, a := range encodeAssignments() {
		if a.GetDirection() == api.PolicyDirection_POLICY_DIRECTION_IMPORT && a.GetDefaultAction() != api.RouteAction_ROUTE_ACTION_REJECT {
			t.Error("import does not reject by default")
		}
	}
}
