package config_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/herald-vip/herald/balancer"
	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/health"
)

// worker is the file of a node without VIP and vote, with a balancer to the masters' API.
const worker = `apiVersion: herald.dev/v1alpha1
kind: Speaker
election:
  members: {m1: "10.0.1.1:7946", m2: "10.0.1.2:7946", m3: "10.0.1.3:7946"}
  keyFile: /etc/herald/gossip.key
balancers:
- name: apiserver
  listen: [{address: "127.0.0.1:9443"}]
  backends:
    members: {port: 6443, checks: [apiserver]}
`

// static is the file of a node with a VIP and a balancer of servers that are not members.
const static = base + `balancers:
- name: api
  listen: [{vip: web, port: 9443}]
  backends: {static: {addresses: ["10.0.1.1:6443"]}}
`

func TestBalancerDefaults(t *testing.T) {
	c := mustParse(t, worker, config.Hostname("worker-7"))
	want := []balancer.Config{{
		Name:     "apiserver",
		Listen:   []balancer.Listener{{Address: netip.MustParseAddrPort("127.0.0.1:9443")}},
		Backends: balancer.Backends{Members: &balancer.Members{Port: 6443, Checks: []string{"apiserver"}}},
		Method:   balancer.RoundRobin,
		Mode:     balancer.Kernel,
		Forget:   4 * time.Hour,
	}}
	if diff := cmp.Diff(want, c.Balancers, addresses); diff != "" {
		t.Errorf("balancers (-want +got):\n%s", diff)
	}
	if c.LoadBalancer.Type != config.Internal || c.Election.Bind.IsValid() {
		t.Errorf("type is %s and bind %s, want internal and none", c.LoadBalancer.Type, c.Election.Bind)
	}
	probe := &balancer.Probe{TCP: &health.TCP{Address: "backend"}, Pace: health.Pace{Interval: 200 * time.Millisecond, Timeout: 300 * time.Millisecond, Rise: 2, Fall: 2}}
	for name, file := range map[string]string{
		"no check":      static,
		"check of pace": static + "  check: {interval: 200ms}\n",
	} {
		if diff := cmp.Diff(probe, mustParse(t, file).Balancers[0].Check); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// The bridge needs an election to know other masters.
func TestBridgeDefault(t *testing.T) {
	for file, want := range map[string]bool{
		base: false,
		flat: true,
		strings.Replace(flat, "announce: arp", "announce: arp\n  bridge: false", 1): false,
	} {
		if c := mustParse(t, file); *c.VIPs[0].Bridge != want {
			t.Errorf("bridge is %t, want %t, with\n%s", !want, want, file)
		}
	}
}

// These files are valid because they have balancers.
func TestBalancersAlone(t *testing.T) {
	const tail = "election:\n  members: {m1: \"10.0.1.1:7946\"}\n  keyFile: /etc/herald/gossip.key\n"
	for name, file := range map[string]string{
		"worker":                      worker,
		"balancers of the user's own": strings.Replace(worker, "balancers:", "loadBalancer: {type: external}\nbalancers:", 1),
		"master that only advertises": "apiVersion: herald.dev/v1alpha1\nkind: Speaker\nnodeName: m1\nchecks: [{name: apiserver, tcp: {address: \"127.0.0.1:6443\"}}]\n" + tail,
		"BGP with gossip":             base + tail,
		"static, no election":         static,
		"worker with a VIP by BGP":    strings.Replace(base, "nodeName: m1", "nodeName: w1", 1) + tail + worker[strings.Index(worker, "balancers:"):],
		"::1 through a proxy":         strings.Replace(worker, "127.0.0.1:9443\"}]", "[::1]:9443\"}]\n  mode: proxy", 1),
		"families through a proxy":    strings.Replace(static, "10.0.1.1:6443", "[fd00::1]:6443", 1) + "  mode: proxy\n",
		"everything by DNS":           strings.Replace(static, `static: {addresses: ["10.0.1.1:6443"]}`, "dns: {name: masters, port: 6443}", 1),
		"ports of servers elsewhere":  two,
		"port of their own each":      strings.Replace(static, `["10.0.1.1:6443"]`, `["10.0.1.1:6443", "10.0.1.1:6444"]`, 1),
	} {
		c, err := config.Parse(name, []byte(file), config.Hostname("worker-7"))
		if err != nil {
			t.Error(err)
			continue
		}
		written := c.YAML()
		if diff := cmp.Diff(c, mustParse(t, string(written)), addresses); diff != "" {
			t.Errorf("%s, read again (-want +got):\n%s", name, diff)
		}
	}
}

func TestBalancerMistakes(t *testing.T) {
	const (
		listen  = `[{address: "127.0.0.1:9443"}]`
		members = "members: {port: 6443, checks: [apiserver]}"
	)
	checkMistakesIn(t, worker, []mistake{
		{"keyFile: /etc/herald/gossip.key", "insecure: true", "5:13: election.insecure: a node without a vote can join only with a key: set keyFile on all members"},
		{"balancers:", "balancer:", "6:1: balancer: unknown field, did you mean balancers?"},
		{"balancers:", "loadBalancer: {type: none}\nbalancers:", `6:22: loadBalancer.type: want internal or external, got "none"`},
		{"name: apiserver", "name: API", `7:9: balancers[0].name: want at most 63 lower-case letters and digits, with '-' and '.' between, got "API"`},
		{listen, "[]", "8:11: balancers[0].listen: list at least one address or vip"},
		{"  listen: " + listen + "\n", "", "7:3: balancers[0].listen: list at least one address or vip"},
		{listen, "[{}]", "8:12: balancers[0].listen[0]: give it an address, or vip and port"},
		{listen, "[{port: 9443}]", "8:12: balancers[0].listen[0]: give it an address, or vip and port"},
		{listen, "[{address: 9443}]", "8:22: balancers[0].listen[0].address: want an IP address with a port such as 10.0.1.1:7946, got the number 9443"},
		{listen, `[{address: "127.0.0.1:9443", port: 1}]`, "8:46: balancers[0].listen[0].port: the address has its own port: remove it"},
		{listen, `[{address: "127.0.0.1:9443", vip: web, port: 1}]`, "8:12: balancers[0].listen[0]: has both address and vip: make them two"},
		{listen, `[{address: "127.0.0.1:9443"}, {address: "127.0.0.1:9443"}]`, "8:41: balancers[0].listen[1]: 127.0.0.1:9443 is where balancers[0].listen[0] listens already"},
		{listen, `[{address: "0.0.0.0:9443"}]`, "8:22: balancers[0].listen[0].address: want one address of this node, got 0.0.0.0"},
		{listen, `[{address: "[fe80::1%eth0]:9443"}]`, "8:22: balancers[0].listen[0].address: want an address that is not link-local and has no zone, got fe80::1%eth0"},
		{listen, `[{address: "[fd00::1%eth0]:9443"}]`, "8:22: balancers[0].listen[0].address: want an address that is not link-local and has no zone, got fd00::1%eth0"},
		{listen, `[{address: "[::1]:9443"}]`, "8:22: balancers[0].listen[0].address: the kernel cannot forward connections to ::1: listen at 127.0.0.1, or set mode: proxy"},
		{listen, `[{address: "10.0.1.2:6443"}]`, "8:22: balancers[0].listen[0].address: 10.0.1.2:6443 is a backend of balancers[0]: listen at another port"},
		{"balancers:\n", "balancers:\n- {name: other, listen: [{address: \"10.0.1.2:6443\"}], backends: {dns: {name: masters, port: 1}}}\n", "7:36: balancers[0].listen[0].address: 10.0.1.2:6443 is a backend of balancers[1]: listen at another port"},
		{listen, `[{address: "127.0.0.1:9474"}, {address: "10.0.1.2:7946"}]`, "8:22: balancers[0].listen[0].address: 127.0.0.1:9474 is where Herald itself listens, for metrics or members: listen at another port\n" +
			"8:51: balancers[0].listen[1].address: 10.0.1.2:7946 is where Herald itself listens, for metrics or members: listen at another port"},
		{"kind: Speaker", "kind: Speaker\nmetrics: {listen: \":9443\"}", "9:22: balancers[0].listen[0].address: 127.0.0.1:9443 is where Herald itself listens, for metrics or members: listen at another port"},
		{listen, listen + "\n  transparent: true", "8:22: balancers[0].listen[0].address: no backend can answer a client with the address 127.0.0.1: remove transparent"},
		{listen, `[{address: "10.0.1.9:9443"}]` + "\n  transparent: true\n  mode: proxy", "9:16: balancers[0].transparent: a proxy connects from this node's address: remove it, or mode: proxy"},
		{listen, "[{vip: web, port: 9443}]", `8:18: balancers[0].listen[0].vip: no VIP has the name "web"`},
		{listen, listen + "\n  method: fair", `9:11: balancers[0].method: want round-robin or source-hash, got "fair"`},
		{listen, listen + "\n  mode: userspace", `9:9: balancers[0].mode: want kernel or proxy, got "userspace"`},
		{listen, listen + "\n  forget: 0s", "9:11: balancers[0].forget: want 1s to 168h, got 0s"},
		{listen, listen + "\n  check: {}", "9:10: balancers[0].check: members advertise their own checks: remove it, and name those in backends.members.checks"},
		{"\n    " + members, " {}", "9:13: balancers[0].backends: give it members, static or dns"},
		{"  backends:\n    " + members + "\n", "", "7:3: balancers[0].backends: give it members, static or dns"},
		{members, members + "\n    dns: {name: x, port: 1}", "10:5: balancers[0].backends: has members and dns: keep one"},
		{members, "members: {checks: [apiserver]}", "10:14: balancers[0].backends.members.port: want 1 to 65535, got 0"},
		{members, "members: {port: 6443}", "10:14: balancers[0].backends.members.checks: list at least one check: a member is a backend only while its checks pass"},
		{members, "members: {port: 6443, checks: [A, b, b]}", `10:36: balancers[0].backends.members.checks[0]: want the name of a check of the members, got "A"` + "\n" + `10:42: balancers[0].backends.members.checks[2]: "b" is listed twice`},
		{"election:\n  members: {m1: \"10.0.1.1:7946\", m2: \"10.0.1.2:7946\", m3: \"10.0.1.3:7946\"}\n  keyFile: /etc/herald/gossip.key\n", "", "7:14: balancers[0].backends.members: needs an election section to know the members: add one"},
		{members, "dns: {port: 6443}", "10:10: balancers[0].backends.dns.name: missing: give the name to look up"},
		{members, "dns: {name: 10.0.1.1, port: 6443}", "10:17: balancers[0].backends.dns.name: 10.0.1.1 is an address: list it in static.addresses"},
		{members, "dns: {name: \"a b\", port: 6443}", `10:17: balancers[0].backends.dns.name: want a name such as masters.example.org, got "a b"`},
		{members, "dns: {name: masters}", "10:10: balancers[0].backends.dns.port: want 1 to 65535, got 0"},
		{members, "dns: {name: masters, port: 1, interval: 0s}", "10:45: balancers[0].backends.dns.interval: want 1s to 1h, got 0s"},
		{"kind: Speaker", "kind: Speaker\nvips: [{name: v, addresses: [10.0.1.100], announce: arp, checks: [c]}]\nchecks: [{name: c, tcp: {address: \"localhost:9443\"}}]",
			"4:35: checks[0].tcp.address: 127.0.0.1:9443 is where balancers[0].listen[0] listens, and any backend may answer: check this node's own server\n6:12: election.members: lacks this node, w1: add it with its address, or set bind if it should not vote"},
	})
}

func TestStaticBalancerMistakes(t *testing.T) {
	const addresses = `["10.0.1.1:6443"]`
	checkMistakesIn(t, static, []mistake{
		{"vip: web", "vip: wep", `19:18: balancers[0].listen[0].vip: no VIP has the name "wep", did you mean web?`},
		{"vip: web, port: 9443", "vip: web", "19:12: balancers[0].listen[0].port: want 1 to 65535, got 0"},
		{"vip: web, port: 9443}", "vip: web, port: 9443}, {address: \"10.99.0.10:9443\"}", "19:36: balancers[0].listen[1]: 10.99.0.10:9443 is where balancers[0].listen[0] listens already"},
		{addresses, "[]", "20:34: balancers[0].backends.static.addresses: list at least one address"},
		{addresses, `["10.0.1.1"]`, `20:35: balancers[0].backends.static.addresses[0]: want an IP address with a port such as 10.0.1.1:7946, got the text "10.0.1.1"`},
		{addresses, `["10.0.1.1:6443", "10.0.1.1:6443"]`, "20:52: balancers[0].backends.static.addresses[1]: 10.0.1.1:6443 is listed twice"},
		{addresses, `["10.99.0.10:9443"]`, "20:35: balancers[0].backends.static.addresses[0]: 10.99.0.10:9443 is where balancers[0].listen[0] listens: want the address of a server"},
		{addresses, `["10.99.0.10:6443"]`, "20:35: balancers[0].backends.static.addresses[0]: 10.99.0.10 is a VIP of this speaker: want the server's own address"},
		{addresses, `["127.0.0.1:6443"]`, "20:35: balancers[0].backends.static.addresses[0]: the kernel cannot forward connections to 127.0.0.1: want an address that other hosts reach, or set mode: proxy"},
		{addresses, `["224.0.0.1:6443"]`, "20:35: balancers[0].backends.static.addresses[0]: want the address of a server, got 224.0.0.1"},
		{addresses, `["[fd00::1]:6443"]`, "20:34: balancers[0].backends.static.addresses: 10.99.0.10:9443 needs a backend with an ipv4 address, too: add one, or set mode: proxy"},
		{"- name: api\n", "- name: api\n  check: {tcp: {address: backend}, http: {url: \"https://backend\"}}\n", "19:10: balancers[0].check: has both http and tcp: make them two checks"},
		{"- name: api\n", "- name: api\n  check: {tcp: {address: \"10.0.1.1:6443\"}}\n", `19:26: balancers[0].check.tcp.address: want the host backend, which stands for each backend's address, got "10.0.1.1"`},
		{"- name: api\n", "- name: api\n  check: {tcp: {}}\n", `19:16: balancers[0].check.tcp.address: want backend, or backend:port, got ""`},
		{"- name: api\n", "- name: api\n  check: {tcp: {address: \"backend:0\"}}\n", `19:26: balancers[0].check.tcp.address: want backend, or backend:port, got "backend:0"`},
		{"- name: api\n", "- name: api\n  check: {http: {url: \"https://10.0.1.1:6443/readyz\"}}\n", `19:23: balancers[0].check.http.url: want the host backend, which stands for each backend's address, got "10.0.1.1"`},
		{"- name: api\n", "- name: api\n  check: {http: {url: \"backend:6443/readyz\"}}\n", "19:23: balancers[0].check.http.url: want a URL that begins with http:// or https://"},
		{"- name: api\n", "- name: api\n  check: {http: {}}\n", "19:17: balancers[0].check.http.url: missing: give the URL to GET"},
		{"- name: api\n", "- name: api\n  check: {http: {url: \"http://backend\", caFile: /ca}}\n", "19:49: balancers[0].check.http.caFile: an http url has no certificates: use https or remove it"},
		{"- name: api\n", "- name: api\n  check: {rise: 0}\n", "19:17: balancers[0].check.rise: want 1 to 100, got 0"},
		{"- name: api\n", "- name: api\n  check: {name: x}\n", "19:11: balancers[0].check.name: unknown field"},
		{"127.0.0.1:6443/readyz", "10.99.0.10:9443/readyz", "11:15: checks[0].http.url: 10.99.0.10:9443 is where balancers[0].listen[0] listens, and any backend may answer: check this node's own server"},
		{"announce: bgp", "announce: bgp\n  bridge: true", "8:11: vips[0].bridge: needs an election section to know the healthy masters: add one"},
	})
}

// two is a file of two balancers that listen at the same address; one uses its servers' port.
const two = `apiVersion: herald.dev/v1alpha1
kind: Speaker
balancers:
- name: web
  listen: [{address: "10.0.1.1:80"}]
  backends: {static: {addresses: ["10.0.1.2:80"]}}
- name: files
  listen: [{address: "10.0.1.1:81"}]
  backends: {static: {addresses: ["10.0.1.2:8081"]}}
  mode: proxy
`

// Balancers must not lead to each other, as connections might loop.
func TestBalancersOfBalancers(t *testing.T) {
	const want = "listens: want the address of a server"
	checkMistakesIn(t, two, []mistake{
		{"10.0.1.2:80\"", `10.0.1.1:80"`, "6:35: balancers[0].backends.static.addresses[0]: 10.0.1.1:80 is where balancers[0].listen[0] " + want},
		{"10.0.1.2:80\"", `10.0.1.1:81"`, "6:35: balancers[0].backends.static.addresses[0]: 10.0.1.1:81 is where balancers[1].listen[0] " + want},
		{"10.0.1.2:8081", "10.0.1.1:80", "9:35: balancers[1].backends.static.addresses[0]: 10.0.1.1:80 is where balancers[0].listen[0] " + want},
		{two[strings.Index(two, "10.0.1.2:80\""):strings.Index(two, "8081")], `10.0.1.2:80", "10.0.1.1:81"]}}
- name: files
  listen: [{address: "10.0.1.2:81"}, {address: "10.0.1.1:81"}]
  backends: {static: {addresses: ["10.0.1.1:80", "10.0.1.2:81", "10.0.1.2:`,
			"6:50: balancers[0].backends.static.addresses[1]: 10.0.1.1:81 is where balancers[1].listen[1] " + want + "\n" +
				"9:35: balancers[1].backends.static.addresses[0]: 10.0.1.1:80 is where balancers[0].listen[0] " + want + "\n" +
				"9:50: balancers[1].backends.static.addresses[1]: 10.0.1.2:81 is where balancers[1].listen[0] " + want},
	})
}
