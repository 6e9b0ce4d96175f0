package nft

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/herald-vip/herald/balancer"
)

// 3,000 connections: each of three backends gets a third, wherever they arrive, and is
// counted to have got it.
func TestSpread(t *testing.T) {
	s := newSite(t)
	s.holds(s.node)
	p := s.node.plane(Options{Node: "node"})
	s.must(p.Apply([]balancer.Service{s.service(local, vip4, vip6)}))
	const each = 750
	got := make(map[string]int)
	for _, from := range []struct {
		client *machine
		to     netip.AddrPort
	}{{s.node, local}, {s.client, vip4}, {s.client, vip6}, {s.node, vip4}} {
		for server, n := range from.client.served(from.to, each) {
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
			t.Errorf("%s: %d more connections than were counted", name, n)
		}
	}
}

// Masters see the node's own address, unless the service is transparent; and at its own address the
// client's.
func TestSource(t *testing.T) {
	s := newSite(t)
	s.holds(s.node)
	s.node.serve(port)
	p := s.node.plane(Options{})
	service := s.service(local, vip4, vip6)
	s.must(p.Apply([]balancer.Service{service}))
	expect := func(from *machine, to netip.AddrPort, want netip.Addr) {
		t.Helper()
		if c := from.connect(to); c.source != want.String() {
			t.Errorf("from %s to %s: %s sees %s, want %s", from.name, to, c.server, c.source, want)
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

	// A backend that is to see the client has to answer by way of the node.
	m := s.masters[0]
	m.run("", "ip", "route", "add", s.client.v4.String(), "via", s.node.v4.String())
	service.Backends, service.Transparent = s.backends(balancer.Serving, m), true
	s.must(p.Apply([]balancer.Service{service}))
	expect(s.client, vip4, s.client.v4)
}

// What is established stays with its backend whatever becomes of the configuration, of the process and
// of the table; and clients of who drains or is taken away go on.
func TestEstablishedStays(t *testing.T) {
	s := newSite(t)
	s.holds(s.node)
	p := s.node.idlePlane(Options{Node: "node"})
	stop := s.node.runs(p)
	all := s.service(local, vip4, vip6)
	s.must(p.Apply([]balancer.Service{all}))
	var established []*conn
	for range 5 {
		for _, to := range all.Listen {
			established = append(established, s.node.connect(to))
			if to != local {
				established = append(established, s.client.connect(to))
			}
		}
	}
	stay := func(after string) {
		t.Helper()
		for _, c := range established {
			if err := c.echoes(); err != nil {
				t.Fatalf("after %s: %s to %s: %v", after, c.LocalAddr(), c.RemoteAddr(), err)
			}
		}
	}
	stay("nothing")
	draining, fewer, hashed, elsewhere, external := all, all, all, all, all
	draining.Backends = append(s.backends(balancer.Draining, s.masters[0]), s.backends(balancer.Serving, s.masters[1:]...)...)
	fewer.Backends = s.backends(balancer.Serving, s.masters[2])
	hashed.Method = balancer.SourceHash
	elsewhere.Listen = []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:9444")}
	external.Listen = nil
	other := balancer.Service{Name: "other", Listen: all.Listen, Backends: s.backends(balancer.Serving, s.masters[1])}
	for what, services := range map[string][]balancer.Service{
		"draining": {draining}, "fewer": {fewer}, "another method": {hashed}, "listening elsewhere": {elsewhere},
		"external": {external}, "none": nil, "another name": {other}, "all": {all},
	} {
		s.must(p.Apply(services))
		stay(what)
		s.must(p.refresh())
		stay(what + ", refreshed")
	}
	s.must(p.Apply([]balancer.Service{all}))
	stop()
	s.must(p.Close())
	stay("closing")
	p = s.node.idlePlane(Options{Node: "node"})
	stay("adoption")
	s.must(p.Apply([]balancer.Service{all}))
	stay("applying again")
	want := p.wanted(*p.have)
	s.must(p.kernel.replace(want))
	stay("making the table anew")
	s.must(clearTable(int(s.node.ns)))
	stay("clearing")
}

// Herald is killed with 5,000 connections. None is lost, and new ones are taken all the while.
func TestKilled(t *testing.T) {
	s := newSite(t)
	s.holds(s.node)
	args := []string{vip4.String()}
	service := s.service(vip4)
	for _, b := range service.Backends {
		args = append(args, b.Addr.String())
	}
	kill := s.node.start("balance", args...)
	established := make([]*conn, 5000)
	for i := range established {
		established[i] = s.client.connect(vip4)
	}
	kill()
	meanwhile := s.client.served(vip4, 30)
	p := s.node.plane(Options{Node: "node"})
	s.must(p.Apply([]balancer.Service{service}))
	for i, c := range established {
		if err := c.echoes(); err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
	}
	counts, err := p.Counts()
	s.must(err)
	for i, m := range s.masters {
		c := counts[2*i] // the IPv4 one
		open := 0
		for _, e := range established {
			if e.server == m.name {
				open++
			}
		}
		if c.Open != open || c.Connections != uint64(open+meanwhile[m.name]) {
			t.Errorf("%s: %d connections, %d open; want %d, %d", m.name, c.Connections, c.Open, open+meanwhile[m.name], open)
		}
	}
}

// Without anybody who refreshes it the kernel ends listening, and keeps what is established.
func TestListeningEnds(t *testing.T) {
	s := newSite(t)
	p := s.node.idlePlane(Options{Outlive: 2 * time.Second})
	s.must(p.Apply([]balancer.Service{s.service(local)}))
	c := s.node.connect(local)
	s.must(p.Close())
	eventually(t, "refused", func() bool {
		_, err := s.node.dial(local)
		return errors.Is(err, syscall.ECONNREFUSED)
	})
	s.must(c.echoes())
	// It listens for as long as it is refreshed.
	stop := s.node.runs(p)
	defer stop()
	long := time.NewTimer(3 * time.Second)
	eventually(t, "listening again", func() bool { c, err := s.node.dial(local); return err == nil && c.Close() == nil })
	for ended := false; !ended; {
		select {
		case <-long.C:
			ended = true
		default:
			s.node.served(local, 1)
		}
	}
}

// A master vanishes without a word. Its clients need not wait: this host's own get an error
// at once, others when they send; who is only connecting is connected to another. Nobody
// else notices.
func TestDeadBackend(t *testing.T) {
	s := newSite(t)
	s.holds(s.node)
	p := s.node.plane(Options{})
	service := s.service(local, vip4, vip6)
	s.must(p.Apply([]balancer.Service{service}))
	type client struct {
		*conn
		local bool
	}
	var clients []client
	for range 6 {
		for _, to := range []netip.AddrPort{vip4, vip6} {
			clients = append(clients, client{s.client.connect(to), false}, client{s.node.connect(to), true})
		}
		clients = append(clients, client{s.node.connect(local), true})
	}
	gone := s.masters[1]
	gone.run("", "ip", "link", "set", "eth0", "down")
	failed := make(chan error, len(clients))
	reading := 0
	for _, c := range clients {
		if c.server == gone.name && c.local {
			reading++
			go func() { _, err := c.in.ReadString('\n'); failed <- err }()
		}
	}
	connecting := make(chan string)
	go func() {
		c, err := s.node.dial(local)
		if err != nil {
			connecting <- err.Error()
			return
		}
		defer c.Close()
		connecting <- c.server
	}()
	service.Backends = append(s.backends(balancer.Dead, gone), s.backends(balancer.Serving, s.masters[0], s.masters[2])...)
	s.must(p.Apply([]balancer.Service{service}))
	if reading == 0 {
		t.Fatal("no local client of the dead master")
	}
	for range reading {
		if err := <-failed; !errors.Is(err, syscall.ECONNABORTED) {
			t.Errorf("a local client reads: %v", err)
		}
	}
	if who := <-connecting; who == gone.name || !strings.HasPrefix(who, "m") {
		t.Errorf("who was connecting: %s", who)
	}
	for _, c := range clients {
		err := c.echoes()
		switch {
		case c.server != gone.name && err != nil:
			t.Errorf("a client of %s: %v", c.server, err)
		case c.server == gone.name && !c.local && !errors.Is(err, syscall.ECONNRESET):
			t.Errorf("a client of the dead master elsewhere: %v", err)
		}
	}
	counts, err := p.Counts()
	s.must(err)
	for _, c := range counts {
		if dead := c.Backend.Addr() == gone.v4 || c.Backend.Addr() == gone.v6; dead != (c.Open == 0) {
			t.Errorf("%s has %d connections", c.Backend, c.Open)
		}
	}
}

// What a silent backend has not answered is tried elsewhere, and what is established stays.
func TestSilentBackend(t *testing.T) {
	s := newSite(t)
	p := s.node.plane(Options{})
	gone := s.masters[1]
	service := s.service(local)
	service.Backends = s.backends(balancer.Serving, gone)
	s.must(p.Apply([]balancer.Service{service}))
	established := s.node.connect(local)
	defer established.Close()
	gone.run("", "ip", "link", "set", "eth0", "down")
	connecting := make(chan string, 1)
	go func() {
		c, err := s.node.dial(local)
		if err != nil {
			connecting <- err.Error()
			return
		}
		defer c.Close()
		connecting <- c.server
	}()
	open := func() int {
		connections, err := p.connected([]netip.AddrPort{local})
		s.must(err)
		return connections[netip.AddrPortFrom(gone.v4, service.Backends[0].Addr.Port())]
	}
	eventually(t, "the other is on its way", func() bool { return open() == 2 })
	silent := s.backends(balancer.Draining, gone)
	for i := range silent {
		silent[i].Silent = true
	}
	service.Backends = append(silent, s.backends(balancer.Serving, s.masters[0])...)
	s.must(p.Apply([]balancer.Service{service}))
	if who := <-connecting; who != s.masters[0].name {
		t.Errorf("who was connecting: %s", who)
	}
	if n := open(); n != 1 {
		t.Errorf("%d connections to the silent are left, want 1", n)
	}
}

// A client elsewhere chooses its port. Who listens at the same port here has nothing to do with it.
func TestDeathSparesListeners(t *testing.T) {
	s := newSite(t)
	s.holds(s.node)
	const chosen = 10250
	var plain net.ListenConfig
	plain.SetMultipathTCP(false) // the kernel ends no listener of the other kind
	var bystander net.Listener
	s.node.in(func() (err error) {
		bystander, err = plain.Listen(t.Context(), "tcp", fmt.Sprintf(":%d", chosen))
		return err
	})
	defer bystander.Close()
	p := s.node.plane(Options{})
	service := s.service(vip4)
	s.must(p.Apply([]balancer.Service{service}))
	var c net.Conn
	s.client.in(func() (err error) {
		from := net.Dialer{LocalAddr: &net.TCPAddr{Port: chosen}, Timeout: patience}
		c, err = from.Dial("tcp", vip4.String())
		return err
	})
	defer c.Close()
	service.Backends = s.backends(balancer.Dead, s.masters...)
	s.must(p.Apply([]balancer.Service{service}))
	s.client.in(func() error {
		c, err := net.DialTimeout("tcp", netip.AddrPortFrom(s.node.v4, chosen).String(), patience)
		if err == nil {
			err = c.Close()
		}
		return err
	})
}

// The first Apply of a process cannot know who has died: it ends nothing.
func TestFirstApplyEndsNothing(t *testing.T) {
	s := newSite(t)
	service := s.service(local)
	s.must(s.node.idlePlane(Options{}).Apply([]balancer.Service{service}))
	c := s.node.connect(local)
	service.Backends = s.backends(balancer.Dead, s.masters...)
	p := s.node.idlePlane(Options{})
	s.must(p.Apply([]balancer.Service{service}))
	s.must(c.echoes())
	if _, err := s.node.dial(local); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("without any backend: %v", err)
	}
}

// Nobody outside reaches what listens at 127.0.0.1, and with the last listener what was set for it goes.
func TestLocalhostStaysLocal(t *testing.T) {
	s := newSite(t)
	const setting = "/proc/sys/net/ipv4/conf/eth0/route_localnet"
	is := func(want string) {
		t.Helper()
		if got := s.node.run("", "cat", setting); got != want+"\n" {
			t.Errorf("route_localnet is %s, want %s", got, want)
		}
	}
	p := s.node.idlePlane(Options{})
	is("0")
	s.must(p.Apply([]balancer.Service{s.service(local)}))
	is("1")
	// A neighbour for whom 127.0.0.1 is the node.
	s.client.run("", "sh", "-ec", `sysctl -qw net.ipv4.conf.eth0.route_localnet=1
		ip rule del pref 0; ip rule add pref 10 lookup local
		ip rule add pref 1 to 127.0.0.1 lookup 100; ip route add 127.0.0.1 via `+s.node.v4.String()+` dev eth0 table 100`)
	if c, err := s.client.dialFor(local, time.Second); err == nil {
		t.Errorf("a neighbour got through to %s", c.server)
	}
	if got := s.node.run("", "nft", "list", "chain", "inet", tableName, guard); strings.Contains(got, "127.0.0.0/8 counter packets 0 bytes 0 drop comment \"from outside to") {
		t.Errorf("nothing was dropped:\n%s", got)
	}

	c := s.node.connect(local)
	s.must(p.Apply(nil))
	s.must(p.refresh())
	is("1") // a connection needs it
	s.must(c.echoes())
	s.must(c.SetLinger(0))
	s.must(c.Close())
	eventually(t, "the table is gone", func() bool {
		s.must(p.refresh())
		return !strings.Contains(s.node.run("", "nft", "list", "tables"), tableName)
	})
	is("0")
	// A killed predecessor's, likewise.
	s.must(p.Apply([]balancer.Service{s.service(local)}))
	is("1")
	s.must(clearTable(int(s.node.ns)))
	is("0")
	s.must(clearTable(int(s.node.ns)))
}

// What others have set stays set.
func TestSettingsOfOthers(t *testing.T) {
	s := newSite(t)
	s.node.run("", "sysctl", "-qw", "net.ipv4.conf.eth0.route_localnet=1")
	p := s.node.idlePlane(Options{})
	s.must(p.Apply([]balancer.Service{s.service(local)}))
	s.must(p.Apply(nil))
	s.must(p.refresh())
	if got := s.node.run("", "sysctl", "-n", "net.ipv4.conf.eth0.route_localnet"); got != "1\n" {
		t.Errorf("route_localnet is %s", got)
	}
}

// Forwarding is switched on where it is off, and router advertisements are accepted on.
func TestForwarding(t *testing.T) {
	s := newSite(t)
	s.holds(s.node)
	s.node.run("", "sysctl", "-qw", "net.ipv4.ip_forward=0", "net.ipv6.conf.all.forwarding=0", "net.ipv6.conf.eth0.accept_ra=1")
	p := s.node.plane(Options{})
	s.must(p.Apply([]balancer.Service{s.service(vip4, vip6)}))
	s.client.served(vip4, 3)
	s.client.served(vip6, 3)
	if got := s.node.run("", "sysctl", "-n", "net.ipv6.conf.eth0.accept_ra"); got != "2\n" {
		t.Errorf("accept_ra is %s", got)
	}
}

// A client stays with its backend, and is not moved when another one goes.
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
		s.client.address("eth0", netip.PrefixFrom(addr, 32))
		sources = append(sources, addr)
	}
	who := func() []string {
		var out []string
		for _, source := range sources {
			s.client.run("", "ip", "route", "replace", vip4.Addr().String(), "dev", "eth0", "src", source.String())
			c := s.client.connect(vip4)
			out = append(out, c.server)
		}
		return out
	}
	before, used := who(), make(map[string]bool)
	for i, server := range who() {
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
	for i, server := range who() {
		if server != before[i] && before[i] != s.masters[2].name {
			t.Errorf("%s is moved from %s to %s", sources[i], before[i], server)
		}
	}
}

// A packet of a connection that nobody knows is not given to a backend.
func TestOnlyNewConnections(t *testing.T) {
	s := newSite(t)
	s.holds(s.node)
	p := s.node.plane(Options{})
	s.must(p.Apply([]balancer.Service{s.service(vip4)}))
	c := s.client.connect(vip4)
	s.must(s.node.forget(vip4))
	if err := c.echoes(); !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, io.EOF) {
		t.Errorf("it goes on: %v", err)
	}
	counts, err := p.Counts()
	s.must(err)
	sum := uint64(0)
	for _, c := range counts {
		sum += c.Connections
	}
	if sum != 1 {
		t.Errorf("%d connections were given away: %v", sum, counts)
	}
}

// A service without a backend refuses, rather than to keep clients waiting, and mends when there is one.
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
	if got := fmt.Sprint(p.mended); got != "0" {
		t.Errorf("mended %s times", got)
	}
}
