package router_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/apiutil"
	"github.com/osrg/gobgp/v4/pkg/packet/bgp"
	"github.com/osrg/gobgp/v4/pkg/server"

	"github.com/herald-vip/herald/testenv/clab"
	"github.com/herald-vip/herald/testenv/lab"
	"github.com/herald-vip/herald/testenv/must"
	"github.com/herald-vip/herald/testenv/router"
	"github.com/herald-vip/herald/testenv/routes"
)

// TestMain lets the test run this binary as a router or a speaker in a node of the lab.
func TestMain(m *testing.M) {
	var err error
	switch role := os.Args[1]; role {
	case "router":
		err = router.Run(context.Background(), slog.New(slog.NewTextHandler(os.Stderr, nil)), router.Config{
			ASN: 64500, ID: netip.MustParseAddr("10.9.0.254"), PeerASN: 64512,
			Peers: []netip.Prefix{netip.MustParsePrefix("10.9.0.0/16")},
			VIPs:  []netip.Prefix{netip.MustParsePrefix("10.99.0.0/24"), netip.MustParsePrefix("fd00:99::/64")},
		})
	case "speaker":
		err = speak(os.Args[2], len(os.Args) > 3)
	default:
		os.Exit(m.Run())
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// speak announces routes from host number n, with GRACEFUL_SHUTDOWN if it is leaving.
func speak(n string, leaving bool) error {
	ctx := context.Background()
	s := server.NewBgpServer()
	go s.Serve()
	if err := s.StartBgp(ctx, &api.StartBgpRequest{Global: &api.Global{Asn: 64512, RouterId: "10.9.9." + n, ListenPort: -1}}); err != nil {
		return err
	}
	// The routes that the router must refuse come first.
	for _, r := range [][2]string{{"10.98.0.1/32", "10.9.%s.1"}, {"10.99.0.0/28", "10.9.%s.1"}, {"10.99.0.10/32", "10.9.%s.1"}, {"fd00:99::10/128", "fd09:%s::1"}} {
		nlri, err := bgp.NewIPAddrPrefix(netip.MustParsePrefix(r[0]))
		if err != nil {
			return err
		}
		family, hop := bgp.RF_IPv4_UC, netip.MustParseAddr(fmt.Sprintf(r[1], n))
		var reach bgp.PathAttributeInterface
		if reach, err = bgp.NewPathAttributeNextHop(hop); hop.Is6() {
			family = bgp.RF_IPv6_UC
			reach, err = bgp.NewPathAttributeMpReachNLRI(family, []bgp.PathNLRI{{NLRI: nlri}}, hop)
		}
		if err != nil {
			return err
		}
		attrs := []bgp.PathAttributeInterface{bgp.NewPathAttributeOrigin(0), reach}
		if leaving {
			attrs = append(attrs, bgp.NewPathAttributeCommunities([]uint32{0xffff0000}))
		}
		if _, err := s.AddPath(apiutil.AddPathRequest{Paths: []*apiutil.Path{{Family: family, Nlri: nlri, Attrs: attrs}}}); err != nil {
			return err
		}
	}
	if err := s.AddPeer(ctx, &api.AddPeerRequest{Peer: &api.Peer{
		Conf:   &api.PeerConf{NeighborAddress: fmt.Sprintf("10.9.%s.254", n), PeerAsn: 64500},
		Timers: &api.Timers{Config: &api.TimersConfig{HoldTime: 90, KeepaliveInterval: 30, ConnectRetry: 1, IdleHoldTimeAfterReset: 1}},
		AfiSafis: []*api.AfiSafi{
			{Config: &api.AfiSafiConfig{Enabled: true, Family: &api.Family{Afi: api.Family_AFI_IP, Safi: api.Family_SAFI_UNICAST}}},
			{Config: &api.AfiSafiConfig{Enabled: true, Family: &api.Family{Afi: api.Family_AFI_IP6, Safi: api.Family_SAFI_UNICAST}}},
		},
	}}); err != nil {
		return err
	}
	select {}
}

const topology = `
name: router
topology:
  defaults: {kind: linux, image: self}
  nodes:
    r:
      cmd: router
      exec:
      - ip addr add 10.9.1.254/24 dev eth1
      - ip addr add fd09:1::254/64 dev eth1
      - ip addr add 10.9.2.254/24 dev eth2
      - ip addr add fd09:2::254/64 dev eth2
    a:
      cmd: speaker 1
      exec: [ip addr add 10.9.1.1/24 dev eth1, "ip addr add fd09:1::1/64 dev eth1"]
    b:
      cmd: speaker 2
      exec: [ip addr add 10.9.2.1/24 dev eth1, "ip addr add fd09:2::1/64 dev eth1"]
    b-leaving: {network-mode: "container:b", cmd: speaker 2 leaving}
  links:
  - endpoints: ["a:eth1", "r:eth1"]
  - endpoints: ["b:eth1", "r:eth2"]
`

// TestRouter checks the routes of two speakers in the kernel, spread by resilient
// groups, while speakers come, die, and announce that they leave. Routes outside the
// VIPs must not appear.
func TestRouter(t *testing.T) {
	parsed := must.Get[*clab.Topology](t)(clab.Parse(filepath.Join(t.TempDir(), "r.clab.yml"), []byte(topology), os.LookupEnv))
	self := must.Get[string](t)(os.Executable())
	l := must.Get[*lab.Lab](t)(lab.Start(t.Context(), slog.New(slog.DiscardHandler), parsed, lab.Options{Hold: true, Images: map[string]lab.Image{"self": lab.Binary(self)}}))
	t.Cleanup(func() { must.Do(t, l.Close()) })
	boot := func(names ...string) {
		t.Helper()
		for _, name := range names {
			must.Do(t, l.Node(name).Boot(t.Context()))
		}
	}
	w, err := routes.Follow(l.Node("r"), netip.Prefix{}, func(c routes.Change) {
		if p := c.Prefix.String(); p == "10.98.0.1/32" || p == "10.99.0.0/28" {
			t.Errorf("the router accepted the route to %s", p)
		}
	})
	must.Do(t, err)
	t.Cleanup(func() { must.Do(t, w.Close()) })
	eventually := func(hosts ...string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		for prefix, hop := range map[string]string{"10.99.0.10/32": "10.9.%s.1", "fd00:99::10/128": "fd09:%s::1"} {
			var want, got []netip.Addr
			for _, n := range hosts {
				want = append(want, netip.MustParseAddr(fmt.Sprintf(hop, n)))
			}
			if err := w.Await(ctx, func(v routes.View) bool {
				got = v.Hops(netip.MustParsePrefix(prefix))
				return slices.Equal(got, want)
			}); err != nil {
				t.Fatalf("%s has the next hops %v, want %v: %v", prefix, got, want, err)
			}
		}
	}

	boot("r", "a", "b")
	eventually("1", "2")
	groups, err := l.Node("r").Run(t.Context(), "ip", "nexthop", "show")
	must.Do(t, err)
	if n := strings.Count(groups, "type resilient"); n != 2 {
		t.Errorf("%d resilient groups, want one per prefix:\n%s", n, groups)
	}
	must.Do(t, l.Node("b").Kill())
	eventually("1")
	boot("b-leaving")
	must.Do(t, l.Node("a").Kill())
	eventually("2")
	boot("a")
	eventually("1")
	must.Do(t, l.Node("a").Kill())
	must.Do(t, l.Node("b-leaving").Kill())
	eventually()
}
