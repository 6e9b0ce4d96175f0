package fence

import (
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/herald-vip/herald/netutil/link"
	"github.com/herald-vip/herald/testenv/wait"
)

func (s *wire) expect(when string, answers, accepts bool) {
	s.node.T.Helper()
	for _, addr := range vip.addrs() {
		if got := s.answers(addr); got != answers {
			s.node.T.Errorf("%s: node answers for %s: %v, want %v", when, addr, got, answers)
		}
		if got := s.accepts(s.neighbour, addr); got != accepts {
			s.node.T.Errorf("%s: packets to %s accepted: %v, want %v", when, addr, got, accepts)
		}
		if got := s.accepts(s.node, addr); got != accepts {
			s.node.T.Errorf("%s: the node's own packets to %s accepted: %v, want %v", when, addr, got, accepts)
		}
	}
}

// accepts reports whether the node accepts a packet from a host to addr. A second packet, to the node's own
// address, marks the end of the wait.
func (s *wire) accepts(from *host, addr netip.Addr) bool {
	s.node.T.Helper()
	control, any := nodeOwn[1].Addr(), "[::]:0"
	if addr.Is4() {
		control, any = nodeOwn[0].Addr(), "0.0.0.0:0"
	}
	for _, known := range []netip.Addr{addr, control} { // saves the neighbour its ARP request
		s.neighbour.Must(s.neighbour.NL.NeighSet(&netlink.Neigh{
			LinkIndex: s.neighbour.Link(linkName).Attrs().Index, IP: known.AsSlice(),
			HardwareAddr: s.node.mac(linkName), State: netlink.NUD_PERMANENT,
		}))
	}
	var server net.PacketConn
	var err error
	s.node.In(func() { server, err = net.ListenPacket("udp", any) })
	s.node.Must(err)
	defer server.Close()
	port := server.LocalAddr().(*net.UDPAddr).Port
	for _, dst := range []netip.Addr{addr, control} {
		var c net.Conn
		from.In(func() {
			c, err = net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(dst, uint16(port))))
		})
		from.Must(err)
		_, err = c.Write([]byte(dst.String()))
		from.Must(err)
		from.Must(c.Close())
	}
	from.Must(server.SetReadDeadline(time.Now().Add(patience)))
	accepted := false
	for b := make([]byte, 100); ; {
		n, _, err := server.ReadFrom(b)
		s.node.Must(err)
		switch string(b[:n]) {
		case addr.String():
			accepted = true
		case control.String():
			return accepted
		}
	}
}

// The node answers for an address and accepts its packets exactly while it is open.
func TestGate(t *testing.T) {
	s := newWire(t)
	f := s.node.fence()
	s.expect("not filtered", true, true)
	s.node.Must(f.Filter(vip.addrs()...))
	s.expect("filtered", false, false)
	s.node.open(f.Open, vip.addrs()...)
	s.expect("open", true, true)
	s.node.open(f.Open, vip.addrs()...)
	s.node.Must(f.Try())
	s.expect("renewed and tried", true, true)
	s.node.Must(f.Filter(append(vip.addrs(), netip.MustParseAddr("10.9.0.101"))...))
	s.expect("filtered with another", true, true)
	s.node.open(f.Accept, vip.addrs()...)
	s.expect("accepting", false, true)
	s.node.open(f.Open, vip.addrs()...)
	s.expect("open again", true, true)
	s.node.Must(f.Close(vip.addrs()...))
	s.expect("closed", false, false)
	s.node.open(f.Open, vip.addrs()...)
	s.node.Must(f.Filter())
	s.expect("no longer filtered", true, true)
	s.node.Must(f.Filter(vip.addrs()...))
	s.expect("filtered again", false, false)
	s.node.Must(f.Check())
	if got := f.status(); got.Filtered != 2 || got.Restored != 0 {
		t.Errorf("status %+v", got)
	}
	s.node.Must(f.Remove())
	s.expect("removed", true, true)
}

// The kernel closes an address that is not renewed.
func TestTimeout(t *testing.T) {
	s := newWire(t)
	f := s.node.fence()
	s.node.Must(f.Filter(vip.addrs()...))
	for _, open := range []func(time.Time, ...netip.Addr) error{f.Open, f.Accept, f.Open} {
		until := s.node.openFor(300*time.Millisecond, open, vip.addrs()...)
		for time.Now().Before(until) {
			s.answers(vip[0].Addr()) // waits for answers
		}
		s.expect("after the end", false, false)
	}
	if err := f.Open(time.Now().Add(shortest), vip.addrs()...); err == nil {
		t.Error("Open succeeds for too short a time")
	}
	if err := f.Accept(time.Now(), vip.addrs()...); err == nil {
		t.Error("Accept succeeds for too short a time")
	}
	s.expect("not opened", false, false)
}

// The node sends no request with a closed virtual address as the sender: neighbours would learn its
// link-layer address for it.
func TestSender(t *testing.T) {
	s := newWire(t)
	f := s.node.fence()
	s.node.Must(f.Filter(vip.addrs()...))
	for i := range vip {
		virtual, unknown := vip[i].Addr(), nextDoor[i].Addr()
		asks := func() bool {
			t.Helper()
			first, second := unknown.Next(), unknown.Next().Next()
			unknown = second
			s.node.sends(virtual, first)
			s.node.sends(nodeOwn[i].Addr(), second)
			for asked := false; ; {
				f := s.next()
				asked = asked || f.kind == askingFrame && f.sender == virtual && f.target == first
				if f.kind == askingFrame && f.target == second {
					return asked
				}
			}
		}
		s.node.open(f.Open, virtual)
		if !asks() {
			t.Errorf("node sends no request from %s while it is open: the test is void", virtual)
		}
		s.node.open(f.Accept, virtual)
		if asks() {
			t.Errorf("node sends a request from %s while it is closed", virtual)
		}
	}

	s.node.open(f.Open, vip[0].Addr())
	s.node.In(func() {
		s.node.Must(link.ARPAnnounce.Set(linkName, link.AnnounceOwn))
	})
	unknown := netip.MustParseAddr("10.9.0.99")
	s.node.sends(vip[0].Addr(), unknown)
	for {
		if f := s.next(); f.kind == askingFrame && f.target == unknown {
			if f.sender != nodeOwn[0].Addr() {
				t.Errorf("node sends a request from %s despite ARPAnnounce", f.sender)
			}
			return
		}
	}
}

// sends sends a packet.
func (h *host) sends(src, dst netip.Addr) {
	h.T.Helper()
	var c net.Conn
	var err error
	h.In(func() {
		c, err = net.DialUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(src, 0)), net.UDPAddrFromAddrPort(netip.AddrPortFrom(dst, 9)))
	})
	h.Must(err)
	_, err = c.Write([]byte("x"))
	h.Must(err)
	h.Must(c.Close())
}

// An announcement by the holder of the address reaches the neighbour cache of another node.
func TestOthersAnnounce(t *testing.T) {
	s := newWire(t)
	f := s.node.fence()
	s.node.Must(f.Filter(vip.addrs()...))
	addr := vip[0].Addr()
	s.node.Remove(linkName, vip[0].String())
	index := s.node.Link(linkName).Attrs().Index
	s.node.Must(s.node.NL.NeighSet(&netlink.Neigh{
		LinkIndex: index, IP: addr.AsSlice(), HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0, 1}, State: netlink.NUD_STALE,
	}))
	for _, op := range []byte{1, 2} {
		mac := net.HardwareAddr{2, 0, 0, 0, 1, op}
		wait.Until(t, "the announcement is received", func() bool {
			s.send(arpFrame(mac, op, addr, addr))
			known, err := s.node.NL.NeighList(index, netlink.FAMILY_V4)
			s.node.Must(err)
			for _, n := range known {
				if n.IP.Equal(addr.AsSlice()) && n.HardwareAddr.String() == mac.String() {
					return true
				}
			}
			return false
		})
		s.node.Must(s.node.NL.NeighDel(&netlink.Neigh{LinkIndex: index, IP: addr.AsSlice()}))
		s.node.Must(s.node.NL.NeighSet(&netlink.Neigh{
			LinkIndex: index, IP: addr.AsSlice(), HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0, 1}, State: netlink.NUD_STALE,
		}))
	}
}

// A node that does not hold the address forwards its pods' packets to the holder.
func TestForwarding(t *testing.T) {
	s := newWire(t)
	f := s.node.fence()
	s.node.Must(f.Filter(vip.addrs()...))
	pod := newHost(t)
	s.node.Connect("pod0", pod.Host, "pod0")
	inside := pair{netip.MustParsePrefix("10.8.0.1/24"), netip.MustParsePrefix("fd00:8::1/64")}
	for i, p := range inside {
		s.node.Remove(linkName, vip[i].String())
		s.node.Add("pod0", p.String())
		pod.Add("pod0", netip.PrefixFrom(p.Addr().Next(), p.Bits()).String())
		pod.Must(pod.NL.RouteAdd(&netlink.Route{LinkIndex: pod.Link("pod0").Attrs().Index, Gw: p.Addr().AsSlice()}))
		s.neighbour.Add(linkName, vip[i].String()) // holds it
		s.neighbour.Must(s.neighbour.NL.RouteAdd(&netlink.Route{
			LinkIndex: s.neighbour.Link(linkName).Attrs().Index, Gw: nodeOwn[i].Addr().AsSlice(),
			Dst: &net.IPNet{IP: p.Masked().Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())},
		}))
	}
	s.node.Sysctl("ipv4/ip_forward", "1")
	s.node.Sysctl("ipv6/conf/all/forwarding", "1")
	for _, addr := range vip.addrs() {
		var l net.Listener
		var c net.Conn
		var err error
		s.neighbour.In(func() { l, err = net.Listen("tcp", netip.AddrPortFrom(addr, 0).String()) })
		s.neighbour.Must(err)
		pod.In(func() { c, err = net.DialTimeout("tcp", l.Addr().String(), patience) })
		if err != nil {
			t.Errorf("a pod does not reach the holder of %s: %v", addr, err)
		} else {
			_ = c.Close()
		}
		_ = l.Close()
	}
}

// `nft list ruleset` shows sets, comments and timeouts in readable form.
func TestReadable(t *testing.T) {
	h := newHost(t)
	f := h.fence()
	h.Must(f.Filter(vip.addrs()...))
	h.open(f.Open, vip.addrs()...)
	got := h.Run("", "nft", "list", "ruleset")
	for _, want := range []string{
		"table arp herald", "table inet herald", "set vips4", "set until6", "comment \"answers are permitted\"",
		"elements = { 10.9.0.100 timeout 59m59s", "arp saddr ip @vips4 arp saddr ip != @answer4 counter",
		"priority raw; policy accept;", "ip6 daddr @vips6 ip6 daddr != @until6 fib daddr type local counter",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in:\n%s", want, got)
		}
	}
}
