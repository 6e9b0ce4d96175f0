package nft

import (
	"errors"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/herald-vip/herald/testenv/wait"
)

// bridgeTo prepares a bridge for the VIPs of a site to masters.
func bridgeTo(t *testing.T, p *Plane, masters ...*machine) *Bridge {
	t.Helper()
	b := p.Bridge()
	to := map[netip.Addr][]netip.Addr{vip4.Addr(): nil, vip6.Addr(): nil}
	for _, m := range masters {
		to[vip4.Addr()] = append(to[vip4.Addr()], m.v4)
		to[vip6.Addr()] = append(to[vip6.Addr()], m.v6)
	}
	if err := b.Prepare(to); err != nil {
		t.Fatal(err)
	}
	return b
}

// forwards is whether new connections reach somebody else than the node.
func (s *site) forwards(to netip.AddrPort) bool {
	s.t.Helper()
	return s.client.connect(to).server != s.node.name
}

// takesForHolder has the client send to a machine what is for the VIPs, no matter which machine answers for them.
func (s *site) takesForHolder(m *machine) {
	s.t.Helper()
	for _, vip := range []netip.AddrPort{vip4, vip6} {
		s.client.run("", "ip", "neigh", "replace", vip.Addr().String(), "lladdr", m.mac(), "dev", "eth0")
	}
}

// While the bridge is open new connections go on to the masters in turn, at the port that they
// have, and what the node itself has stays. It ends when it is closed, and by itself.
func TestBridge(t *testing.T) {
	s := newSite(t)
	s.holds(s.node)
	s.node.serve(port)
	p := s.node.plane(Options{})
	b := bridgeTo(t, p, s.masters...)
	vips := []netip.AddrPort{vip4, vip6}
	for _, to := range vips {
		s.node.listen(to)
	}
	var own []*conn
	for _, to := range vips {
		if s.forwards(to) {
			t.Fatal("what is prepared only forwards")
		}
		own = append(own, s.client.connect(to))
	}
	b.Open(time.Minute, vip4.Addr(), vip6.Addr())
	var forwarded []*conn
	for _, to := range vips {
		wait.Until(t, "forwarding", func() bool { return s.forwards(to) })
		before, err := b.Received(to.Addr())
		s.must(err)
		if before == 0 {
			t.Error("nothing was counted")
		}
		for m, n := range s.client.served(to, 6) {
			if n != 2 {
				t.Errorf("%s got %d of 6 connections to %s", m, n, to)
			}
		}
		if after, err := b.Received(to.Addr()); err != nil || after != before+6 {
			t.Errorf("%s received %d, %v; want %d", to, after, err, before+6)
		}
		forwarded = append(forwarded, s.client.connect(to), s.node.connect(to))
	}
	s.must(b.Close(vip4.Addr()))
	if s.forwards(vip4) || !s.forwards(vip6) {
		t.Error("one is closed, and the other is not")
	}
	// It is counted from when it is opened, and lasts as long as it was opened for.
	b.Open(2*time.Second, vip4.Addr(), vip6.Addr())
	wait.Until(t, "counting anew", func() bool { s.forwards(vip4); n, err := b.Received(vip4.Addr()); return err == nil && n > 0 && n < 6 })
	for _, to := range vips {
		wait.Until(t, "closed by itself", func() bool { return !s.forwards(to) })
	}
	// Who waits for the bridge while it is closed finds it closed.
	b.Open(time.Minute, vip4.Addr())
	s.must(b.Close(vip4.Addr()))
	if s.forwards(vip4) {
		t.Error("open after Close")
	}
	// With the last master it closes.
	b.Open(time.Minute, vip4.Addr())
	wait.Until(t, "forwarding again", func() bool { return s.forwards(vip4) })
	bridgeTo(t, p)
	if s.forwards(vip4) {
		t.Error("forwards without masters")
	}
	for _, c := range append(own, forwarded...) {
		s.must(c.echoes())
	}
	if p.mended != 0 {
		t.Errorf("the table was put back %d times", p.mended)
	}
}

// Two masters that are sick both take each other for healthy for a moment. What one sends on
// the other one does not send on.
func TestSickMastersDoNotLoop(t *testing.T) {
	s := newSite(t)
	s.holds(s.node)
	other := s.add("sick")
	there, here := other.plane(Options{}), s.node.plane(Options{})
	b, back := bridgeTo(t, here, other), bridgeTo(t, there, s.node)
	other.address("lo", netip.PrefixFrom(vip4.Addr(), 32)) // it has the VIP, too, for a moment
	s.takesForHolder(s.node)
	b.Open(time.Minute, vip4.Addr())
	back.Open(time.Minute, vip4.Addr())
	wait.Until(t, "refused by the other", func() bool {
		_, err := s.client.dial(vip4)
		n, counted := b.Received(vip4.Addr())
		s.must(counted)
		return errors.Is(err, syscall.ECONNREFUSED) && n > 0
	})
	if n, err := back.Received(vip4.Addr()); err != nil || n != 0 {
		t.Errorf("%d came back, %v", n, err)
	}
}

// A node that the fence has closed forwards nothing, although its bridge is open.
func TestFenceComesFirst(t *testing.T) {
	s := newSite(t)
	s.holds(s.node)
	p := s.node.plane(Options{})
	b := bridgeTo(t, p, s.masters...)
	b.Open(time.Minute, vip4.Addr(), vip6.Addr())
	for _, to := range []netip.AddrPort{vip4, vip6} {
		wait.Until(t, "forwarding", func() bool { c, err := s.client.dial(to); return err == nil && c.Close() == nil })
	}
	s.takesForHolder(s.node)
	s.node.start("guard", vip4.Addr().String(), vip6.Addr().String())
	for _, to := range []netip.AddrPort{vip4, vip6} {
		before, err := b.Received(to.Addr())
		s.must(err)
		if c, err := s.client.dialFor(to, time.Second); err == nil {
			t.Errorf("through a closed fence to %s", c.server)
		}
		if after, err := b.Received(to.Addr()); err != nil || after != before {
			t.Errorf("%d connections were sent on, %v", after-before, err)
		}
	}
}
