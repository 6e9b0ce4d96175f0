package doctor

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/balancer/nft"
	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/doctor/facts"
	"github.com/herald-vip/herald/netutil/link"
)

// balancedFile is that of a master with a balancer on its VIP and on another address.
const balancedFile = `
apiVersion: herald.dev/v1alpha1
kind: Speaker
nodeName: m1
vips:
- {name: api, addresses: [10.0.1.100], announce: arp, checks: [apiserver]}
checks:
- {name: apiserver, tcp: {address: "127.0.0.1:6443"}}
balancers:
- name: kubernetes
  listen: [{vip: api, port: 6443}, {address: "127.0.0.1:9443"}, {address: "10.0.1.1:9443"}]
  backends: {members: {port: 6443, checks: [apiserver]}}
election:
  members: {m1: "10.0.1.1:7946", m2: "10.0.1.2:7946", m3: "10.0.1.3:7946"}
  keyFile: /etc/herald/gossip.key
`

// workerFile is that of a worker with a proxy and both address families.
const workerFile = `
apiVersion: herald.dev/v1alpha1
kind: Speaker
nodeName: w1
balancers:
- name: kubernetes
  listen: [{address: "127.0.0.1:9443"}]
  backends: {members: {port: 6443, checks: [apiserver]}}
- name: images
  listen: [{address: "[::1]:500"}]
  backends: {dns: {name: mirrors.example.org, port: 80}}
  mode: proxy
- name: six
  listen: [{address: "[fd00:1::1]:80"}]
  backends: {static: {addresses: ["[fd00:1::7]:80"]}}
election:
  members: {m1: "10.0.1.1:7946", m2: "10.0.1.2:7946"}
  keyFile: /etc/herald/gossip.key
`

// listening adds a TCP server to the facts.
func listening(at, program string) func(*config.Config, *facts.Facts) {
	return func(_ *config.Config, f *facts.Facts) {
		f.Sockets = []facts.Socket{{Network: "tcp", Local: netip.MustParseAddrPort(at), PID: 7, Program: program}}
	}
}

func balancerFaults() []fault {
	return []fault{
		{"no nftables", func(_ *config.Config, f *facts.Facts) {
			f.BalancingError = fmt.Errorf("%w: the kernel has none", nft.ErrUnsupported)
		}, Blocker, "node", "balancing: no balancing in the kernel: the kernel has none"},
		{"untried", func(_ *config.Config, f *facts.Facts) { f.BalancingError = errors.New("no thread") }, Warning, "node", "balancing: cannot be tested: no thread"},
		{"connections without end", func(_ *config.Config, f *facts.Facts) { f.Settings["net/netfilter/nf_conntrack_count"] = "200000" },
			Warning, "node", "net.netfilter.nf_conntrack_max: 262144, with 200000 connections"},
		{"strict reverse path", func(_ *config.Config, f *facts.Facts) { f.Settings["net/ipv4/conf/all/rp_filter"] = "1" }, Warning, "node", "strict on eth0 and eth1, of 2 links"},
		{"HAProxy at 127.0.0.1", listening("127.0.0.1:9443", "haproxy"), Warning, "balancer", "kubernetes 127.0.0.1:9443: another server listens there: haproxy, process 7"},
		{"nginx at the node's address", listening("10.0.1.1:9443", "nginx"), Warning, "balancer", "kubernetes 10.0.1.1:9443: another server listens there: nginx"},
		{"address elsewhere", func(c *config.Config, _ *facts.Facts) {
			c.Balancers[0].Listen[2].Address = netip.MustParseAddrPort("10.0.1.9:9443")
		}, Warning, "balancer", "kubernetes 10.0.1.9:9443: no link of this node has 10.0.1.9"},
		{"a Service's address", func(_ *config.Config, f *facts.Facts) {
			f.Host.Links["kube-ipvs0"] = link.Link{Name: "kube-ipvs0"}
			f.Settings["net/ipv4/conf/all/arp_ignore"] = "1"
			f.Host.Addresses[1].Link = "kube-ipvs0"
		}, Warning, "balancer", "kube-proxy in IPVS mode has the address on kube-ipvs0"},
		{"a backend down", func(_ *config.Config, f *facts.Facts) {
			f.Backends["kubernetes"].Backends[1].Serves = false
			f.Backends["kubernetes"].Backends[1].Reason = "connection refused"
		}, Warning, "balancer", "kubernetes m2 10.0.1.2:6443: connection refused"},
		{"a balancer in trouble", func(_ *config.Config, f *facts.Facts) {
			f.Running = running1(f.File)
			f.Backends["kubernetes"] = facts.Backends{Err: errors.New("no nftables")}
		}, Warning, "balancer", "kubernetes: no nftables"},
		{"a running one's backend", func(_ *config.Config, f *facts.Facts) {
			f.Running = running1(f.File)
			f.Backends["kubernetes"] = facts.Backends{Backends: []facts.Backend{
				{Name: "m1", Address: netip.MustParseAddrPort("10.0.1.1:6443"), Serves: true, Reason: "serving: it says so"},
				{Name: "m2", Address: netip.MustParseAddrPort("10.0.1.2:6443"), Reason: "draining: it says so"},
			}}
		}, Warning, "balancer", "kubernetes m2 10.0.1.2:6443: draining: it says so"},
	}
}

func workerFaults() []fault {
	return []fault{
		{"no rights", func(_ *config.Config, f *facts.Facts) { f.Capabilities &^= 1 << unix.CAP_NET_ADMIN }, Blocker, "process", "CAP_NET_ADMIN"},
		{"no low port", func(_ *config.Config, f *facts.Facts) { f.Capabilities &^= 1 << unix.CAP_NET_BIND_SERVICE }, Blocker, "process", "CAP_NET_BIND_SERVICE"},
		{"proxy's port taken", func(_ *config.Config, f *facts.Facts) {
			f.Ports[facts.Port{Use: "balancer", Network: "tcp", Local: netip.MustParseAddrPort("[::1]:500")}] = syscall.EADDRINUSE
		}, Blocker, "port", "balancer [::1]:500/tcp: in use by a program that is not visible"},
		{"no forwarding, in a container", func(_ *config.Config, f *facts.Facts) {
			f.Settings["net/ipv6/conf/all/forwarding"], f.ReadOnlySettings = "0", true
		}, Warning, "node", "net.ipv6.conf.all.forwarding: 0, and /proc/sys cannot be written"},
		{"no such name", func(_ *config.Config, f *facts.Facts) {
			f.Backends["images"] = facts.Backends{Err: errors.New("the name of its backends cannot be looked up")}
		}, Warning, "balancer", "images: the name of its backends cannot be looked up"},
		{"a member down", reaches2(facts.Silent, facts.Silent), Warning, "member", "m2 10.0.1.2:7946: does not answer"},
	}
}

// Without a reachable member a worker learns no backend; a running Herald without a backend refuses connections.
func TestNoBackendServes(t *testing.T) {
	c, f := node(t, workerFile)
	f.Members["m1"], f.Members["m2"] = facts.Reach{TCP: facts.Silent, UDP: facts.Silent}, facts.Reach{TCP: facts.Unreachable, UDP: facts.Unreachable}
	if got := finding(t, examine(c, f), "member", "m1"); got.Severity != Blocker || !strings.Contains(got.Why, "learns no member's state") {
		t.Errorf("%+v", got)
	}
	f = well(c)
	for i := range f.Backends["kubernetes"].Backends {
		f.Backends["kubernetes"].Backends[i].Serves = false
	}
	if got := finding(t, examine(c, f), "balancer", "kubernetes m1"); got.Severity != Warning || !strings.Contains(got.Why, "refused") {
		t.Errorf("before Herald runs: %+v", got)
	}
	f.Running = running1(f.File)
	if got := finding(t, examine(c, f), "balancer", "kubernetes m1"); got.Severity != Blocker {
		t.Errorf("while Herald runs: %+v", got)
	}
}

// These are not faults of a balancer.
func TestNoFalseAlarmOfBalancers(t *testing.T) {
	for name, change := range map[string]func(*config.Config, *facts.Facts){
		"apiserver listens on the VIP": listening("0.0.0.0:6443", "kube-apiserver"),
		"Herald enables forwarding":    func(_ *config.Config, f *facts.Facts) { f.Settings["net/ipv4/ip_forward"] = "0" },
		"conntrack not loaded yet":     func(_ *config.Config, f *facts.Facts) { delete(f.Settings, "net/netfilter/nf_conntrack_max") },
		"external load balancer": func(c *config.Config, f *facts.Facts) {
			c.LoadBalancer.Type = config.External
			f.BalancingError = nft.ErrUnsupported
			listening("127.0.0.1:9443", "haproxy")(c, f)
		},
	} {
		c, f := node(t, balancedFile)
		change(c, f)
		if wrong := faulty(examine(c, f)); len(wrong) > 0 {
			t.Errorf("%s: %+v", name, wrong)
		}
	}
}

// The certificate of a balancer's backend must have the listen address, which clients use.
func TestCertificateBehindBalancer(t *testing.T) {
	file := strings.Replace(balancedFile, `tcp: {address: "127.0.0.1:6443"}`, `http: {url: "https://127.0.0.1:6443/readyz", serverName: kubernetes}`, 1)
	c := parsed(t, file)
	cert := certificate() // for 127.0.0.1, and not for 10.0.1.1
	e := facts.Endpoint{Address: "127.0.0.1:6443", ServerName: "kubernetes", Chain: nil}
	e.Chain = append(e.Chain, cert)
	var got string
	var all findings
	examineNames(c, c.Checks[0], "apiserver", e, &all)
	for _, found := range all.all {
		got += fmt.Sprintf("%s: %s\n", found.Severity, found.Seen)
	}
	if want := "blocker: not for 10.0.1.100, the VIP api\nblocker: not for 10.0.1.1, the balancer kubernetes\n"; got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}
