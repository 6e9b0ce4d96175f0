package nft

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/herald-vip/herald/balancer"
	"github.com/herald-vip/herald/testenv/wait"
)

// Established connections survive all changes of the configuration, the process and the table, even if their backend drains
// or is removed.
func TestEstablishedStays(t *testing.T) {
	s := newSite(t)
	s.holds(s.node)
	p := s.node.idlePlane(Options{Node: "node"})
	stop := s.node.runs(p)
	all := s.service(local, vip4, vip6)
	s.must(p.Apply([]balancer.Service{all}))
	var established []*conn
	for range 5 {
		for _, dst := range all.Listen {
			established = append(established, s.node.connect(dst))
			if dst != local {
				established = append(established, s.client.connect(dst))
			}
		}
	}
	survive := func(after string) {
		t.Helper()
		for _, c := range established {
			if err := c.echoes(); err != nil {
				t.Fatalf("after %s: %s to %s: %v", after, c.LocalAddr(), c.RemoteAddr(), err)
			}
		}
	}
	survive("the start")
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
		survive(what)
		s.must(p.refresh())
		survive(what + ", refreshed")
	}
	s.must(p.Apply([]balancer.Service{all}))
	stop()
	s.must(p.Close())
	survive("closing")
	p = s.node.idlePlane(Options{Node: "node"})
	survive("adoption")
	s.must(p.Apply([]balancer.Service{all}))
	survive("applying again")
	want := p.owner.desired(*p.owner.have)
	s.must(p.owner.kernel.replace(want))
	survive("replacing the table")
	s.must(clearTable(int(s.node.NS)))
	survive("clearing")
}

// Herald is killed with 5,000 connections. No connection is lost, and new ones are accepted all the time.
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

// Without renewal listeners expire, and established connections stay.
func TestListeningEnds(t *testing.T) {
	s := newSite(t)
	p := s.node.idlePlane(Options{Outlive: 2 * time.Second})
	s.must(p.Apply([]balancer.Service{s.service(local)}))
	c := s.node.connect(local)
	s.must(p.Close())
	wait.Until(t, "refused", func() bool {
		_, err := s.node.dial(local)
		return errors.Is(err, syscall.ECONNREFUSED)
	})
	s.must(c.echoes())
	// Renewed listeners stay.
	stop := s.node.runs(p)
	defer stop()
	long := time.NewTimer(3 * time.Second)
	wait.Until(t, "listening again", func() bool { c, err := s.node.dial(local); return err == nil && c.Close() == nil })
	for ended := false; !ended; {
		select {
		case <-long.C:
			ended = true
		default:
			s.node.served(local, 1)
		}
	}
}

// A master vanishes. Clients on this host get an error at once, clients elsewhere when they send, and a client that is
// connecting is connected to another master. Clients of other masters are not affected.
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
		for _, dst := range []netip.AddrPort{vip4, vip6} {
			clients = append(clients, client{s.client.connect(dst), false}, client{s.node.connect(dst), true})
		}
		clients = append(clients, client{s.node.connect(local), true})
	}
	gone := s.masters[1]
	gone.Run("", "ip", "link", "set", "eth0", "down")
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
	if server := <-connecting; server == gone.name || !strings.HasPrefix(server, "m") {
		t.Errorf("the connecting client got %s", server)
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

// Connections that a timed-out backend has not answered are tried elsewhere, and established ones stay.
func TestTimedOutBackend(t *testing.T) {
	s := newSite(t)
	p := s.node.plane(Options{})
	gone := s.masters[1]
	service := s.service(local)
	service.Backends = s.backends(balancer.Serving, gone)
	s.must(p.Apply([]balancer.Service{service}))
	established := s.node.connect(local)
	defer established.Close()
	gone.Run("", "ip", "link", "set", "eth0", "down")
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
		connections, err := p.connected(p.host.counts, []netip.AddrPort{local})
		s.must(err)
		return connections[netip.AddrPortFrom(gone.v4, service.Backends[0].Addr.Port())]
	}
	wait.Until(t, "the second connection is half-open", func() bool { return open() == 2 })
	timedOut := s.backends(balancer.Draining, gone)
	for i := range timedOut {
		timedOut[i].TimedOut = true
	}
	service.Backends = append(timedOut, s.backends(balancer.Serving, s.masters[0])...)
	s.must(p.Apply([]balancer.Service{service}))
	if server := <-connecting; server != s.masters[0].name {
		t.Errorf("the connecting client got %s", server)
	}
	if n := open(); n != 1 {
		t.Errorf("%d connections to the timed-out backend are left, want 1", n)
	}
}

// A remote client may use a port at which a server of this host listens. The death of its backend does not end that listener.
func TestDeathSparesListeners(t *testing.T) {
	s := newSite(t)
	s.holds(s.node)
	const chosen = 10250
	var plain net.ListenConfig
	plain.SetMultipathTCP(false) // the kernel does not end listeners of Multipath TCP
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

// The first Apply of a process does not know which backends died before: it ends no connection.
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
