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

// site is a node with the address of a Service, a client on its link, and a pod.
type site struct {
	*wire
	pod   *host
	ports struct{ service, host uint16 } // of the Service, and of a listener on the node
}

// podNet is the subnet of the pod and its node.
var podNet = pair{netip.MustParsePrefix("10.8.0.1/24"), netip.MustParsePrefix("fd00:8::1/64")}

// newSite replaces kube-proxy by rules that claim one port of vip.
func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{wire: newWire(t), pod: newHost(t)}
	s.ports.service = 80
	s.node.Connect("pod0", s.pod.Host, "pod0")
	s.node.Sysctl("ipv4/ip_forward", "1")
	s.node.Sysctl("ipv6/conf/all/forwarding", "1")
	var rules strings.Builder
	for i, family := range []string{"ip", "ip6"} {
		p := podNet[i]
		s.node.Add("pod0", p.String())
		s.pod.Add("pod0", netip.PrefixFrom(p.Addr().Next(), p.Bits()).String())
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
	s.node.NFT(rules.String())
	s.listen(s.pod, ":8080", "pod")
	s.ports.host = s.listen(s.node, ":0", "node")
	return s
}

// listen makes a host send a word to each TCP client at an address.
func (s *site) listen(h *host, at, word string) (port uint16) {
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

// connect returns the word that answers a connection from a host, or "refused".
func (s *site) connect(from *host, dst netip.Addr, port uint16) string {
	s.node.T.Helper()
	var c net.Conn
	var err error
	from.In(func() { c, err = net.DialTimeout("tcp", netip.AddrPortFrom(dst, port).String(), patience) })
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

// refused waits until a datagram from a host is rejected.
func (s *site) refused(from *host, dst netip.Addr) {
	s.node.T.Helper()
	var c net.Conn
	var err error
	from.In(func() {
		c, err = net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(dst, s.ports.host)))
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
func (s *site) ping(dst netip.Addr) {
	s.node.T.Helper()
	network, echo, reply := "ip4:icmp", []byte{8, 0, 0xf7, 0xff, 0, 0, 0, 0}, byte(0)
	if dst.Is6() {
		network, echo[0], reply = "ip6:ipv6-icmp", 128, 129 // the kernel sets the checksum
	}
	var c net.Conn
	var err error
	s.neighbour.In(func() { c, err = net.Dial(network, dst.String()) })
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

// insist makes the neighbour send to this node without asking.
func (s *site) insist() {
	s.node.T.Helper()
	for i := range vip {
		s.neighbour.Must(s.neighbour.NL.NeighSet(&netlink.Neigh{
			LinkIndex: s.neighbour.Link(linkName).Attrs().Index, IP: vip[i].Addr().AsSlice(),
			HardwareAddr: s.node.mac(linkName), State: netlink.NUD_PERMANENT,
		}))
		s.ping(nodeOwn[i].Addr()) // resolves the neighbour on the node too: it cannot ask from a closed address
	}
}

// Packets to a Service's address reach the Service only, whether or not this node holds the address.
func TestServe(t *testing.T) {
	s := newSite(t)
	f := s.node.fenceWith(Options{Services: true})
	s.insist()
	check := func(when, atHostPort string) {
		t.Helper()
		for i, addr := range vip.addrs() {
			for _, from := range []*host{s.neighbour, s.node} {
				if got := s.connect(from, addr, s.ports.service); got != "pod" {
					t.Errorf("%s: port %d of %s: %s, want pod", when, s.ports.service, addr, got)
				}
				if got := s.connect(from, addr, s.ports.host); got != atHostPort {
					t.Errorf("%s: port %d of %s: %s, want %s", when, s.ports.host, addr, got, atHostPort)
				}
			}
			if got := s.connect(s.neighbour, nodeOwn[i].Addr(), s.ports.host); got != "node" {
				t.Errorf("%s: port %d of the node: %s, want node", when, s.ports.host, got)
			}
			s.ping(addr)
			if atHostPort == "refused" {
				s.refused(s.neighbour, addr)
			}
		}
	}
	check("not filtered", "node")
	s.node.Must(f.FilterServices(vip.addrs()...))
	check("filtered and closed", "refused")
	for _, addr := range vip.addrs() {
		if s.answers(addr) {
			t.Errorf("node answers for %s while it is closed", addr)
		}
	}
	s.node.open(f.Open, vip.addrs()...)
	check("open", "refused")
	for _, addr := range vip.addrs() {
		if !s.answers(addr) {
			t.Errorf("node does not answer for %s while it is open", addr)
		}
	}
	s.node.Must(f.Filter(vip.addrs()...))
	check("filtered as a VIP too", "refused")
	s.node.Must(f.FilterServices())
	for _, addr := range vip.addrs() {
		if !s.answers(addr) {
			t.Errorf("node does not answer for %s, which is no longer a Service's", addr)
		}
		if got := s.connect(s.neighbour, addr, s.ports.host); got != "node" {
			t.Errorf("host port of an address without a Service: %s, want node", got)
		}
	}
	s.node.Must(f.Filter())
	s.node.Must(f.Check())
	if got := f.status(); got.Filtered != 0 || got.Restored != 0 {
		t.Errorf("status %+v", got)
	}
}

// With HostPorts, the node's own listeners can be reached too.
func TestServeHostPorts(t *testing.T) {
	s := newSite(t)
	f := s.node.fenceWith(Options{Services: true, HostPorts: true})
	s.node.Must(f.FilterServices(vip.addrs()...))
	s.node.open(f.Open, vip.addrs()...)
	for _, addr := range vip.addrs() {
		if got := s.connect(s.neighbour, addr, s.ports.host); got != "node" {
			t.Errorf("node's port at %s: %s, want node", addr, got)
		}
		if got := s.connect(s.neighbour, addr, s.ports.service); got != "pod" {
			t.Errorf("Service's port at %s: %s, want pod", addr, got)
		}
	}
}

// kube-proxy in IPVS mode puts every address on a link of every node. Only the holder answers, but every node's pods
// reach the Service.
func TestServeIPVS(t *testing.T) {
	s := newSite(t)
	far := newHost(t)
	s.node.Connect("kube-ipvs0", far.Host, "kube-ipvs0")
	for _, v := range vip {
		s.node.Remove(linkName, v.String())
		s.node.Add("kube-ipvs0", v.String())
	}
	f := s.node.fenceWith(Options{Services: true})
	for _, addr := range vip.addrs() {
		if addr.Is4() && !s.answers(addr) {
			t.Errorf("node does not answer for %s without a fence either: the test is void", addr)
		}
	}
	s.node.Must(f.FilterServices(vip.addrs()...))
	for _, addr := range vip.addrs() {
		if s.answers(addr) {
			t.Errorf("node answers for %s while it is closed", addr)
		}
		if got := s.connect(s.pod, addr, s.ports.service); got != "pod" {
			t.Errorf("a pod reaches %s at %s, want pod", got, addr)
		}
	}
	for _, v := range vip {
		s.node.Add(linkName, v.String())
	}
	s.node.open(f.Open, vip.addrs()...)
	for _, addr := range vip.addrs() {
		wait.Until(t, "the node answers for the open address", func() bool { return s.answers(addr) }) // a new address takes a moment
		if got := s.connect(s.neighbour, addr, s.ports.service); got != "pod" {
			t.Errorf("a client reaches %s at %s, want pod", got, addr)
		}
	}
}

// Check puts back the parts for Services.
func TestServeVandals(t *testing.T) {
	s := newSite(t)
	s.insist()
	f := s.node.fenceWith(Options{Services: true})
	s.node.Must(f.FilterServices(vip.addrs()...))
	for i, command := range []string{
		"flush ruleset", "flush chain inet herald services", "flush set inet herald services4",
		"delete element inet herald services6 { " + vip[1].Addr().String() + " }", "add element inet herald services4 { 10.9.0.1 }",
	} {
		s.node.NFT(command)
		s.node.Must(f.Check())
		if got := f.status().Restored; got != uint64(i+1) {
			t.Errorf("after %q: Restored %d, want %d", command, got, i+1)
		}
		for _, addr := range vip.addrs() {
			if got := s.connect(s.neighbour, addr, s.ports.host); got != "refused" {
				t.Errorf("after %q: node's port at %s: %s, want refused", command, addr, got)
			}
		}
		if got := s.connect(s.neighbour, nodeOwn[0].Addr(), s.ports.host); got != "node" {
			t.Errorf("after %q: node's port at its own address: %s, want node", command, got)
		}
	}
}

// Without Options.Services there are no rules for Services, and hence no connection tracking.
func TestServeNotAsked(t *testing.T) {
	h := newHost(t)
	f := h.fence()
	if err := f.FilterServices(vip.addrs()...); !errors.Is(err, errNoServices) {
		t.Errorf("FilterServices: error %v, want %v", err, errNoServices)
	}
	h.Must(f.FilterServices())
	if err := f.FilterServices(netip.Addr{}); err == nil {
		t.Error("FilterServices accepts the zero address")
	}
	if got := h.Run("", "nft", "list", "ruleset"); strings.Contains(got, "services") || strings.Contains(got, "ct ") {
		t.Errorf("there are rules for Services:\n%s", got)
	}
	if _, err := NewOver(slog.New(slog.DiscardHandler), &model{}, Options{}); err != nil {
		t.Error(err)
	}
}
