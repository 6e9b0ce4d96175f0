package doctor

import (
	"crypto/x509"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/doctor/facts"
	"github.com/herald-vip/herald/election/electorate"
	"github.com/herald-vip/herald/election/lease"
	"github.com/herald-vip/herald/health"
	"github.com/herald-vip/herald/netutil/link"
	"github.com/herald-vip/herald/netutil/newconns"
	"github.com/herald-vip/herald/speaker"
	"github.com/herald-vip/herald/status/admin"
)

// Without a session to any peer, or without a majority, the finding is a blocker.
func TestAllOthersGone(t *testing.T) {
	c, f := node(t, routedFile)
	f.Peers["10.0.1.254"], f.Peers["10.0.2.254"] = "it does not answer", "it refuses"
	all := examine(c, f)
	for _, peer := range []string{"10.0.1.254", "10.0.2.254"} {
		if got := finding(t, all, "peer", peer); got.Severity != Blocker {
			t.Errorf("%+v", got)
		}
	}
	if got := finding(t, all, "peer", "10.0.1.254"); !strings.Contains(got.Why, "as silent as a filter") || !strings.Contains(got.Cure, "neighbor 10.0.1.1 remote-as 64512 with the password") {
		t.Errorf("a peer with a password: %+v", got)
	}
	f.Peers["10.0.2.254"] = "10.0.2.254 is unreachable: no route, or no answer to ARP or NDP"
	if got := finding(t, examine(c, f), "peer", "10.0.2.254"); !strings.HasPrefix(got.Cure, "ip route get 10.0.2.254;") {
		t.Errorf("unreachable peer: %+v", got)
	}

	c, f = node(t, flatFile)
	f.Members["m2"], f.Members["m3"] = facts.Reach{TCP: facts.Silent, UDP: facts.Silent}, facts.Reach{TCP: facts.Unreachable, UDP: facts.Unreachable}
	for _, member := range []string{"m2", "m3"} {
		if got := finding(t, examine(c, f), "member", member); got.Severity != Blocker || !strings.Contains(got.Why, "Of 3 members 1 can be reached") {
			t.Errorf("%+v", got)
		}
	}
	f.Wire[vip] = facts.Use{MAC: m2}
	f.Members["m2"] = facts.Reach{TCP: facts.Refused, UDP: facts.Refused}
	if got := finding(t, examine(c, f), "vip", "api"); got.Severity != Blocker || !strings.Contains(got.Seen, "in use by m2 at 02:00:00:00:00:02, where Herald does not run") {
		t.Errorf("a member has the VIP but does not run Herald: %+v", got)
	}
	f.Members["m2"] = facts.Reach{TCP: facts.Silent, UDP: facts.Silent}
	c.Election.Quorum = electorate.None
	if got := finding(t, examine(c, f), "member", "m2"); got.Severity != Warning {
		t.Errorf("without a quorum: %+v", got)
	}
}

// If the server runs, a missing file of its check will not appear later: a blocker.
func TestFileMissingBesideItsServer(t *testing.T) {
	c, f := node(t, routedFile)
	f.Checks[0] = health.Verdict{Name: "apiserver", State: health.Unhealthy, OwnFault: true, Reason: "check's own: tokenFile /etc/herald/token: no such file or directory"}
	f.Absent = map[string]bool{"apiserver": true}
	f.Endpoints = map[string]facts.Endpoint{"apiserver": {Chain: []*x509.Certificate{certificate()}}}
	if got := finding(t, examine(c, f), "check", "apiserver"); got.Severity != Blocker {
		t.Errorf("%+v", got)
	}
}

// These are not faults.
func TestNoFalseAlarm(t *testing.T) {
	gossip := facts.Port{Use: "gossip", Network: "udp", Local: netip.MustParseAddrPort("10.0.1.1:7946")}
	quiet := func(s speaker.Status) func(*config.Config, *facts.Facts) {
		return runs(func(a *admin.Status) {
			a.VIPs = []admin.VIP{{Status: s, State: speaker.Announced, Arrivals: &newconns.Count{Last: now.Add(-2 * time.Minute)}}}
		})
	}
	for _, test := range []struct {
		name, file     string
		change         func(*config.Config, *facts.Facts)
		topic, subject string
		want           string
	}{
		{"the holder is a member", flatFile, func(_ *config.Config, f *facts.Facts) { f.Wire[vip] = facts.Use{MAC: m2} }, "vip", "api", "held by m2 at 02:00:00:00:00:02"},
		{"Herald's own port", flatFile, func(_ *config.Config, f *facts.Facts) {
			f.Running = running1(f.File)
			f.Ports[gossip] = syscall.EADDRINUSE
			f.Sockets = []facts.Socket{{Network: "udp", Local: gossip.Local, PID: 7, Program: "herald"}}
		}, "port", "gossip 10.0.1.1:7946/udp", "Herald's own, process 7"},
		{"perhaps Herald's own port", flatFile, func(_ *config.Config, f *facts.Facts) {
			f.Running = running1(f.File)
			f.Ports[gossip] = syscall.EADDRINUSE
		}, "port", "gossip 10.0.1.1:7946/udp", "in use, and Herald runs"},
		{"Herald's own address", routedFile, func(_ *config.Config, f *facts.Facts) {
			f.Host.Addresses = append(f.Host.Addresses, link.Address{Link: "lo", Prefix: netip.MustParsePrefix("10.99.0.10/32"), Herald: true})
		}, "vip", "api 10.99.0.10", "goes on lo"},
		{"one link, strict", routedFile, func(_ *config.Config, f *facts.Facts) {
			delete(f.Host.Links, "eth1")
			f.Settings["net/ipv4/conf/all/rp_filter"] = "1"
		}, "node", "rp_filter", "strict, and there is only one link"},
		{"loose", routedFile, func(_ *config.Config, f *facts.Facts) {
			f.Settings["net/ipv4/conf/all/rp_filter"], f.Settings["net/ipv4/conf/eth0/rp_filter"] = "2", "1"
		}, "node", "rp_filter", "not strict"},
		{"the router runs here", routedFile, func(c *config.Config, f *facts.Facts) {
			c.BGP.Peers[1].Address = netip.MustParseAddr("127.0.0.1")
			f.Sockets = []facts.Socket{{Network: "tcp", Local: netip.MustParseAddrPort("0.0.0.0:179"), PID: 7, Program: "bird"}}
		}, "software", "this node", "no other program"},
		{"strictARP", flatFile, func(_ *config.Config, f *facts.Facts) {
			f.Host.Links["kube-ipvs0"] = link.Link{Name: "kube-ipvs0"}
			f.Settings["net/ipv4/conf/all/arp_ignore"] = "1"
		}, "node", "kube-ipvs0", "has strictARP"},
		{"fence of an earlier Herald", flatFile, func(_ *config.Config, f *facts.Facts) { f.FenceLeft = true }, "node", "fence", "the next one takes it over"},
		{"votes arrive", flatFile, hears(lease.Member{Name: "m1", Self: true}, lease.Member{Name: "m2", Alive: true}), "member", "m2", "its votes arrive"},
		{"bootstraps alone", flatFile, func(c *config.Config, f *facts.Facts) {
			c.Election.Bootstrap = true
			hears(lease.Member{Name: "m1", Self: true, Voter: true}, lease.Member{Name: "m2", Alive: true})(c, f)
		}, "member", "m2", "its votes arrive"},
		{"established", routedFile, runs(func(*admin.Status) {}), "peer", "10.0.1.254", "the session is established"},
		{"no new connections", routedFile, quiet(speaker.Status{Name: "control-plane", Address: netip.MustParseAddr("10.99.0.10"), Since: now.Add(-time.Hour)}), "vip", "control-plane", "no new TCP connection for 2m0s: if other nodes get some, a router does not use"},
		{"no new connections on a flat layer 2", flatFile, quiet(speaker.Status{Name: "held", Announce: speaker.ByARP}), "vip", "held", "the switch or a gateway sends its packets elsewhere"},
		{"passed on", passingFile(), passing(&admin.Passing{Members: []string{"m2", "m3"}}), "member", "second chance", "are passed on to m2 and m3"},
		{"no member passes on yet", passingFile(), passing(&admin.Passing{}), "member", "second chance", "no other member passes packets on"},
		{"the tunnel's own port", passingFile(), tunnelLink("vxlan", true), "port", "second chance 0.0.0.0:7947/udp", "own link herald-tunnel has it"},
		{"unnumbered", routedFile, func(c *config.Config, f *facts.Facts) {
			c.BGP.Peers[1].Address, c.BGP.Peers[1].Interface = netip.Addr{}, "eth1"
		}, "peer", "eth1", "the link is up"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, f := node(t, test.file)
			test.change(c, f)
			all := examine(c, f)
			if wrong := faulty(slices.Clone(all)); len(wrong) > 0 {
				t.Errorf("%+v", wrong)
			}
			if got := finding(t, all, test.topic, test.subject); !strings.Contains(got.Seen, test.want) {
				t.Errorf("%+v, want %q", got, test.want)
			}
		})
	}
}

// A VIP in a kernel routing table needs the tun device, and IPv6 servers need ip_nonlocal_bind.
func TestRoutesInTheKernel(t *testing.T) {
	const file = `apiVersion: herald.dev/v1alpha1
kind: Speaker
nodeName: m1
vips: [{name: dns, addresses: [10.99.0.53, "fd00:99::53"], announce: kernel, checks: [apiserver]}]
checks: [{name: apiserver, tcp: {address: "127.0.0.1:53"}}]
`
	for _, tt := range []struct {
		name, subject string
		change        func(*facts.Facts)
		severity      Severity
		seen          string
	}{
		{"well", "dns 10.99.0.53", func(*facts.Facts) {}, OK, "must announce it from table 201"},
		{"no device", "dns 10.99.0.53", func(f *facts.Facts) { f.TunError = syscall.ENOENT }, Blocker, "/dev/net/tun cannot be opened: no such file"},
		{"servers cannot bind it", "dns fd00:99::53", func(f *facts.Facts) { f.Settings[nonlocalBind] = "0" }, Warning, "net.ipv6.ip_nonlocal_bind is 0"},
		{"on a link", "dns 10.99.0.53", func(f *facts.Facts) {
			f.Host.Addresses = append(f.Host.Addresses, link.Address{Link: "lo", Prefix: netip.MustParsePrefix("10.99.0.53/32")})
		}, Blocker, "on lo already"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, f := node(t, file)
			tt.change(f)
			if got := finding(t, examine(c, f), "vip", tt.subject); got.Severity != tt.severity || !strings.Contains(got.Seen, tt.seen) {
				t.Errorf("%+v", got)
			}
		})
	}
}
