//go:build e2e

// These tests need FRR and BIRD on the host, as `make e2e` installs them.

package lab_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/testenv/clab"
	"github.com/herald-vip/herald/testenv/lab"
)

// pair is two FRR routers, each with a prefix for the other.
func pair(t *testing.T) *clab.Topology {
	t.Helper()
	dir := t.TempDir()
	write := func(name, text string) {
		do(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	write("daemons", "bgpd=yes\n")
	for i := 1; i <= 2; i++ {
		write(fmt.Sprintf("r%d.conf", i), fmt.Sprintf(`
router bgp 6450%d
 bgp router-id 10.0.0.%[1]d
 no bgp ebgp-requires-policy
 timers bgp 1 3
 neighbor 10.0.0.%[2]d remote-as 6450%[2]d
 neighbor 10.0.0.%[2]d timers connect 1
 address-family ipv4 unicast
  redistribute connected
`, i, 3-i))
	}
	topology, err := clab.Parse(filepath.Join(dir, "pair.clab.yml"), []byte(`
name: pair
topology:
  defaults: {kind: linux, image: frr}
  nodes:
    r1:
      exec: [ip addr add 10.0.0.1/24 dev eth1, ip addr add 10.99.1.1/32 dev lo]
      binds: [daemons:/etc/frr/daemons, r1.conf:/etc/frr/frr.conf]
    r2:
      exec: [ip addr add 10.0.0.2/24 dev eth1, ip addr add 10.99.2.1/32 dev lo]
      binds: [daemons:/etc/frr/daemons, r2.conf:/etc/frr/frr.conf]
  links:
  - endpoints: ["r1:eth1", "r2:eth1"]
`), os.LookupEnv)
	do(t, err)
	return topology
}

// learned reports whether the kernel of the node has a BGP route of FRR's to the prefix.
func learned(t *testing.T, n *lab.Node, prefix string) bool {
	t.Helper()
	return routed(t, n, prefix, unix.RTPROT_BGP)
}

// routed reports whether the kernel of the node has a route to the prefix from
// the routing daemon that goes by the protocol number.
func routed(t *testing.T, n *lab.Node, prefix string, protocol netlink.RouteProtocol) bool {
	t.Helper()
	h := must[*netlink.Handle](t)(n.Handle())
	defer h.Close()
	filter := &netlink.Route{Table: unix.RT_TABLE_MAIN, Protocol: protocol}
	routes := must[[]netlink.Route](t)(h.RouteListFiltered(netlink.FAMILY_V4, filter, netlink.RT_FILTER_TABLE|netlink.RT_FILTER_PROTOCOL))
	for _, r := range routes {
		if r.Dst.String() == prefix {
			return true
		}
	}
	return false
}

// TestFRRPair wants two routers to find each other after every fault.
func TestFRRPair(t *testing.T) {
	l := start(t, pair(t), lab.Options{Images: map[string]lab.Image{"frr": lab.FRR}})
	r1, r2 := l.Node("r1"), l.Node("r2")
	up := func() bool { return learned(t, r1, "10.99.2.1/32") && learned(t, r2, "10.99.1.1/32") }
	down := func() bool { return !learned(t, r1, "10.99.2.1/32") }
	eventually(t, "routes in both kernels", up)

	faults := []struct {
		name       string
		make, heal func() error
	}{
		{"bgpd frozen", r2.Daemon("bgpd").Freeze, r2.Daemon("bgpd").Thaw},
		{"router frozen", r2.Freeze, r2.Thaw},
		{"link cut", l.Link("r1", "r2").Cut, l.Link("r1", "r2").Heal},
		{"no carrier", l.Link("r1", "r2").Down, l.Link("r1", "r2").Heal},
		{"killed", r2.Kill, func() error { return r2.Boot(t.Context()) }},
		{"no power", r2.PowerOff, func() error { return r2.PowerOn(t.Context()) }},
	}
	for _, fault := range faults {
		t.Run(fault.name, func(t *testing.T) {
			do(t, fault.make())
			eventually(t, "route gone", down)
			do(t, fault.heal())
			eventually(t, "routes back in both kernels", up)
		})
	}
}

// TestFRRConfigError wants a bad configuration to fail the boot with FRR's own reason.
func TestFRRConfigError(t *testing.T) {
	topology := pair(t)
	n, _ := topology.Node("r1")
	do(t, os.WriteFile(n.Binds[1].Source, []byte("router bgp 64501\n neighbor nonsense\n"), 0o644))
	l := start(t, topology, lab.Options{Hold: true, Images: map[string]lab.Image{"frr": lab.FRR}})
	do(t, l.Node("r2").Boot(t.Context()))
	err := l.Node("r1").Boot(t.Context())
	if err == nil || !strings.Contains(err.Error(), "nonsense") {
		t.Errorf("boot: %v", err)
	}
}

// TestBGPRouters wants FRR to take the configuration of bgp.clab.yml whole.
func TestBGPRouters(t *testing.T) {
	all := images(t)
	all["quay.io/frrouting/frr"] = lab.FRR
	l := start(t, load(t, "bgp.clab.yml"), lab.Options{Hold: true, Images: all})
	for _, r := range []string{"r1", "r2"} {
		n := l.Node(r)
		do(t, n.Boot(t.Context()))
		var summary map[string]struct{ Peers map[string]any }
		do(t, json.Unmarshal([]byte(run(t, n, "vtysh -c 'show bgp summary json'")), &summary))
		if v4, v6 := len(summary["ipv4Unicast"].Peers), len(summary["ipv6Unicast"].Peers); v4 != 3 || v6 != 3 {
			t.Errorf("%s has %d IPv4 and %d IPv6 peers, want 3 and 3", r, v4, v6)
		}
	}
}

// TestBIRD wants BIRD to learn a route from FRR, and to do so again after it
// was killed.
func TestBIRD(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		do(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	write("daemons", "bgpd=yes\n")
	write("frr.conf", `
router bgp 64501
 no bgp ebgp-requires-policy
 neighbor 10.0.0.2 remote-as 64502
 neighbor 10.0.0.2 timers connect 1
 address-family ipv4 unicast
  redistribute connected
`)
	write("bird.conf", `
router id 10.0.0.2;
protocol device {}
protocol kernel { ipv4 { export all; }; }
protocol bgp frr {
  local as 64502;
  neighbor 10.0.0.1 as 64501;
  error wait time 1, 1;
  ipv4 { import where net = 10.99.1.1/32; export none; };
}
`)
	topology, err := clab.Parse(filepath.Join(dir, "pair.clab.yml"), []byte(`
name: pair
topology:
  defaults: {kind: linux}
  nodes:
    r1:
      image: frr
      exec: [ip addr add 10.0.0.1/24 dev eth1, ip addr add 10.99.1.1/32 dev lo]
      binds: [daemons:/etc/frr/daemons, frr.conf:/etc/frr/frr.conf]
    r2:
      image: bird
      exec: [ip addr add 10.0.0.2/24 dev eth1]
      binds: [bird.conf:/etc/bird/bird.conf]
  links:
  - endpoints: ["r1:eth1", "r2:eth1"]
`), os.LookupEnv)
	do(t, err)
	l := start(t, topology, lab.Options{Images: map[string]lab.Image{"frr": lab.FRR, "bird": lab.BIRD}})
	r2 := l.Node("r2")
	learns := func() bool { return routed(t, r2, "10.99.1.1/32", unix.RTPROT_BIRD) }
	eventually(t, "route in BIRD's kernel", learns)
	do(t, r2.Kill())
	run(t, r2, "ip route flush proto bird") // which a daemon that is killed leaves behind
	do(t, r2.Boot(t.Context()))
	run(t, r2, "birdc show protocols frr")
	eventually(t, "route in BIRD's kernel again", learns)
}
