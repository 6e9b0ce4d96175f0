package bgp_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/apiutil"
	packet "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/bgp"
	"github.com/herald-vip/herald/testenv/wait"
)

// attributes returns the attributes of the router's path to p as text; empty without a path.
func (r *router) attributes(t *testing.T, p netip.Prefix) string {
	t.Helper()
	var out []string
	must(t, r.server.ListPath(apiutil.ListPathRequest{TableType: api.TableType_TABLE_TYPE_GLOBAL, Family: packet.RF_IPv4_UC},
		func(prefix packet.NLRI, paths []*apiutil.Path) {
			if prefix.String() != p.String() {
				return
			}
			for _, path := range paths {
				for _, a := range path.Attrs {
					out = append(out, fmt.Sprint(a))
				}
			}
		}))
	return strings.Join(out, " ")
}

// A route goes only to its peers. When it moves from one peer to another, the old peer first gets it as draining. No peer
// ever sees a mark.
func TestRouteIsForItsPeers(t *testing.T) {
	const gracefulShutdown = "planned-shut"
	first, two, three := startRouter(t, "127.0.0.2", 64500, 64512), startRouter(t, "127.0.0.3", 64500, 64512), startRouter(t, "127.0.0.4", 64500, 64512)
	s := newServer(t)
	must(t, s.Apply(t.Context(), config(first.peer(64500), two.peer(64500))))
	large := v1alpha1.Attributes{LargeCommunities: []v1alpha1.LargeCommunity{{Global: 64512, Local1: 1, Local2: 2}}}
	must(t, s.Announce(
		bgp.Route{Prefix: prefix(1), Attributes: large, Peers: []string{"127.0.0.2"}},
		bgp.Route{Prefix: prefix(2), Attributes: large},
		bgp.Route{Prefix: prefix(3), Peers: []string{}},
	))
	wait.Until(t, "each has its routes", func() bool {
		a, _ := first.history()
		b, _ := two.history()
		slices.Sort(a)
		return slices.Equal(a, []string{"+10.99.0.1/32", "+10.99.0.2/32"}) && slices.Equal(b, []string{"+10.99.0.2/32"})
	})

	must(t, s.Announce(bgp.Route{Prefix: prefix(1), Attributes: large, Peers: []string{"127.0.0.3"}, DrainingPeers: []string{"127.0.0.2"}}))
	wait.Until(t, "the new peer has the route and the old peer has it as draining", func() bool {
		return two.attributes(t, prefix(1)) != "" && strings.Contains(first.attributes(t, prefix(1)), gracefulShutdown)
	})
	if got := first.attributes(t, prefix(1)); !strings.Contains(got, "Med: 4294967295") {
		t.Errorf("the draining route does not have the worst MED: %s", got)
	}
	if got := two.attributes(t, prefix(1)); strings.Contains(got, gracefulShutdown) || strings.Contains(got, "Med") {
		t.Errorf("the new peer's route is marked as draining: %s", got)
	}

	must(t, s.Announce(bgp.Route{Prefix: prefix(1), Attributes: large, Peers: []string{"127.0.0.3"}}))
	wait.Until(t, "the old peer has lost it", func() bool { return first.attributes(t, prefix(1)) == "" })

	// A peer that is added later gets the routes for all peers, and its own routes.
	must(t, s.Apply(t.Context(), config(first.peer(64500), two.peer(64500), three.peer(64500))))
	must(t, s.Announce(bgp.Route{Prefix: prefix(4), Peers: []string{"127.0.0.4"}}))
	wait.Until(t, "the third has its routes", func() bool {
		return three.attributes(t, prefix(4)) != "" && three.attributes(t, prefix(2)) != ""
	})
	if three.attributes(t, prefix(1)) != "" || two.attributes(t, prefix(4)) != "" {
		t.Error("a peer has a route that is not for it")
	}
	for _, r := range []*router{first, two, three} {
		for i := range 5 {
			if got := r.attributes(t, prefix(i)); strings.Contains(got, "4294967295:") {
				t.Errorf("%s sees a mark: %s", r.addr, got)
			}
		}
	}
	if got := two.attributes(t, prefix(1)); !strings.Contains(got, "64512:1:2") {
		t.Errorf("the route lost its own large community: %s", got)
	}
}

func TestRouteForAPeerThatDoesNotExist(t *testing.T) {
	s := newServer(t)
	must(t, s.Apply(t.Context(), config()))
	if err := s.Announce(bgp.Route{Prefix: prefix(1), Peers: []string{"10.0.0.9"}}); err == nil || !strings.Contains(err.Error(), "no peer 10.0.0.9") {
		t.Errorf("got %v", err)
	}
}
