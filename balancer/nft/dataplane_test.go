package nft

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/herald-vip/herald/balancer"
	"github.com/herald-vip/herald/testenv/wait"
)

// Of 3,000 connections each of three backends gets a third, at each listener, and the counters agree.
func TestSpread(t *testing.T) {
	s := newSite(t)
	s.holds(s.node)
	p := s.node.plane(Options{Node: "node"})
	s.must(p.Apply([]balancer.Service{s.service(local, vip4, vip6)}))
	const each = 750
	got := make(map[string]int)
	for _, from := range []struct {
		client *machine
		dst    netip.AddrPort
	}{{s.node, local}, {s.client, vip4}, {s.client, vip6}, {s.node, vip4}} {
		for server, n := range from.client.served(from.dst, each) {
			got[server] += n
		}
	}
	for _, m := range s.masters {
		if n := got[m.name]; n < 950 || n > 1050 {
			t.Errorf("%s got %d of 3,000", m.name, n)
		}
	}
	counts, err := p.Counts()
	s.must(err)
	for _, c := range counts {
		for _, m := range s.masters {
			if c.Backend.Addr() == m.v4 || c.Backend.Addr() == m.v6 {
				got[m.name] -= int(c.Connections)
			}
		}
	}
	for name, n := range got {
		if n != 0 {
			t.Errorf("%s: %d more connections than counted", name, n)
		}
	}
}

// Masters see the node's address as the source, and the client's with a transparent service or a backend on the node.
func TestSource(t *testing.T) {
	s := newSite(t)
	s.holds(s.node)
	s.node.serve(port)
	p := s.node.plane(Options{})
	service := s.service(local, vip4, vip6)
	s.must(p.Apply([]balancer.Service{service}))
	expect := func(from *machine, dst netip.AddrPort, want netip.Addr) {
		t.Helper()
		if c := from.connect(dst); c.source != want.String() {
			t.Errorf("from %s to %s: %s sees %s, want %s", from.name, dst, c.server, c.source, want)
		}
	}
	expect(s.node, local, s.node.v4)
	expect(s.client, vip4, s.node.v4)
	expect(s.client, vip6, s.node.v6)
	service.Backends = s.backends(balancer.Serving, s.node)
	s.must(p.Apply([]balancer.Service{service}))
	expect(s.node, local, local.Addr())
	expect(s.client, vip4, s.client.v4)
	expect(s.client, vip6, s.client.v6)

	// A backend of a transparent service has to answer through the node.
	m := s.masters[0]
	m.Run("", "ip", "route", "add", s.client.v4.String(), "via", s.node.v4.String())
	service.Backends, service.Transparent = s.backends(balancer.Serving, m), true
	s.must(p.Apply([]balancer.Service{service}))
	expect(s.client, vip4, s.client.v4)
}

// Other hosts cannot reach a listener at 127.0.0.1, and route_localnet is reset after the last listener.
func TestLocalhostStaysLocal(t *testing.T) {
	s := newSite(t)
	const setting = "/proc/sys/net/ipv4/conf/eth0/route_localnet"
	expect := func(want string) {
		t.Helper()
		if got := s.node.Run("", "cat", setting); got != want+"\n" {
			t.Errorf("route_localnet is %s, want %s", got, want)
		}
	}
	p := s.node.idlePlane(Options{})
	expect("0")
	s.must(p.Apply([]balancer.Service{s.service(local)}))
	expect("1")
	// A neighbour that routes 127.0.0.1 to the node.
	s.client.Run("", "sh", "-ec", `sysctl -qw net.ipv4.conf.eth0.route_localnet=1
		ip rule del pref 0; ip rule add pref 10 lookup local
		ip rule add pref 1 to 127.0.0.1 lookup 100; ip route add 127.0.0.1 via `+s.node.v4.String()+` dev eth0 table 100`)
	if c, err := s.client.dialFor(local, time.Second); err == nil {
		t.Errorf("a neighbour got through to %s", c.server)
	}
	if got := s.node.Run("", "nft", "list", "chain", "inet", tableName, guard); strings.Contains(got, "127.0.0.0/8 counter packets 0 bytes 0 drop comment \"from outside to") {
		t.Errorf("no packet was dropped:\n%s", got)
	}

	c := s.node.connect(local)
	s.must(p.Apply(nil))
	s.must(p.refresh())
	expect("1") // a connection needs it
	s.must(c.echoes())
	s.must(c.SetLinger(0))
	s.must(c.Close())
	wait.Until(t, "the table is gone", func() bool {
		s.must(p.refresh())
		return !strings.Contains(s.node.Run("", "nft", "list", "tables"), tableName)
	})
	expect("0")
	// The same after a killed predecessor.
	s.must(p.Apply([]balancer.Service{s.service(local)}))
	expect("1")
	s.must(clearTable(int(s.node.NS)))
	expect("0")
	s.must(clearTable(int(s.node.NS)))
}

// A setting that another program made stays.
func TestSettingsOfOthers(t *testing.T) {
	s := newSite(t)
	s.node.Run("", "sysctl", "-qw", "net.ipv4.conf.eth0.route_localnet=1")
	p := s.node.idlePlane(Options{})
	s.must(p.Apply([]balancer.Service{s.service(local)}))
	s.must(p.Apply(nil))
	s.must(p.refresh())
	if got := s.node.Run("", "sysctl", "-n", "net.ipv4.conf.eth0.route_localnet"); got != "1\n" {
		t.Errorf("route_localnet is %s", got)
	}
}

// Forwarding is switched on, and links still accept router advertisements.
func TestForwarding(t *testing.T) {
	s := newSite(t)
	s.holds(s.node)
	s.node.Run("", "sysctl", "-qw", "net.ipv4.ip_forward=0", "net.ipv6.conf.all.forwarding=0", "net.ipv6.conf.eth0.accept_ra=1")
	p := s.node.plane(Options{})
	s.must(p.Apply([]balancer.Service{s.service(vip4, vip6)}))
	s.client.served(vip4, 3)
	s.client.served(vip6, 3)
	if got := s.node.Run("", "sysctl", "-n", "net.ipv6.conf.eth0.accept_ra"); got != "2\n" {
		t.Errorf("accept_ra is %s", got)
	}
}

// A client stays with its backend when another one goes.
func TestSourceHash(t *testing.T) {
	s := newSite(t)
	s.holds(s.node)
	p := s.node.plane(Options{})
	service := s.service(vip4)
	service.Method = balancer.SourceHash
	s.must(p.Apply([]balancer.Service{service}))
	var sources []netip.Addr
	for i := range 30 {
		addr := netip.AddrFrom4([4]byte{10, 9, 0, byte(150 + i)})
		s.client.Add("eth0", addr.String()+"/32")
		sources = append(sources, addr)
	}
	servers := func() []string {
		var out []string
		for _, source := range sources {
			s.client.Run("", "ip", "route", "replace", vip4.Addr().String(), "dev", "eth0", "src", source.String())
			c := s.client.connect(vip4)
			out = append(out, c.server)
		}
		return out
	}
	before, used := servers(), make(map[string]bool)
	for i, server := range servers() {
		used[server] = true
		if server != before[i] {
			t.Errorf("%s is served by %s and then by %s", sources[i], before[i], server)
		}
	}
	if len(used) != len(s.masters) {
		t.Errorf("30 clients are all served by %v", used)
	}
	service.Backends = s.backends(balancer.Serving, s.masters[:2]...)
	s.must(p.Apply([]balancer.Service{service}))
	for i, server := range servers() {
		if server != before[i] && before[i] != s.masters[2].name {
			t.Errorf("%s is moved from %s to %s", sources[i], before[i], server)
		}
	}
}

// A packet of an unknown connection is not assigned to a backend.
func TestOnlyNewConnections(t *testing.T) {
	s := newSite(t)
	s.holds(s.node)
	p := s.node.plane(Options{})
	s.must(p.Apply([]balancer.Service{s.service(vip4)}))
	c := s.client.connect(vip4)
	s.must(s.node.forget(vip4))
	if err := c.echoes(); !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, io.EOF) {
		t.Errorf("the connection still works: %v", err)
	}
	counts, err := p.Counts()
	s.must(err)
	sum := uint64(0)
	for _, c := range counts {
		sum += c.Connections
	}
	if sum != 1 {
		t.Errorf("%d connections were assigned: %v", sum, counts)
	}
}

// A service without a backend refuses connections at once, and accepts them with the first backend.
func TestNoBackend(t *testing.T) {
	s := newSite(t)
	p := s.node.idlePlane(Options{})
	service := s.service(local)
	service.Backends = nil
	s.must(p.Apply([]balancer.Service{service}))
	if _, err := s.node.dial(local); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("without backends: %v", err)
	}
	s.must(p.Apply([]balancer.Service{s.service(local)}))
	s.node.served(local, 3)
	if got := fmt.Sprint(p.owner.mended); got != "0" {
		t.Errorf("the table was repaired %s times", got)
	}
}
