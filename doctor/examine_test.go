package doctor

import (
	"crypto/x509"
	"errors"
	"io/fs"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/admin"
	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/health"
	"github.com/herald-vip/herald/netutil"
	"github.com/herald-vip/herald/netutil/fence"
)

const routedFile = `
apiVersion: herald.dev/v1alpha1
kind: Speaker
nodeName: m1
realtime: true
vips:
- {name: api, addresses: [10.99.0.10, "fd00:99::10"], announce: bgp, checks: [apiserver]}
checks:
- name: apiserver
  http: {url: "https://127.0.0.1:6443/readyz", caFile: /etc/kubernetes/pki/ca.crt, serverName: kubernetes}
bgp:
  asn: 64512
  listen: {}
  peers:
  - {address: 10.0.1.254, asn: 64500, passwordFile: /etc/herald/bgp-password, bfd: {}}
  - {address: 10.0.2.254, asn: 64500, families: [ipv4, ipv6]}
`

const flatFile = `
apiVersion: herald.dev/v1alpha1
kind: Speaker
nodeName: m1
vips:
- {name: api, addresses: [10.0.1.100], announce: arp, checks: [apiserver]}
checks:
- {name: apiserver, tcp: {address: "127.0.0.1:6443"}}
election:
  members: {m1: "10.0.1.1:7946", m2: "10.0.1.2:7946", m3: "10.0.1.3:7946"}
  keyFile: /etc/herald/gossip.key
`

var (
	now      = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	vip      = netip.MustParseAddr("10.0.1.100")
	m2, m3   = net.HardwareAddr{2, 0, 0, 0, 0, 2}, net.HardwareAddr{2, 0, 0, 0, 0, 3}
	stranger = net.HardwareAddr{2, 0, 0, 0, 0, 9}
)

func parsed(t testing.TB, file string) *config.Config {
	t.Helper()
	c, err := config.Parse("herald.yaml", []byte(file))
	if err != nil {
		t.Fatal(err)
	}
	if c.BGP != nil {
		c.BGP.Peers[0].Password = "secret" // as Load reads it
	}
	return c
}

// host has two links, eth0 in 10.0.1.0/24 and eth1 in 10.0.2.0/24.
func host() netutil.Survey {
	prefix := netip.MustParsePrefix
	return netutil.Survey{
		Links: map[string]netutil.Link{
			"lo":   {Name: "lo", Index: 1},
			"eth0": {Name: "eth0", Index: 2, Up: true, Prefixes: []netip.Prefix{prefix("10.0.1.0/24")}},
			"eth1": {Name: "eth1", Index: 3, Up: true, Prefixes: []netip.Prefix{prefix("10.0.2.0/24")}},
		},
		Addresses: []netutil.Address{
			{Link: "lo", Prefix: prefix("127.0.0.1/8")},
			{Link: "eth0", Prefix: prefix("10.0.1.1/24")},
			{Link: "eth1", Prefix: prefix("10.0.2.1/24")},
		},
		Neighbours: []netutil.Neighbour{
			{Link: "eth0", Addr: netip.MustParseAddr("10.0.1.2"), MAC: m2},
			{Link: "eth0", Addr: netip.MustParseAddr("10.0.1.3"), MAC: m3},
		},
	}
}

// certificate is the apiserver's; nobody has signed it.
func certificate() *x509.Certificate {
	return &x509.Certificate{
		NotBefore: now.AddDate(0, -1, 0), NotAfter: now.AddDate(0, 11, 0),
		DNSNames:    []string{"kubernetes", "api.example.net"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv4(10, 99, 0, 10), net.ParseIP("fd00:99::10")},
	}
}

// well are the facts of a node without a fault.
func well(c *config.Config) *Facts {
	f := &Facts{
		Now: now, File: "/etc/herald/herald.yaml",
		Capabilities: 1<<unix.CAP_NET_ADMIN | 1<<unix.CAP_NET_RAW | 1<<unix.CAP_NET_BIND_SERVICE | 1<<unix.CAP_SYS_NICE | 1<<unix.CAP_IPC_LOCK,
		Descriptors:  1024,
		ClockSource:  "tsc",
		Settings: map[string]string{
			"net/ipv4/conf/all/rp_filter": "0", "net/ipv4/conf/all/arp_ignore": "0", "net/ipv6/conf/lo/disable_ipv6": "0",
			"net/ipv4/neigh/default/gc_thresh3": "1024", "kernel/sched_rt_runtime_us": "950000",
		},
		Modes:   map[string]fs.FileMode{},
		Host:    host(),
		Ports:   map[Port]error{},
		Wire:    map[netip.Addr]Use{},
		Members: map[string]Reach{},
		Peers:   map[string]string{},
		Checks:  []health.Verdict{{Check: "apiserver", State: health.Healthy, Reason: "200 in 2ms"}},
	}
	for _, path := range secrets(c) {
		f.Modes[path] = 0o600
	}
	for _, p := range ports(c) {
		f.Ports[p] = nil
	}
	for _, name := range others(c) {
		f.Members[name] = Reach{Accepted, Silent}
	}
	if c.BGP != nil {
		for _, p := range c.BGP.Peers {
			f.Peers[p.Name()] = ""
		}
	}
	return f
}

func TestNoFault(t *testing.T) {
	for _, file := range []string{routedFile, flatFile} {
		c := parsed(t, file)
		for _, f := range Examine(c, well(c)) {
			if f.Severity != OK {
				t.Errorf("%+v", f)
			}
		}
	}
}

// fault is what is wrong with a node, and what is to be said of it and nothing else.
type fault struct {
	name     string
	spoil    func(c *config.Config, f *Facts)
	severity Severity
	topic    string
	want     string // in subject and seen
}

func TestFaults(t *testing.T) {
	gossip := Port{"gossip", "udp", netip.MustParseAddrPort("10.0.1.1:7946")}
	bfd := Port{"BFD", "udp", netip.MustParseAddrPort("0.0.0.0:3784")}
	drop := func(bit int) func(*config.Config, *Facts) {
		return func(_ *config.Config, f *Facts) { f.Capabilities &^= 1 << bit }
	}
	link := func(f *Facts, name string, change func(*netutil.Link)) {
		l := f.Host.Links[name]
		change(&l)
		f.Host.Links[name] = l
	}
	for kind, faults := range map[string][]fault{
		routedFile: {
			{"no right to addresses", drop(unix.CAP_NET_ADMIN), Blocker, "process", "CAP_NET_ADMIN: this process does not have it"},
			{"no right to port 179", drop(unix.CAP_NET_BIND_SERVICE), Blocker, "process", "CAP_NET_BIND_SERVICE"},
			{"no right to real time", drop(unix.CAP_SYS_NICE), Warning, "process", "CAP_SYS_NICE"},
			{"no right to lock memory", drop(unix.CAP_IPC_LOCK), Warning, "process", "CAP_IPC_LOCK"},
			{"few descriptors", func(_ *config.Config, f *Facts) { f.Descriptors = 64 }, Warning, "process", "at most 64"},
			{"no real time", func(_ *config.Config, f *Facts) { f.Settings["kernel/sched_rt_runtime_us"] = "0" }, Warning, "node", "kernel.sched_rt_runtime_us: 0"},
			{"coarse clock", func(_ *config.Config, f *Facts) { f.ClockSource = "hpet" }, Warning, "node", "clock source: hpet"},
			{"password for all", func(_ *config.Config, f *Facts) { f.Modes["/etc/herald/bgp-password"] = 0o644 }, Warning, "configuration", "mode 0644"},
			{"IPv6 off", func(_ *config.Config, f *Facts) { f.Settings["net/ipv6/conf/lo/disable_ipv6"] = "1" }, Blocker, "node", "net.ipv6.conf.lo.disable_ipv6: 1"},
			{"strict reverse path", func(_ *config.Config, f *Facts) { f.Settings["net/ipv4/conf/eth1/rp_filter"] = "1" }, Warning, "node", "strict on eth1, of 2 links"},
			{"VIP in a subnet", func(c *config.Config, f *Facts) {
				f.Host.Links["eth2"] = netutil.Link{Name: "eth2", Index: 9, Prefixes: []netip.Prefix{netip.MustParsePrefix("10.99.0.0/24")}}
			},
				Warning, "node", "arp_ignore: 0 on eth2, whose subnet has the VIP 10.99.0.10"},
			{"no such link", func(c *config.Config, f *Facts) {
				c.VIPs[0].Addresses, c.VIPs[0].Interface = c.VIPs[0].Addresses[:1], "dummy0"
			}, Blocker, "vip", "there is no link dummy0"},
			{"somebody's address", func(_ *config.Config, f *Facts) {
				f.Host.Addresses = append(f.Host.Addresses, netutil.Address{Link: "lo", Prefix: netip.MustParsePrefix("10.99.0.10/32")})
			}, Blocker, "vip", "10.99.0.10/32 is on lo already, and Herald did not put it there"},
			{"BFD's port taken", func(_ *config.Config, f *Facts) {
				f.Ports[bfd] = syscall.EADDRINUSE
				f.Sockets = []Socket{{Network: "udp", Local: bfd.Local, PID: 7, Program: "bfdd"}}
			}, Blocker, "port", "BFD 0.0.0.0:3784/udp: in use by bfdd, process 7"},
			{"no router ID", func(_ *config.Config, f *Facts) { f.RouterIDError = errors.New("none") }, Blocker, "port", "bgp.routerID"},
			{"local address elsewhere", func(c *config.Config, _ *Facts) { c.BGP.Peers[1].LocalAddress = netip.MustParseAddr("10.0.7.1") }, Blocker, "port", "localAddress 10.0.7.1: no link"},
			{"one peer of two", func(_ *config.Config, f *Facts) { f.Peers["10.0.1.254"] = "10.0.1.254 does not answer" }, Warning, "peer", "10.0.1.254 AS 64500: 10.0.1.254 does not answer"},
			{"another speaker", func(_ *config.Config, f *Facts) {
				f.Sockets = []Socket{{Network: "tcp", Local: netip.MustParseAddrPort("0.0.0.0:179"), PID: 7, Program: "bird"}}
			}, Warning, "software", "bird, process 7: speaks BGP from this node"},
			{"failing check", func(_ *config.Config, f *Facts) {
				f.Checks[0] = health.Verdict{Check: "apiserver", State: health.Unhealthy, Reason: "500"}
			}, Warning, "check", "apiserver: 500"},
			{"slow check", func(_ *config.Config, f *Facts) { f.Checks[0] = health.Verdict{Check: "apiserver"} }, Warning, "check", "has not answered"},
			{"busy server", func(_ *config.Config, f *Facts) {
				f.Checks[0] = health.Verdict{Check: "apiserver", Warning: "overloaded: 429"}
			}, Warning, "check", "overloaded"},
			{"check's own fault", func(_ *config.Config, f *Facts) {
				f.Checks[0] = health.Verdict{Check: "apiserver", State: health.Unhealthy, Reason: "GET https://127.0.0.1:6443/readyz: check's own: caFile: no such file"}
			}, Blocker, "check", "caFile: no such file"},
			{"Herald with another file", func(_ *config.Config, f *Facts) { f.Running = running1("/root/test.yaml") }, Warning, "herald", "runs with /root/test.yaml"},
			{"Herald refuses the file", func(_ *config.Config, f *Facts) {
				f.Running = running1(f.File)
				f.Running.Config.Error = "vips: at least one is needed"
			}, Warning, "herald", "not in force: vips: at least one"},
			{"drained", func(_ *config.Config, f *Facts) { f.Running = running1(f.File); f.Running.Draining = "upgrade" }, Warning, "herald", "is drained: upgrade"},
			{"a Herald that does not answer", func(_ *config.Config, f *Facts) {
				f.Programs = []Program{{PID: 7, Name: "herald", Args: []string{"herald", "run", "--config", "x"}}}
			},
				Blocker, "herald", "process 7: runs, but does not answer"},
		},
		flatFile: {
			{"no right to packets", drop(unix.CAP_NET_RAW), Blocker, "process", "CAP_NET_RAW"},
			{"key for all", func(_ *config.Config, f *Facts) { f.Modes["/etc/herald/gossip.key"] = 0o640 }, Warning, "configuration", "gossip.key: mode 0640"},
			{"in the clear", func(c *config.Config, _ *Facts) { c.Election.Insecure = true }, Warning, "configuration", "votes are in the clear"},
			{"wrong subnet", func(c *config.Config, _ *Facts) { c.VIPs[0].Addresses[0] = netip.MustParseAddr("10.0.9.100") }, Blocker, "vip", "no link has an address in its subnet"},
			{"wrong interface", func(c *config.Config, _ *Facts) { c.VIPs[0].Interface = "eth1" }, Warning, "vip", "no address of eth1 is in its subnet"},
			{"link down", func(_ *config.Config, f *Facts) { link(f, "eth0", func(l *netutil.Link) { l.Up = false }) }, Blocker, "vip", "link eth0 is down"},
			{"stranger", func(_ *config.Config, f *Facts) { f.Wire[vip] = Use{MAC: stranger, Stranger: stranger} }, Blocker, "vip", "in use by 02:00:00:00:00:09, which is no member"},
			{"stranger beside the holder", func(_ *config.Config, f *Facts) { f.Wire[vip] = Use{MAC: m2, Stranger: stranger} }, Blocker, "vip", "in use by 02:00:00:00:00:09"},
			{"perhaps a member", func(c *config.Config, f *Facts) {
				c.Election.Members["m3"] = netip.MustParseAddrPort("192.168.0.3:7946")
				f.Wire[vip] = Use{MAC: stranger, Stranger: stranger}
			}, Warning, "vip", "in use by 02:00:00:00:00:09: whether that is m3 cannot be told"},
			{"mute", func(_ *config.Config, f *Facts) {
				f.Wire[vip] = Use{Err: errors.New("this process cannot send packets on eth0")}
			}, Warning, "vip", "cannot be asked: this process cannot send"},
			{"unknown links", func(_ *config.Config, f *Facts) { f.HostError = errors.New("no netlink") }, Warning, "vip", "cannot be read: no netlink"},
			{"no fence", func(_ *config.Config, f *Facts) { f.FenceError = fence.ErrUnsupported }, Warning, "node", "fence: no kernel fence"},
			{"no fence, and required", func(c *config.Config, f *Facts) {
				c.ARP.Fence, f.FenceError = config.FenceRequired, fence.ErrUnsupported
			}, Blocker, "node", "fence"},
			{"fence unknown", func(_ *config.Config, f *Facts) { f.FenceError = errors.New("no thread") }, Warning, "node", "cannot be tried: no thread"},
			{"fence off", func(c *config.Config, _ *Facts) { c.ARP.Fence = config.FenceOff }, Warning, "node", "arp.fence is off"},
			{"Herald without fence", func(_ *config.Config, f *Facts) {
				f.Running = running1(f.File)
				f.Running.Election.Fence = "no nf_tables"
			}, Warning, "node", "runs without: no nf_tables"},
			{"IPVS", func(_ *config.Config, f *Facts) { f.Host.Links["kube-ipvs0"] = netutil.Link{Name: "kube-ipvs0"} }, Warning, "node", "without strictARP"},
			{"settings of a container", func(_ *config.Config, f *Facts) { f.ReadOnlySettings = true }, Warning, "node", "arp_announce: not 2 on eth0"},
			{"neighbour table", func(_ *config.Config, f *Facts) { f.Settings["net/ipv4/neigh/default/gc_thresh3"] = "4" }, Warning, "node", "gc_thresh3: 4, and 3 neighbours and VIPs"},
			{"gossip's port taken", func(_ *config.Config, f *Facts) { f.Ports[gossip] = syscall.EADDRINUSE }, Blocker, "port", "gossip 10.0.1.1:7946/udp: in use by a program that cannot be seen"},
			{"gossip's port forbidden", func(_ *config.Config, f *Facts) { f.Ports[gossip] = syscall.EACCES }, Blocker, "port", "may not open it"},
			{"gossip's address elsewhere", func(c *config.Config, f *Facts) {
				f.Ports = nil
				c.Election.Bind = netip.MustParseAddrPort("10.0.1.77:7946")
			}, Blocker, "port", "election.bind 10.0.1.77: no link"},
			{"member down", func(_ *config.Config, f *Facts) { f.Members["m2"] = Reach{Silent, Silent} }, Warning, "member", "m2 10.0.1.2:7946: does not answer"},
			{"member unreachable", func(_ *config.Config, f *Facts) { f.Members["m2"] = Reach{Unreachable, Unreachable} }, Warning, "member", "unreachable"},
			{"member without Herald", func(_ *config.Config, f *Facts) { f.Members["m2"] = Reach{Refused, Refused} }, Warning, "member", "nothing listens"},
			{"filtered votes", func(_ *config.Config, f *Facts) { f.Members["m2"] = Reach{Accepted, Refused} }, Blocker, "member", "accepts TCP, but UDP is refused"},
			{"keepalived for others", func(_ *config.Config, f *Facts) { f.Programs = []Program{{PID: 7, Name: "keepalived"}} }, Warning, "software", "keepalived, process 7"},
			{"keepalived for the VIP", func(_ *config.Config, f *Facts) {
				f.Programs = []Program{{PID: 7, Name: "keepalived", Mentions: []netip.Addr{vip}}}
			},
				Blocker, "software", "keepalived, process 7: runs beside Herald, for the VIP 10.0.1.100"},
			{"static pod for the VIP", func(_ *config.Config, f *Facts) {
				f.Manifests = []Manifest{{File: "/etc/kubernetes/manifests/kube-vip.yaml", Image: "ghcr.io/kube-vip/kube-vip:v1", Mentions: []netip.Addr{vip}}}
			}, Blocker, "software", "kube-vip.yaml: is a static pod of ghcr.io/kube-vip/kube-vip:v1, for the VIP"},
			{"no part in the election", func(_ *config.Config, f *Facts) {
				f.Running = running1(f.File)
				f.Running.Election.Problem = "m2 has 5 members"
			}, Blocker, "member", "m2 has 5 members"},
			{"another key", func(_ *config.Config, f *Facts) {
				f.Running = running1(f.File)
				f.Running.Election.Members = []admin.Member{{Name: "m2", Address: netip.MustParseAddrPort("10.0.1.2:7946"), Reason: "what it sends cannot be read"}}
			}, Warning, "member", "what it sends cannot be read"},
			{"not heard", func(_ *config.Config, f *Facts) {
				f.Running = running1(f.File)
				f.Running.Election.Members = []admin.Member{{Name: "m2", Address: netip.MustParseAddrPort("10.0.1.2:7946")}}
			}, Warning, "member", "m2 10.0.1.2:7946: not heard"},
		},
	} {
		for _, test := range faults {
			t.Run(test.name, func(t *testing.T) {
				c := parsed(t, kind)
				f := well(c)
				test.spoil(c, f)
				var wrong []Finding
				for _, finding := range Examine(c, f) {
					if finding.Severity != OK {
						wrong = append(wrong, finding)
					}
				}
				if len(wrong) != 1 {
					t.Fatalf("got %+v, want one finding", wrong)
				}
				got := wrong[0]
				if text := got.Subject + ": " + got.Seen; got.Severity != test.severity || got.Topic != test.topic || !strings.Contains(text, test.want) {
					t.Errorf("got %s of %s, %q; want %s of %s, %q", got.Severity, got.Topic, text, test.severity, test.topic, test.want)
				}
				if got.Why == "" || got.Cure == "" {
					t.Errorf("%+v says not why, or not what to do", got)
				}
			})
		}
	}
}

// running1 is a Herald that runs with a file.
func running1(file string) *admin.Status {
	return &admin.Status{Version: "v1", Config: admin.Config{File: file, Generation: 1}, Election: &admin.Election{Fence: admin.FenceOn}}
}

// finding returns the one of a topic whose subject begins like this.
func finding(t *testing.T, all []Finding, topic, subject string) Finding {
	t.Helper()
	for _, f := range all {
		if f.Topic == topic && strings.HasPrefix(f.Subject, subject) {
			return f
		}
	}
	t.Fatalf("no finding about %s %s in %+v", topic, subject, all)
	return Finding{}
}

// Where no peer takes a session, or no majority can be reached, nobody has the VIP.
func TestAllOthersGone(t *testing.T) {
	c := parsed(t, routedFile)
	f := well(c)
	f.Peers["10.0.1.254"], f.Peers["10.0.2.254"] = "it does not answer", "it refuses"
	all := Examine(c, f)
	for _, peer := range []string{"10.0.1.254", "10.0.2.254"} {
		if got := finding(t, all, "peer", peer); got.Severity != Blocker {
			t.Errorf("%+v", got)
		}
	}
	if got := finding(t, all, "peer", "10.0.1.254"); !strings.Contains(got.Why, "cannot be told") || !strings.Contains(got.Cure, "neighbor 10.0.1.1 remote-as 64512 with the password") {
		t.Errorf("a peer with a password: %+v", got)
	}

	c = parsed(t, flatFile)
	f = well(c)
	f.Members["m2"], f.Members["m3"] = Reach{Silent, Silent}, Reach{Unreachable, Unreachable}
	for _, member := range []string{"m2", "m3"} {
		if got := finding(t, Examine(c, f), "member", member); got.Severity != Blocker || !strings.Contains(got.Why, "Of 3 members 1 can be reached") {
			t.Errorf("%+v", got)
		}
	}
	c.Election.Quorum = config.None
	if got := finding(t, Examine(c, f), "member", "m2"); got.Severity != Warning {
		t.Errorf("without a quorum: %+v", got)
	}
}

// What looks like a fault is none.
func TestNoFalseAlarm(t *testing.T) {
	gossip := Port{"gossip", "udp", netip.MustParseAddrPort("10.0.1.1:7946")}
	for _, test := range []struct {
		name, file     string
		change         func(*config.Config, *Facts)
		topic, subject string
		want           string
	}{
		{"the holder is a member", flatFile, func(_ *config.Config, f *Facts) { f.Wire[vip] = Use{MAC: m2} }, "vip", "api", "held by m2 at 02:00:00:00:00:02"},
		{"Herald's own port", flatFile, func(_ *config.Config, f *Facts) {
			f.Running = running1(f.File)
			f.Ports[gossip] = syscall.EADDRINUSE
			f.Sockets = []Socket{{Network: "udp", Local: gossip.Local, PID: 7, Program: "herald"}}
		}, "port", "gossip 10.0.1.1:7946/udp", "Herald's own, process 7"},
		{"Herald's own address", routedFile, func(_ *config.Config, f *Facts) {
			f.Host.Addresses = append(f.Host.Addresses, netutil.Address{Link: "lo", Prefix: netip.MustParsePrefix("10.99.0.10/32"), Herald: true})
		}, "vip", "api 10.99.0.10", "goes on lo"},
		{"one link, strict", routedFile, func(_ *config.Config, f *Facts) {
			delete(f.Host.Links, "eth1")
			f.Settings["net/ipv4/conf/all/rp_filter"] = "1"
		}, "node", "rp_filter", "strict, with which one link gets along"},
		{"loose", routedFile, func(_ *config.Config, f *Facts) {
			f.Settings["net/ipv4/conf/all/rp_filter"], f.Settings["net/ipv4/conf/eth0/rp_filter"] = "2", "1"
		}, "node", "rp_filter", "not strict"},
		{"the router runs here", routedFile, func(c *config.Config, f *Facts) {
			c.BGP.Peers[1].Address = netip.MustParseAddr("127.0.0.1")
			f.Sockets = []Socket{{Network: "tcp", Local: netip.MustParseAddrPort("0.0.0.0:179"), PID: 7, Program: "bird"}}
		}, "software", "this node", "nothing else"},
		{"strictARP", flatFile, func(_ *config.Config, f *Facts) {
			f.Host.Links["kube-ipvs0"] = netutil.Link{Name: "kube-ipvs0"}
			f.Settings["net/ipv4/conf/all/arp_ignore"] = "1"
		}, "node", "kube-ipvs0", "has strictARP"},
		{"a fence that was left", flatFile, func(_ *config.Config, f *Facts) { f.FenceLeft = true }, "node", "fence", "the next one takes it over"},
		{"votes are heard", flatFile, func(_ *config.Config, f *Facts) {
			f.Running = running1(f.File)
			f.Running.Election.Members = []admin.Member{{Name: "m1", Self: true}, {Name: "m2", Alive: true}}
		}, "member", "m2", "its votes are heard"},
		{"established", routedFile, func(_ *config.Config, f *Facts) { f.Running = running1(f.File) }, "peer", "10.0.1.254", "the session is established"},
		{"unnumbered", routedFile, func(c *config.Config, f *Facts) {
			c.BGP.Peers[1].Address, c.BGP.Peers[1].Interface = netip.Addr{}, "eth1"
		}, "peer", "eth1", "the link is up"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := parsed(t, test.file)
			f := well(c)
			test.change(c, f)
			all := Examine(c, f)
			for _, f := range all {
				if f.Severity != OK {
					t.Errorf("%+v", f)
				}
			}
			if got := finding(t, all, test.topic, test.subject); !strings.Contains(got.Seen, test.want) {
				t.Errorf("%+v, want %q", got, test.want)
			}
		})
	}
}
