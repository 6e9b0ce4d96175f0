package doctor

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/doctor/facts"
	"github.com/herald-vip/herald/election/lease"
	"github.com/herald-vip/herald/health"
	"github.com/herald-vip/herald/netutil/fence"
	"github.com/herald-vip/herald/netutil/link"
	"github.com/herald-vip/herald/status/admin"
)

func TestNoFault(t *testing.T) {
	for _, file := range []string{routedFile, passingFile(), flatFile, balancedFile, workerFile} {
		if wrong := faulty(examine(node(t, file))); len(wrong) > 0 {
			t.Errorf("%+v", wrong)
		}
	}
}

// fault is a change of a node without faults, with the only finding that is then not OK.
type fault struct {
	name     string
	spoil    func(c *config.Config, f *facts.Facts)
	severity Severity
	topic    string
	want     string // in subject and seen
}

func TestFaults(t *testing.T) {
	gossip := facts.Port{Use: "gossip", Network: "udp", Local: netip.MustParseAddrPort("10.0.1.1:7946")}
	bfd := facts.Port{Use: "BFD", Network: "udp", Local: netip.MustParseAddrPort("0.0.0.0:3784")}
	drop := func(bit int) func(*config.Config, *facts.Facts) {
		return func(_ *config.Config, f *facts.Facts) { f.Capabilities &^= 1 << bit }
	}
	changeLink := func(f *facts.Facts, name string, change func(*link.Link)) {
		l := f.Host.Links[name]
		change(&l)
		f.Host.Links[name] = l
	}
	for kind, faults := range map[string][]fault{
		balancedFile:  balancerFaults(),
		workerFile:    workerFaults(),
		passingFile(): passingFaults(),
		routedFile: {
			{"no right to addresses", drop(unix.CAP_NET_ADMIN), Blocker, "process", "CAP_NET_ADMIN: this process does not have it"},
			{"no right to port 179", drop(unix.CAP_NET_BIND_SERVICE), Blocker, "process", "CAP_NET_BIND_SERVICE"},
			{"no right to real time", drop(unix.CAP_SYS_NICE), Warning, "process", "CAP_SYS_NICE"},
			{"no right to lock memory", drop(unix.CAP_IPC_LOCK), Warning, "process", "CAP_IPC_LOCK"},
			{"few descriptors", func(_ *config.Config, f *facts.Facts) { f.Descriptors = 64 }, Warning, "process", "at most 64"},
			{"no real time", func(_ *config.Config, f *facts.Facts) { f.Settings["kernel/sched_rt_runtime_us"] = "0" }, Warning, "node", "kernel.sched_rt_runtime_us: 0"},
			{"coarse clock", func(_ *config.Config, f *facts.Facts) { f.ClockSource = "hpet" }, Warning, "node", "clock source: hpet"},
			{"password for all", func(_ *config.Config, f *facts.Facts) { f.Modes["/etc/herald/bgp-password"] = 0o644 }, Warning, "configuration", "mode 0644"},
			{"IPv6 off", func(_ *config.Config, f *facts.Facts) { f.Settings["net/ipv6/conf/lo/disable_ipv6"] = "1" }, Blocker, "node", "net.ipv6.conf.lo.disable_ipv6: 1"},
			{"strict reverse path", func(_ *config.Config, f *facts.Facts) { f.Settings["net/ipv4/conf/eth1/rp_filter"] = "1" }, Warning, "node", "strict on eth1, of 2 links"},
			{"VIP in a subnet", func(c *config.Config, f *facts.Facts) {
				f.Host.Links["eth2"] = link.Link{Name: "eth2", Index: 9, Prefixes: []netip.Prefix{netip.MustParsePrefix("10.99.0.0/24")}}
			}, Warning, "node", "arp_ignore: 0 on eth2, and its subnet has the VIP 10.99.0.10"},
			{"no such link", func(c *config.Config, f *facts.Facts) {
				c.VIPs[0].Addresses, c.VIPs[0].Interface = c.VIPs[0].Addresses[:1], "dummy0"
			}, Blocker, "vip", "there is no link dummy0"},
			{"another program's address", func(_ *config.Config, f *facts.Facts) {
				f.Host.Addresses = append(f.Host.Addresses, link.Address{Link: "lo", Prefix: netip.MustParsePrefix("10.99.0.10/32")})
			}, Blocker, "vip", "10.99.0.10/32 is on lo already, and Herald did not put it there"},
			{"BFD's port taken", func(_ *config.Config, f *facts.Facts) {
				f.Ports[bfd] = syscall.EADDRINUSE
				f.Sockets = []facts.Socket{{Network: "udp", Local: bfd.Local, PID: 7, Program: "bfdd"}}
			}, Blocker, "port", "BFD 0.0.0.0:3784/udp: in use by bfdd, process 7"},
			{"no router ID", func(_ *config.Config, f *facts.Facts) { f.RouterIDError = errors.New("none") }, Blocker, "port", "bgp.routerID"},
			{"local address elsewhere", func(c *config.Config, _ *facts.Facts) { c.BGP.Peers[1].LocalAddress = netip.MustParseAddr("10.0.7.1") }, Blocker, "port", "localAddress 10.0.7.1: no link"},
			{"one peer of two", func(_ *config.Config, f *facts.Facts) { f.Peers["10.0.1.254"] = "10.0.1.254 does not answer" }, Warning, "peer", "10.0.1.254 AS 64500: 10.0.1.254 does not answer"},
			{"no default gateway", func(c *config.Config, f *facts.Facts) {
				c.BGP.Peers[1] = v1alpha1.Peer{DefaultGateway: v1alpha1.IPv6, ASN: v1alpha1.External, Port: 179}
				f.Peers["default-ipv6"] = "no default route of the main routing table has a gateway"
			}, Warning, "peer", "default-ipv6 AS external: no default route"},
			{"another speaker", listening("0.0.0.0:179", "bird"), Warning, "software", "bird, process 7: also speaks BGP from this node"},
			{"failing check", verdict(health.Verdict{State: health.Unhealthy, Reason: "500"}), Warning, "check", "apiserver: 500"},
			{"slow check", verdict(health.Verdict{}), Warning, "check", "no answer during"},
			{"busy server", verdict(health.Verdict{Warning: "overloaded: 429"}), Warning, "check", "overloaded"},
			{"check's own fault", verdict(health.Verdict{State: health.Unhealthy, OwnFault: true, Reason: "GET https://127.0.0.1:6443/readyz: check's own: caFile /etc/kubernetes/pki/ca.crt: no PEM certificates"}), Blocker, "check", "no PEM certificates"},
			{"file not created yet", func(_ *config.Config, f *facts.Facts) {
				f.Checks[0] = health.Verdict{Name: "apiserver", State: health.Unhealthy, OwnFault: true, Reason: "GET https://127.0.0.1:6443/readyz: check's own: caFile /etc/kubernetes/pki/ca.crt: no such file or directory"}
				f.Absent = map[string]bool{"apiserver": true}
			}, Warning, "check", "ca.crt: no such file or directory"},
			{"Herald with another file", func(_ *config.Config, f *facts.Facts) { f.Running = running1("/root/test.yaml") }, Warning, "herald", "runs with /root/test.yaml"},
			{"Herald refuses the file", runs(func(s *admin.Status) { s.Config.Error = "vips: at least one is needed" }), Warning, "herald", "not in force: vips: at least one"},
			{"drained", runs(func(s *admin.Status) { s.Draining = "upgrade" }), Warning, "herald", "is drained: upgrade"},
			{"not root", func(_ *config.Config, f *facts.Facts) {
				f.RunningError = fmt.Errorf("connect: %w", syscall.EACCES)
				f.Programs = []facts.Program{{PID: 7, Name: "herald", Args: []string{"herald", "run"}}}
			}, Warning, "herald", "only root may use it"},
			{"a frozen Herald", func(_ *config.Config, f *facts.Facts) {
				f.RunningError = fmt.Errorf("status: %w", context.DeadlineExceeded)
				f.Programs = []facts.Program{{PID: 7, Name: "herald", Args: []string{"herald", "run"}}}
				f.Ports[bfd] = syscall.EADDRINUSE
				f.Sockets = []facts.Socket{{Network: "udp", Local: bfd.Local, PID: 7, Program: "herald"}}
			}, Blocker, "herald", "does not answer: it is frozen or starved"},
			{"a Herald that does not answer", func(_ *config.Config, f *facts.Facts) {
				f.Programs = []facts.Program{{PID: 7, Name: "herald", Args: []string{"herald", "run", "--config", "x"}}}
			}, Blocker, "herald", "process 7: runs, but does not answer"},
		},
		flatFile: {
			{"no right to packets", drop(unix.CAP_NET_RAW), Blocker, "process", "CAP_NET_RAW"},
			{"key for all", func(_ *config.Config, f *facts.Facts) { f.Modes["/etc/herald/gossip.key"] = 0o640 }, Warning, "configuration", "gossip.key: mode 0640"},
			{"in the clear", func(c *config.Config, _ *facts.Facts) { c.Election.Insecure = true }, Warning, "configuration", "votes are not encrypted"},
			{"wrong subnet", func(c *config.Config, _ *facts.Facts) { c.VIPs[0].Addresses[0] = netip.MustParseAddr("10.0.9.100") }, Blocker, "vip", "no link has an address in its subnet"},
			{"wrong interface", func(c *config.Config, _ *facts.Facts) { c.VIPs[0].Interface = "eth1" }, Warning, "vip", "no address of eth1 is in its subnet"},
			{"link down", func(_ *config.Config, f *facts.Facts) { changeLink(f, "eth0", func(l *link.Link) { l.Up = false }) }, Blocker, "vip", "link eth0 is down"},
			{"stranger", func(_ *config.Config, f *facts.Facts) { f.Wire[vip] = facts.Use{MAC: stranger, Stranger: stranger} }, Blocker, "vip", "in use by 02:00:00:00:00:09, which is no member"},
			{"stranger beside the holder", func(_ *config.Config, f *facts.Facts) { f.Wire[vip] = facts.Use{MAC: m2, Stranger: stranger} }, Blocker, "vip", "in use by 02:00:00:00:00:09"},
			{"perhaps a member", func(c *config.Config, f *facts.Facts) {
				c.Election.Members["m3"] = netip.MustParseAddrPort("192.168.0.3:7946")
				f.Wire[vip] = facts.Use{MAC: stranger, Stranger: stranger}
			}, Warning, "vip", "in use by 02:00:00:00:00:09, which may or may not be m3"},
			{"mute", func(_ *config.Config, f *facts.Facts) {
				f.Wire[vip] = facts.Use{Err: errors.New("this process cannot send packets on eth0")}
			}, Warning, "vip", "other machines that use it: this process cannot send"},
			{"unknown links", func(_ *config.Config, f *facts.Facts) { f.HostError = errors.New("no netlink") }, Warning, "vip", "cannot be read: no netlink"},
			{"no fence", func(_ *config.Config, f *facts.Facts) { f.FenceError = fence.ErrUnsupported }, Warning, "node", "fence: no kernel fence"},
			{"no fence, and required", func(c *config.Config, f *facts.Facts) {
				c.ARP.Fence, f.FenceError = config.FenceRequired, fence.ErrUnsupported
			}, Blocker, "node", "fence"},
			{"fence unknown", func(_ *config.Config, f *facts.Facts) { f.FenceError = errors.New("no thread") }, Warning, "node", "cannot be tested: no thread"},
			{"fence off", func(c *config.Config, _ *facts.Facts) { c.ARP.Fence = config.FenceOff }, Warning, "node", "arp.fence is off"},
			{"Herald without fence", runs(func(s *admin.Status) { s.Election.Fence = "no nf_tables" }), Warning, "node", "runs without: no nf_tables"},
			{"IPVS", func(_ *config.Config, f *facts.Facts) { f.Host.Links["kube-ipvs0"] = link.Link{Name: "kube-ipvs0"} }, Warning, "node", "without strictARP"},
			{"neighbour table", func(_ *config.Config, f *facts.Facts) { f.Settings["net/ipv4/neigh/default/gc_thresh3"] = "4" }, Warning, "node", "gc_thresh3: 4, and 3 neighbours and VIPs"},
			{"gossip's port taken", func(_ *config.Config, f *facts.Facts) { f.Ports[gossip] = syscall.EADDRINUSE }, Blocker, "port", "gossip 10.0.1.1:7946/udp: in use by a program that is not visible"},
			{"gossip's port forbidden", func(_ *config.Config, f *facts.Facts) { f.Ports[gossip] = syscall.EACCES }, Blocker, "port", "may not open it"},
			{"gossip's address elsewhere", func(c *config.Config, f *facts.Facts) {
				f.Ports = nil
				c.Election.Bind = netip.MustParseAddrPort("10.0.1.77:7946")
			}, Blocker, "port", "election.bind 10.0.1.77: no link"},
			{"member with another's address", func(c *config.Config, f *facts.Facts) {
				f.Ports = nil
				c.Election.Bind = netip.MustParseAddrPort("10.0.1.77:7946")
				c.Election.Members["m1"] = c.Election.Bind
			}, Blocker, "port", "election.members.m1 10.0.1.77: no link"},
			{"member down", reaches2(facts.Silent, facts.Silent), Warning, "member", "m2 10.0.1.2:7946: does not answer"},
			{"member unreachable", reaches2(facts.Unreachable, facts.Unreachable), Warning, "member", "unreachable"},
			{"member without Herald", reaches2(facts.Refused, facts.Refused), Warning, "member", "nothing listens"},
			{"filtered votes", reaches2(facts.Accepted, facts.Refused), Blocker, "member", "accepts TCP, but UDP is refused"},
			{"keepalived for others", func(_ *config.Config, f *facts.Facts) { f.Programs = []facts.Program{{PID: 7, Name: "keepalived"}} }, Warning, "software", "keepalived, process 7"},
			{"keepalived for the VIP", func(_ *config.Config, f *facts.Facts) {
				f.Programs = []facts.Program{{PID: 7, Name: "keepalived", Mentions: []netip.Addr{vip}}}
			}, Blocker, "software", "keepalived, process 7: runs beside Herald, for the VIP 10.0.1.100"},
			{"static pod for the VIP", func(_ *config.Config, f *facts.Facts) {
				f.Manifests = []facts.Manifest{{File: "/etc/kubernetes/manifests/kube-vip.yaml", Image: "ghcr.io/kube-vip/kube-vip:v1", Mentions: []netip.Addr{vip}}}
			}, Blocker, "software", "kube-vip.yaml: is a static pod of ghcr.io/kube-vip/kube-vip:v1, for the VIP"},
			{"no part in the election", runs(func(s *admin.Status) { s.Election.Problem = "m2 has 5 members" }), Blocker, "member", "m2 has 5 members"},
			{"bootstraps for ever", func(c *config.Config, f *facts.Facts) {
				c.Election.Bootstrap = true
				hears(lease.Member{Name: "m1", Self: true, Voter: true}, lease.Member{Name: "m2", Voter: true, Alive: true})(c, f)
			}, Warning, "member", "election.bootstrap: is still set, and the cluster exists"},
			{"another key", hears(lease.Member{Name: "m2", Address: netip.MustParseAddrPort("10.0.1.2:7946"), Problem: "its messages cannot be decrypted"}), Warning, "member", "its messages cannot be decrypted"},
			{"no votes", hears(lease.Member{Name: "m2", Address: netip.MustParseAddrPort("10.0.1.2:7946")}), Warning, "member", "m2 10.0.1.2:7946: no votes arrive"},
		},
	} {
		for _, test := range faults {
			t.Run(test.name, func(t *testing.T) {
				c, f := node(t, kind)
				test.spoil(c, f)
				wrong := faulty(examine(c, f))
				if len(wrong) != 1 {
					t.Fatalf("got %+v, want one finding", wrong)
				}
				got := wrong[0]
				if text := got.Subject + ": " + got.Seen; got.Severity != test.severity || got.Topic != test.topic || !strings.Contains(text, test.want) {
					t.Errorf("got %s of %s, %q; want %s of %s, %q", got.Severity, got.Topic, text, test.severity, test.topic, test.want)
				}
				if got.Why == "" || got.Cure == "" {
					t.Errorf("%+v has no reason or no cure", got)
				}
			})
		}
	}
}

// A failing check of a link names the link in its cure: there is no server to repair.
func TestLinkWithoutCarrier(t *testing.T) {
	c, f := node(t, routedFile)
	c.Checks[0] = health.Check{Name: "apiserver", Link: &health.Link{Name: "eth1"}}
	f.Checks[0] = health.Verdict{Name: "apiserver", State: health.Unhealthy, Reason: "eth1: no carrier"}
	if wrong := faulty(examine(c, f)); len(wrong) != 1 || !strings.Contains(wrong[0].Cure, "set the link up") {
		t.Errorf("got %+v, want one finding with a cure for the link", wrong)
	}
}

// passingFile is the file of a master that passes packets of other members' connections on.
func passingFile() string {
	return routedFile + `
election:
  members: {m1: "10.0.1.1:7946", m2: "10.0.1.2:7946", m3: "10.0.1.3:7946"}
  keyFile: /etc/herald/gossip.key
`
}

// passing adds a running Herald with status p.
func passing(p *admin.Passing) func(*config.Config, *facts.Facts) {
	return runs(func(s *admin.Status) { s.Passing = p })
}

// tunnelPort makes the tunnel's port taken, by these sockets if given.
func tunnelPort(by ...facts.Socket) func(*config.Config, *facts.Facts) {
	return func(_ *config.Config, f *facts.Facts) {
		p := facts.Port{Use: "second chance", Network: "udp", Local: netip.MustParseAddrPort("0.0.0.0:7947")}
		if _, ok := f.Ports[p]; ok { // else the port is not examined
			f.Ports[p] = syscall.EADDRINUSE
		}
		f.Sockets = by
	}
}

// tunnelLink does the same and adds a link with the tunnel's name and this kind.
func tunnelLink(kind string, up bool) func(*config.Config, *facts.Facts) {
	return func(c *config.Config, f *facts.Facts) {
		tunnelPort()(c, f)
		f.Host.Links[link.TunnelName] = link.Link{Name: link.TunnelName, Index: 9, Kind: kind, Up: up}
	}
}

func passingFaults() []fault {
	const inUse = "second chance 0.0.0.0:7947/udp: in use by "
	serf := facts.Socket{Network: "udp", Local: netip.MustParseAddrPort("10.0.1.1:7947"), PID: 7, Program: "serf"}
	return []fault{
		{"not passed on", passing(&admin.Passing{Error: "no nftables"}), Warning, "member", "second chance: no nftables"},
		{"not passed on to all", passing(&admin.Passing{Members: []string{"m3"}, Error: "no answer by the tunnel from m2"}), Warning, "member", "second chance: no answer by the tunnel from m2"},
		{"the tunnel's port taken", tunnelPort(serf), Warning, "port", inUse + "serf, process 7"},
		{"another's link", tunnelLink("bridge", true), Warning, "port", inUse + "a program that is not visible"},
		{"a tunnel that could not be set up", tunnelLink("vxlan", false), Warning, "port", inUse + "a program that is not visible"},
	}
}
