package arp_test

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/mdlayher/packet"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/arp"
	namespace "github.com/herald-vip/herald/testenv/netns"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var vips = []netip.Addr{netip.MustParseAddr("10.0.0.99"), netip.MustParseAddr("fd00::99")}

// host is a fresh network namespace.
type host struct {
	t  testing.TB
	ns netns.NsHandle
	nl *netlink.Handle
}

func newHost(t testing.TB) *host {
	t.Helper()
	ns, nl := namespace.New(t)
	return &host{t: t, ns: ns, nl: nl}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// in runs f on a thread inside the namespace.
func (h *host) in(f func() error) error {
	return namespace.In(h.ns, f)
}

func (h *host) link(name string) netlink.Link {
	h.t.Helper()
	l, err := h.nl.LinkByName(name)
	must(h.t, err)
	return l
}

func (h *host) mac(name string) net.HardwareAddr {
	h.t.Helper()
	return h.link(name).Attrs().HardwareAddr
}

func (h *host) setUp(name string)   { h.t.Helper(); must(h.t, h.nl.LinkSetUp(h.link(name))) }
func (h *host) setDown(name string) { h.t.Helper(); must(h.t, h.nl.LinkSetDown(h.link(name))) }

func (h *host) add(link, cidr string) {
	h.t.Helper()
	a, err := netlink.ParseAddr(cidr)
	must(h.t, err)
	if a.IP.To4() == nil {
		a.Flags = unix.IFA_F_NODAD // usable at once
	}
	must(h.t, h.nl.AddrAdd(h.link(link), a))
}

// neighbour returns where the host takes addr to be, if it knows.
func (h *host) neighbour(link string, addr netip.Addr) net.HardwareAddr {
	h.t.Helper()
	all, err := h.nl.NeighList(h.link(link).Attrs().Index, netlink.FAMILY_ALL)
	must(h.t, err)
	for _, n := range all {
		if ip, _ := netip.AddrFromSlice(n.IP); ip.Unmap() == addr {
			return n.HardwareAddr
		}
	}
	return nil
}

// believe has the host take addr to be at mac.
func (h *host) believe(link string, addr netip.Addr, mac net.HardwareAddr) {
	h.t.Helper()
	must(h.t, h.nl.NeighSet(&netlink.Neigh{
		LinkIndex: h.link(link).Attrs().Index, IP: addr.AsSlice(), HardwareAddr: mac, State: netlink.NUD_REACHABLE,
	}))
}

// send sends raw frames.
func (h *host) send(link string, frames ...[]byte) {
	h.t.Helper()
	must(h.t, h.in(func() error {
		l := h.link(link).Attrs()
		c, err := packet.Listen(&net.Interface{Index: l.Index}, packet.Raw, unix.ETH_P_LOOP, nil)
		if err != nil {
			return err
		}
		defer c.Close()
		for _, frame := range frames {
			if _, err := c.WriteTo(frame, &packet.Addr{HardwareAddr: frame[:6]}); err != nil {
				return err
			}
		}
		return nil
	}))
}

// lan is a switch with three hosts: the announcer's, a neighbour, and a stranger. Each is
// attached by eth0.
type lan struct {
	t                      testing.TB
	hub                    *host
	self, client, stranger *host
	announcer              *arp.Announcer
	mu                     sync.Mutex
	findings               []arp.Finding
}

func newLAN(t testing.TB) *lan {
	t.Helper()
	l := &lan{t: t, hub: newHost(t), self: newHost(t), client: newHost(t), stranger: newHost(t)}
	must(t, l.hub.nl.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}}))
	l.hub.setUp("br0")
	for i, h := range []*host{l.self, l.client, l.stranger} {
		l.plug(h, "port"+string(rune('0'+i)), "eth0")
		h.add("eth0", netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)}), 24).String())
		h.add("eth0", netip.PrefixFrom(netip.AddrFrom16([16]byte{0xfd, 15: byte(i + 1)}), 64).String())
	}
	return l
}

// plug attaches a host to the switch by a new link.
func (l *lan) plug(h *host, port, name string) {
	l.t.Helper()
	must(l.t, l.hub.nl.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: port}, PeerName: "temp0"}))
	must(l.t, l.hub.nl.LinkSetMaster(l.hub.link(port), l.hub.link("br0")))
	must(l.t, l.hub.nl.LinkSetName(l.hub.link("temp0"), name))
	must(l.t, l.hub.nl.LinkSetNsFd(l.hub.link(name), int(h.ns)))
	l.hub.setUp(port)
	h.setUp(name)
	eventually(l.t, port+" forwards", func() bool { // else the kernel drops what is sent, and says nothing
		return l.hub.link(port).Attrs().OperState == netlink.OperUp && h.link(name).Attrs().OperState == netlink.OperUp
	})
}

// run starts the announcer on the first host, until the test ends.
func (l *lan) run() *arp.Announcer {
	l.t.Helper()
	a := arp.NewInside(slog.New(slog.DiscardHandler), arp.Options{Observe: func(f arp.Finding) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.findings = append(l.findings, f)
	}}, l.self.in)
	ctx, cancel := context.WithCancel(l.t.Context())
	done := make(chan error)
	go func() { done <- a.Run(ctx) }()
	l.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			l.t.Errorf("Run: %v", err)
		}
	})
	l.announcer = a
	l.announces("eth0", netip.MustParseAddr("10.0.0.1"))
	a.Withdraw("eth0", netip.MustParseAddr("10.0.0.1"))
	return a
}

// announces calls Announce until it succeeds, as a link may have come up a moment ago.
func (l *lan) announces(link string, addrs ...netip.Addr) {
	l.t.Helper()
	eventually(l.t, "it announces", func() bool { return l.announcer.Announce(link, addrs...) == nil })
}

// believes waits until the client takes the VIPs to be at mac.
func (l *lan) believes(mac net.HardwareAddr) {
	l.t.Helper()
	for _, vip := range vips {
		eventually(l.t, "the client takes "+vip.String()+" to be at "+mac.String(), func() bool {
			return slices.Equal(l.client.neighbour("eth0", vip), mac)
		})
	}
}

// mislead has the client take the VIPs to be at the stranger.
func (l *lan) mislead() {
	l.t.Helper()
	for _, vip := range vips {
		l.client.believe("eth0", vip, l.stranger.mac("eth0"))
	}
}

// finds waits for the state of a VIP on eth0.
func (l *lan) finds(vip netip.Addr, want arp.State) (found arp.Finding) {
	l.t.Helper()
	eventually(l.t, vip.String()+" is "+want.String(), func() bool {
		for _, f := range l.announcer.Status() {
			if f.Addr == vip && f.State == want {
				found = f
				return true
			}
		}
		return false
	})
	return found
}

// patience is how long a test waits for what is to come at once.
const patience = 15 * time.Second

// eventually waits for a condition that something else brings about.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	poll := time.NewTicker(2 * time.Millisecond)
	defer poll.Stop()
	for !ok() {
		select {
		case <-deadline.C:
			t.Fatalf("in vain waited for: %s", what)
		case <-poll.C:
		}
	}
}
