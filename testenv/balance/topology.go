package balance

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/herald-vip/herald/testenv/clab"
	"github.com/herald-vip/herald/testenv/lab"
)

// Where programs are in a node.
const (
	binaryTarget = "/opt/herald/herald"
	clientTarget = "/usr/local/bin/herald-testenv"
)

// topology is what the machines are and what each of them runs. A node of the topology
// has an image of its own, which is called as itself.
func (l *Lab) topology() (*clab.Topology, map[string]lab.Image) {
	t := &clab.Topology{Name: "balance", Nodes: []clab.Node{{Name: Segment, Kind: clab.Bridge}}}
	images := make(map[string]lab.Image)
	machine := func(name string) {
		n := clab.Node{Name: name, Kind: clab.Linux, Image: name, Hostname: name, Sysctls: map[string]string{
			// The same for all: thousands of connections a second from one address.
			"net.ipv4.ip_local_port_range": "10000 65535",
			"net.ipv4.ip_forward":          "1",
			"net.core.somaxconn":           "8192",
			// The detour enters and leaves by one interface.
			"net.ipv4.conf.all.send_redirects":     "0",
			"net.ipv4.conf.default.send_redirects": "0",
		}}
		for _, line := range append([]string{fmt.Sprintf("ip addr add %s/24 dev eth1", Address(name))}, detour(name)...) {
			n.Exec = append(n.Exec, strings.Fields(line))
		}
		t.Nodes, images[name] = append(t.Nodes, n), nothing
		t.Links = append(t.Links, clab.Link{
			A: clab.Endpoint{Node: name, Interface: "eth1"}, B: clab.Endpoint{Node: Segment, Interface: name}, MTU: 1500,
		})
	}
	program := func(base, kind string, image lab.Image, binds ...clab.Bind) {
		name := base + "-" + kind
		t.Nodes = append(t.Nodes, clab.Node{Name: name, Kind: clab.Linux, Image: name, Hostname: base, Base: base, Binds: binds})
		images[name] = image
	}
	testenv := func(base, kind string, args ...string) {
		program(base, kind, lab.Binary(l.options.Testenv, args...))
	}
	speaker := func(base string) {
		program(base, "speaker", daemon(binaryTarget, "run", "--config", "/etc/herald/herald.yaml"),
			clab.Bind{Source: l.own(base), Target: "/etc/herald"},
			clab.Bind{Source: filepath.Join(l.options.Dir, "bin"), Target: filepath.Dir(binaryTarget), ReadOnly: true})
	}
	for _, m := range MasterNames() {
		machine(m)
		testenv(m, "server", "balance-server", fmt.Sprintf("--listen=:%d", BackendPort), "--name="+m)
		speaker(m)
	}
	for _, w := range append(WorkerNames(), "c1") {
		machine(w)
		testenv(w, "client")
	}
	for _, w := range WorkerNames() {
		speaker(w)
		program(w, "haproxy", daemon(l.options.HAProxy, "-W", "-db", "-f", "/etc/haproxy/haproxy.cfg"),
			clab.Bind{Source: l.own(w), Target: "/etc/haproxy"})
	}
	return t, images
}

// detour are the commands that have c1 reach the masters by way of [Router], and they it,
// at addresses that are for that alone.
func detour(machine string) (lines []string) {
	const client = "10.7.1.9"
	switch {
	case machine == "c1":
		lines = append(lines, "ip addr add "+client+"/32 dev lo", fmt.Sprintf("ip route add 10.7.0.0/24 via %s src %s", Address(Router), client))
	case machine == Router:
		lines = append(lines, fmt.Sprintf("ip route add %s via %s", client, Address("c1")))
		for _, m := range MasterNames() {
			lines = append(lines, fmt.Sprintf("ip route add %s via %s", Routed(m).Addr(), Address(m)))
		}
	case machine[0] == 'm':
		lines = append(lines, fmt.Sprintf("ip addr add %s/32 dev lo", Routed(machine).Addr()), fmt.Sprintf("ip route add %s via %s", client, Address(Router)))
	}
	return lines
}

// nothing is the image of a machine that only has a network.
func nothing(clab.Node) (lab.Program, error) { return lab.Program{}, nil }

// daemon is the image of a program that the node has.
func daemon(argv ...string) lab.Image {
	return func(clab.Node) (lab.Program, error) {
		return lab.Program{Daemons: []lab.Daemon{{Name: filepath.Base(argv[0]), Argv: argv}}}, nil
	}
}
