package services

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"

	"github.com/herald-vip/herald/testenv/clab"
	"github.com/herald-vip/herald/testenv/lab"
)

// topology is what the machines are and what each of them runs. A node of the
// topology has an image of its own, which is called as itself.
func (l *Lab) topology() (*clab.Topology, map[string]lab.Image) {
	t := &clab.Topology{Name: "services", Nodes: []clab.Node{{Name: Segment, Kind: clab.Bridge}}}
	images := make(map[string]lab.Image)
	machine := func(name string, image lab.Image, exec ...string) {
		n := clab.Node{Name: name, Kind: clab.Linux, Image: name, Hostname: name}
		for _, line := range exec {
			n.Exec = append(n.Exec, strings.Fields(line))
		}
		t.Nodes, images[name] = append(t.Nodes, n), image
	}
	program := func(base, name string, image lab.Image, binds ...clab.Bind) {
		name = base + "-" + name
		t.Nodes = append(t.Nodes, clab.Node{Name: name, Kind: clab.Linux, Image: name, Hostname: base, Base: base, Binds: binds})
		images[name] = image
	}
	wire := func(a, aInterface, b, bInterface string) {
		t.Links = append(t.Links, clab.Link{
			A:   clab.Endpoint{Node: a, Interface: aInterface},
			B:   clab.Endpoint{Node: b, Interface: bInterface},
			MTU: 1500,
		})
	}
	plug := func(name string) { wire(name, "eth1", Segment, name) }

	machine("r1", l.router, segmentAddresses(254)...)
	last := &t.Nodes[len(t.Nodes)-1]
	last.Sysctls = map[string]string{"net.ipv4.ip_forward": "1", "net.ipv4.fib_multipath_hash_policy": "1"}
	last.Exec = append(last.Exec, strings.Fields("ip addr add 10.5.9.254/24 dev eth2"))
	plug("r1")
	machine("c1", idle, "ip addr add 10.5.9.1/24 dev eth1", "ip route add default via 10.5.9.254")
	wire("c1", "eth1", "r1", "eth2")
	for name, number := range map[string]int{"api": 250, "c2": 9, "o1": 8} {
		machine(name, idle, segmentAddresses(number)...)
		plug(name)
	}
	program("api", "etcd", runs(l.options.Etcd, "--data-dir", "/var/lib/etcd", "--unsafe-no-fsync", "--log-level", "warn", "--quota-backend-bytes", "8589934592"))
	program("api", "apiserver", runs(l.options.APIServer, apiServerFlags()...), clab.Bind{Source: l.pki(), Target: "/etc/kubernetes"})
	for i, m := range l.Members() {
		exec := append(segmentAddresses(i+1), "ip route add default via "+routerAddress)
		machine(m, idle, exec...)
		t.Nodes[len(t.Nodes)-1].Exec = append(t.Nodes[len(t.Nodes)-1].Exec, proxy())
		plug(m)
		program(m, "server", runs(l.options.Testenv, "registry", "--listen", fmt.Sprintf(":%d", serverPort), "--name", m))
	}
	if a := l.options.Announcer; a != nil {
		if c := a.Controller(l); c != nil {
			program("api", "controller", c, clab.Bind{Source: l.pki(), Target: "/etc/" + a.Name()})
		}
		for _, m := range l.Members() {
			program(m, "speaker", a.Speaker(l, m), clab.Bind{Source: l.own(m), Target: "/etc/" + a.Name()})
		}
	}
	return t, images
}

// segmentAddresses configure a machine of the segment.
func segmentAddresses(number int) []string {
	return []string{
		fmt.Sprintf("ip addr add 10.5.0.%d/24 dev eth1", number),
		fmt.Sprintf("ip addr add fd00:5::%x/64 dev eth1", number),
	}
}

// proxy is the command that sets up what stands in for kube-proxy.
func proxy() []string {
	first, last, _ := strings.Cut(ByARP, "-")
	return []string{"nft", fmt.Sprintf(`
		table ip services {
			chain in {
				type nat hook prerouting priority dstnat
				ip daddr { %s, %s-%s } tcp dport %d redirect to :%d
			}
		}`, netip.MustParsePrefix(ByBGP), first, last, Port, serverPort)}
}

// idle is the image of a machine that only has a network.
func idle(clab.Node) (lab.Program, error) {
	return lab.Program{Daemons: []lab.Daemon{{Name: "sleep", Argv: []string{"sleep", "infinity"}}}}, nil
}

// runs is the image of a program with these arguments.
func runs(path string, args ...string) lab.Image { return lab.Binary(path, args...) }

// router is the image of the FRR router.
func (l *Lab) router(n clab.Node) (lab.Program, error) {
	for _, name := range []string{"frr.conf", "daemons"} {
		n.Binds = append(n.Binds, clab.Bind{Source: filepath.Join(l.own("r1"), name), Target: "/etc/frr/" + name, ReadOnly: true})
	}
	p, err := lab.FRR(n)
	p.Binds = append(p.Binds, n.Binds...)
	return p, err
}

// routerConf is the configuration of the router: it takes the addresses of the pool
// from all nodes, and spreads over those that announce one.
func routerConf(nodes int) string {
	var b strings.Builder
	fmt.Fprintf(&b, `frr defaults traditional
hostname r1
log stdout informational
!
router bgp %d
 bgp router-id %s
 no bgp default ipv4-unicast
 timers bgp 1 3
 neighbor nodes peer-group
 neighbor nodes remote-as %d
 neighbor nodes timers connect 1
`, routerASN, routerAddress, nodeASN)
	for i := range nodes {
		fmt.Fprintf(&b, " neighbor 10.5.0.%d peer-group nodes\n", i+1)
	}
	fmt.Fprintf(&b, ` !
 address-family ipv4 unicast
  neighbor nodes activate
  neighbor nodes prefix-list pool in
  neighbor nodes prefix-list nothing out
  maximum-paths 8
 exit-address-family
exit
!
ip prefix-list pool seq 10 permit %s le 32
ip prefix-list nothing seq 10 deny any
!
line vty
`, ByBGP)
	return b.String()
}
