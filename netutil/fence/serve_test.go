package fence

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/herald-vip/herald/testenv/wait"
)

// site is a node with the address of a Service, a client next door, and a pod.
type site struct {
	*wire
	pod   *host
	ports struct{ service, host uint16 } // that the Service has, and that something on the node listens at
}

// podNet is what the pod and its node share.
var podNet = pair{netip.MustParsePrefix("10.8.0.1/24"), netip.MustParsePrefix("fd00:8::1/64")}

// newSite plays kube-proxy by rules of its own that claim one port of vip.
func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{wire: newWire(t), pod: newHost(t)}
	s.ports.service = 80
	s.node.addVeth("pod0", s.pod)
	s.node.sysctl("ipv4/ip_forward", "1")
	s.node.sysctl("ipv6/conf/all/forwarding", "1")
	var rules strings.Builder
	for i, family := range []string{"ip", "ip6"} {
		p := podNet[i]
		s.node.add("pod0", p)
		s.pod.add("pod0", netip.PrefixFrom(p.Addr().Next(), p.Bits()))
		s.pod.Must(s.pod.NL.RouteAdd(&netlink.Route{LinkIndex: s.pod.Link("pod0").Attrs().Index, Gw: p.Addr().AsSlice()}))
		for _, chain := range []string{"prerouting", "output"} {
			fmt.Fprintf(&rules, `table %s proxy { chain %s { type nat hook %s priority -100; %s daddr %s tcp dport 80 dnat to %s; }
}
`, family, chain, chain, family, vip[i].Addr(), netip.AddrPortFrom(p.Addr().Next(), 8080))
		}
		fmt.Fprintf(&rules, `table %s proxy { chain postrouting { type nat hook postrouting priority 100; %s daddr %s masquerade; }
}
`, family, family, p.Addr().Next())
	}
	s.node.run(rules.String(), "nft", "-f", "-")
	s.greet(s.pod, ":8080", "pod")
	s.ports.host = s.greet(s.node, ":0", "node")
	return s
}

// greet has a host tell everybody who connects who it is, by TCP at an address.
func (s *site) greet(h *host, at, word string) (port uint16) {
	s.node.T.Helper()
	var l net.Listener
	var err error
	h.In(func() { l, err = net.Listen("tcp", at) })
	h.Must(err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, word)
			_ = c.Close()
		}
	}()
	s.node.T.(*testing.T).Cleanup(func() { _ = l.Close(); <-done })
	return l.Addr().(*net.TCPAddr).AddrPort().Port()
}

// connect says who answers a connection from a host, or "refused".
func (s *site) connect(from *host, to netip.Addr, port uint16) string {
	s.node.T.Helper()
	var c net.Conn
	var err error
	from.In(func() { c, err = net.DialTimeout("tcp", netip.AddrPortFrom(to, port).String(), patience) })
	if errors.Is(err, syscall.ECONNREFUSED) {
		return "refused"
	}
	if err != nil {
		return err.Error()
	}
	defer c.Close()
	word, err := io.ReadAll(c)
	from.Must(err)
	return string(word)
}

// refused waits until a host learns that a datagram of its is not wanted.
func (s *site) refused(from *host, to netip.Addr) {
	s.node.T.Helper()
	var c net.Conn
	var err error
	from.In(func() {
		c, err = net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(to, s.ports.host)))
	})
	from.Must(err)
	defer c.Close()
	wait.Until(s.node.T, "UDP is refused", func() bool {
		_, _ = c.Write([]byte("x"))
		from.Must(c.SetReadDeadline(time.Now().Add(100 * time.Millisecond)))
		_, err := c.Read(make([]byte, 1))
		return errors.Is(err, syscall.ECONNREFUSED)
	})
}

// ping waits for the answer to an ICMP echo.
func (s *site) ping(to netip.Addr) {
	s.node.T.Helper()
	network, echo, reply := "ip4:icmp", []byte{8, 0, 0xf7, 0xff, 0, 0, 0, 0}, byte(0)
	if to.Is6() {
		network, echo[0], reply = "ip6:ipv6-icmp", 128, 129 // the kernel sees to the checksum
	}
	var c net.Conn
	var err error
	s.neighbour.In(func() { c, err = net.Dial(network, to.String()) })
	s.neighbour.Must(err)
	defer c.Close()
	wait.Until(s.node.T, "an ICMP echo is answered", func() bool {
		_, err := c.Write(echo)
		s.neighbour.Must(err)
		s.neighbour.Must(c.SetReadDeadline(time.Now().Add(100 * time.Millisecond)))
		b := make([]byte, 100)
		n, _, err := c.(*net.IPConn).ReadFrom(b)
		return err == nil && n > 0 && b[0] == reply
	})
}

// insist makes the neighbour send to this node, whichever node answers.
func (s *site) insist() {
	s.node.T.Helper()
	for i := range vip {
		s.neighbour.Must(s.neighbour.NL.NeighSet(&netlink.Neigh{
			LinkIndex: s.neighbour.Link(linkName).Attrs().Index, IP: vip[i].Addr().AsSlice(),
			HardwareAddr: s.node.mac(linkName), State: netlink.NUD_PERMANENT,
		}))
		s.ping(nodeOwn[i].Addr()) // the node, too, knows whom it sends to: it may not ask with a closed address
	}
}

// A Service's address leads to the Service, and nowhere else; whichever node has
// the lock to it, and whether or not it is this node.
func TestServe(t *testing.T) {
	s := newSite(t)
	f := s.node.fenceWith(Options{Services: true})
	s.insist()
	check := func(what, atHostPort string) {
		t.Helper()
		for i, addr := range vip.addrs() {
			for _, from := range []*host{s.neighbour, s.node} {
				if got := s.connect(from, addr, s.ports.service); got != "pod" {
					t.Errorf("%s: port %d of %s: %s, want the pod", what, s.ports.service, addr, got)
				}
				if got := s.connect(from, addr, s.ports.host); got != atHostPort {
					t.Errorf("%s: port %d of %s: %s, want %s", what, s.ports.host, addr, got, atHostPort)
				}
			}
			if got := s.connect(s.neighbour, nodeOwn[i].Addr(), s.ports.host); got != "node" {
				t.Errorf("%s: port %d of the node: %s", what, s.ports.host, got)
			}
			s.ping(addr)
			if atHostPort == "refused" {
				s.refused(s.neighbour, addr)
			}
		}
	}
	check("no fence for it", "node")
	s.node.Must(f.Serve(vip.addrs()...))
	check("served, and closed", "refused")
	for _, addr := range vip.addrs() {
		if s.answers(addr) {
			t.Errorf("answers for %s while it is closed", addr)
		}
	}
	s.node.open(f.Open, vip.addrs()...)
	check("open", "refused")
	for _, addr := range vip.addrs() {
		if !s.answers(addr) {
			t.Errorf("does not answer for %s", addr)
		}
	}
	s.node.Must(f.Guard(vip.addrs()...))
	check("guarded as well", "refused")
	s.node.Must(f.Serve())
	for _, addr := range vip.addrs() {
		if !s.answers(addr) {
			t.Errorf("%s is closed since it is no Service's any more", addr)
		}
		if got := s.connect(s.neighbour, addr, s.ports.host); got != "node" {
			t.Errorf("what is no Service's is refused: %s", got)
		}
	}
	s.node.Must(f.Guard())
	s.node.Must(f.Check())
	if got := f.status(); got.Gated != 0 || got.Restored != 0 {
		t.Errorf("status %+v", got)
	}
}

// Where the administrator says so, what listens on the node is reached as well.
func TestServeHostPorts(t *testing.T) {
	s := newSite(t)
	f := s.node.fenceWith(Options{Services: true, HostPorts: true})
	s.node.Must(f.Serve(vip.addrs()...))
	s.node.open(f.Open, vip.addrs()...)
	for _, addr := range vip.addrs() {
		if got := s.connect(s.neighbour, addr, s.ports.host); got != "node" {
			t.Errorf("the node's port by %s: %s", addr, got)
		}
		if got := s.connect(s.neighbour, addr, s.ports.service); got != "pod" {
			t.Errorf("the Service's port by %s: %s", addr, got)
		}
	}
}

// With kube-proxy in IPVS mode every node has every address, on a link of its own,
// and yet only who may answers. Its pods reach the Service all the same.
func TestServeIPVS(t *testing.T) {
	s := newSite(t)
	far := newHost(t)
	s.node.addVeth("kube-ipvs0", far)
	for _, v := range vip {
		s.node.remove(linkName, v)
		s.node.add("kube-ipvs0", v)
	}
	f := s.node.fenceWith(Options{Services: true})
	for _, addr := range vip.addrs() {
		if addr.Is4() && !s.answers(addr) {
			t.Errorf("%s is not answered for without a fence either: this test tests nothing", addr)
		}
	}
	s.node.Must(f.Serve(vip.addrs()...))
	for _, addr := range vip.addrs() {
		if s.answers(addr) {
			t.Errorf("answers for %s, which is closed", addr)
		}
		if got := s.connect(s.pod, addr, s.ports.service); got != "pod" {
			t.Errorf("a pod reaches %s at %s", got, addr)
		}
	}
	for _, v := range vip {
		s.node.add(linkName, v)
	}
	s.node.open(f.Open, vip.addrs()...)
	for _, addr := range vip.addrs() {
		wait.Until(t, "it answers for what is open", func() bool { return s.answers(addr) }) // a new address takes a moment
		if got := s.connect(s.neighbour, addr, s.ports.service); got != "pod" {
			t.Errorf("a client reaches %s at %s", got, addr)
		}
	}
}

// What somebody else removes of it is put back.
func TestServeVandals(t *testing.T) {
	s := newSite(t)
	s.insist()
	f := s.node.fenceWith(Options{Services: true})
	s.node.Must(f.Serve(vip.addrs()...))
	for i, command := range []string{
		"flush ruleset", "flush chain inet herald services", "flush set inet herald services4",
		"delete element inet herald services6 { " + vip[1].Addr().String() + " }", "add element inet herald services4 { 10.9.0.1 }",
	} {
		s.node.run(command, "nft", "-f", "-")
		s.node.Must(f.Check())
		if got := f.status().Restored; got != uint64(i+1) {
			t.Errorf("after %q: %d restored, want %d", command, got, i+1)
		}
		for _, addr := range vip.addrs() {
			if got := s.connect(s.neighbour, addr, s.ports.host); got != "refused" {
				t.Errorf("after %q: the node's port by %s: %s", command, addr, got)
			}
		}
		if got := s.connect(s.neighbour, nodeOwn[0].Addr(), s.ports.host); got != "node" {
			t.Errorf("after %q: the node's port by its own address: %s", command, got)
		}
	}
}

// Who has not asked for Services has neither their rules nor, by those, connection tracking.
func TestServeNotAsked(t *testing.T) {
	h := newHost(t)
	f := h.fence()
	if err := f.Serve(vip.addrs()...); !errors.Is(err, errNoServices) {
		t.Errorf("Serve: %v", err)
	}
	h.Must(f.Serve())
	if err := f.Serve(netip.Addr{}); err == nil {
		t.Error("serves no address at all")
	}
	if got := h.run("", "nft", "list", "ruleset"); strings.Contains(got, "services") || strings.Contains(got, "ct ") {
		t.Errorf("there are rules for Services:\n%s", got)
	}
	if _, err := NewOver(slog.New(slog.DiscardHandler), &model{}, Options{}); err != nil {
		t.Error(err)
	}
}
