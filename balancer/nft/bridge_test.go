package nft

import (
	"errors"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/herald-vip/herald/testenv/wait"
)

// bridgeTo prepares a bridge from the VIPs of a site to masters.
func bridgeTo(t *testing.T, p *DataPlane, masters ...*machine) *Bridge {
	t.Helper()
	b := p.Bridge()
	targets := map[netip.Addr][]netip.Addr{vip4.Addr(): nil, vip6.Addr(): nil}
	for _, m := range masters {
		targets[vip4.Addr()] = append(targets[vip4.Addr()], m.v4)
		targets[vip6.Addr()] = append(targets[vip6.Addr()], m.v6)
	}
	if err := b.Prepare(targets); err != nil {
		t.Fatal(err)
	}
	return b
}

// forwards reports whether another machine than the node answers a new connection.
func (s *site) forwards(dst netip.AddrPort) bool {
	s.t.Helper()
	return s.client.connect(dst).server != s.node.name
}

// takesForHolder makes the client send packets for the VIPs to a machine, regardless of ARP and NDP.
func (s *site) takesForHolder(m *machine) {
	s.t.Helper()
	for _, vip := range []netip.AddrPort{vip4, vip6} {
		s.client.Run("", "ip", "neigh", "replace", vip.Addr().String(), "lladdr", m.Link("eth0").Attrs().HardwareAddr.String(), "dev", "eth0")
	}
}

// An open bridge forwards new connections to the masters in turn, at the same port, and leaves established ones alone. It
// ends with Close and with its time limit.
func TestBridge(t *testing.T) {
	s := newSite(t)
	s.holds(s.node)
	s.node.serve(port)
	p := s.node.plane(Options{})
	b := bridgeTo(t, p, s.masters...)
	vips := []netip.AddrPort{vip4, vip6}
	for _, vip := range vips {
		s.node.listen(vip)
	}
	var own []*conn
	for _, vip := range vips {
		if s.forwards(vip) {
			t.Fatal("a bridge that is only prepared forwards")
		}
		own = append(own, s.client.connect(vip))
	}
	b.Open(time.Minute, vip4.Addr(), vip6.Addr())
	var forwarded []*conn
	for _, vip := range vips {
		wait.Until(t, "forwarding", func() bool { return s.forwards(vip) })
		before, err := b.Received(vip.Addr())
		s.must(err)
		if before == 0 {
			t.Error("no connection was counted")
		}
		for m, n := range s.client.served(vip, 6) {
			if n != 2 {
				t.Errorf("%s got %d of 6 connections to %s", m, n, vip)
			}
		}
		if after, err := b.Received(vip.Addr()); err != nil || after != before+6 {
			t.Errorf("%s received %d, %v; want %d", vip, after, err, before+6)
		}
		forwarded = append(forwarded, s.client.connect(vip), s.node.connect(vip))
	}
	s.must(b.Close(vip4.Addr()))
	if s.forwards(vip4) || !s.forwards(vip6) {
		t.Error("Close did not close exactly one of two VIPs")
	}
	// Opening resets the counter and sets a time limit.
	b.Open(2*time.Second, vip4.Addr(), vip6.Addr())
	wait.Until(t, "the counter starts anew", func() bool { s.forwards(vip4); n, err := b.Received(vip4.Addr()); return err == nil && n > 0 && n < 6 })
	for _, vip := range vips {
		wait.Until(t, "closed by the time limit", func() bool { return !s.forwards(vip) })
	}
	// A Close right after Open wins.
	b.Open(time.Minute, vip4.Addr())
	s.must(b.Close(vip4.Addr()))
	if s.forwards(vip4) {
		t.Error("open after Close")
	}
	// Without masters the bridge closes.
	b.Open(time.Minute, vip4.Addr())
	wait.Until(t, "forwarding again", func() bool { return s.forwards(vip4) })
	bridgeTo(t, p)
	if s.forwards(vip4) {
		t.Error("forwards without masters")
	}
	for _, c := range append(own, forwarded...) {
		s.must(c.echoes())
	}
	if p.owner.mended != 0 {
		t.Errorf("the table was repaired %d times", p.owner.mended)
	}
}

// Two unhealthy masters take each other for healthy for a moment. A connection that one forwards is not forwarded
// back by the other.
func TestSickMastersDoNotLoop(t *testing.T) {
	s := newSite(t)
	s.holds(s.node)
	other := s.add("sick")
	remote, own := other.plane(Options{}), s.node.plane(Options{})
	b, back := bridgeTo(t, own, other), bridgeTo(t, remote, s.node)
	other.addVIP("lo", vip4.Addr()) // both have the VIP for a moment
	s.takesForHolder(s.node)
	b.Open(time.Minute, vip4.Addr())
	back.Open(time.Minute, vip4.Addr())
	wait.Until(t, "refused by the other master", func() bool {
		_, err := s.client.dial(vip4)
		n, counted := b.Received(vip4.Addr())
		s.must(counted)
		return errors.Is(err, syscall.ECONNREFUSED) && n > 0
	})
	if n, err := back.Received(vip4.Addr()); err != nil || n != 0 {
		t.Errorf("%d connections were forwarded back, %v", n, err)
	}
}

// A node behind a closed fence forwards no connection, although its bridge is open.
func TestFenceComesFirst(t *testing.T) {
	s := newSite(t)
	s.holds(s.node)
	p := s.node.plane(Options{})
	b := bridgeTo(t, p, s.masters...)
	b.Open(time.Minute, vip4.Addr(), vip6.Addr())
	for _, vip := range []netip.AddrPort{vip4, vip6} {
		wait.Until(t, "forwarding", func() bool { c, err := s.client.dial(vip); return err == nil && c.Close() == nil })
	}
	s.takesForHolder(s.node)
	s.node.start("guard", vip4.Addr().String(), vip6.Addr().String())
	for _, vip := range []netip.AddrPort{vip4, vip6} {
		before, err := b.Received(vip.Addr())
		s.must(err)
		if c, err := s.client.dialFor(vip, time.Second); err == nil {
			t.Errorf("through a closed fence to %s", c.server)
		}
		if after, err := b.Received(vip.Addr()); err != nil || after != before {
			t.Errorf("%d connections were forwarded, %v", after-before, err)
		}
	}
}
