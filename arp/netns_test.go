package arp_test

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/mdlayher/packet"
	"github.com/vishvananda/netlink"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/arp"
	"github.com/herald-vip/herald/testenv/netns"
	"github.com/herald-vip/herald/testenv/nettest"
	"github.com/herald-vip/herald/testenv/wait"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var vips = []netip.Addr{netip.MustParseAddr("10.0.0.99"), netip.MustParseAddr("fd00::99")}

// host is a new network namespace.
type host struct{ *nettest.Host }

func newHost(t testing.TB) *host {
	t.Helper()
	return &host{nettest.NewHost(t)}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// in runs f on a thread inside the namespace.
func (h *host) in(f func() error) error { return netns.In(h.NS, f) }

func (h *host) mac(name string) net.HardwareAddr {
	h.T.Helper()
	return h.Link(name).Attrs().HardwareAddr
}

// neighbour returns the hardware address in the host's neighbour entry for addr; nil without one.
func (h *host) neighbour(link string, addr netip.Addr) net.HardwareAddr {
	h.T.Helper()
	all, err := h.NL.NeighList(h.Link(link).Attrs().Index, netlink.FAMILY_ALL)
	h.Must(err)
	for _, n := range all {
		if ip, _ := netip.AddrFromSlice(n.IP); ip.Unmap() == addr {
			return n.HardwareAddr
		}
	}
	return nil
}

// believe sets the host's neighbour entry for addr.
func (h *host) believe(link string, addr netip.Addr, mac net.HardwareAddr) {
	h.T.Helper()
	h.Must(h.NL.NeighSet(&netlink.Neigh{
		LinkIndex: h.Link(link).Attrs().Index, IP: addr.AsSlice(), HardwareAddr: mac, State: netlink.NUD_REACHABLE,
	}))
}

// send sends raw frames.
func (h *host) send(link string, frames ...[]byte) {
	h.T.Helper()
	h.Must(h.in(func() error {
		l := h.Link(link).Attrs()
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

// lan is a switch with three hosts: the announcer's, a neighbour, and a stranger. Their links are eth0.
type lan struct {
	t                      testing.TB
	hub                    *host
	self, client, stranger *host
	announcer              *arp.Announcer
}

func newLAN(t testing.TB) *lan {
	t.Helper()
	l := &lan{t: t, hub: newHost(t), self: newHost(t), client: newHost(t), stranger: newHost(t)}
	must(t, l.hub.NL.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}}))
	l.hub.SetUp("br0")
	for i, h := range []*host{l.self, l.client, l.stranger} {
		l.plug(h, "port"+string(rune('0'+i)), "eth0")
		h.Add("eth0", netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)}), 24).String())
		h.Add("eth0", netip.PrefixFrom(netip.AddrFrom16([16]byte{0xfd, 15: byte(i + 1)}), 64).String())
	}
	return l
}

// plug attaches a host to the switch by a new link.
func (l *lan) plug(h *host, port, name string) {
	l.t.Helper()
	must(l.t, l.hub.NL.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: port}, PeerName: "temp0"}))
	must(l.t, l.hub.NL.LinkSetMaster(l.hub.Link(port), l.hub.Link("br0")))
	must(l.t, l.hub.NL.LinkSetName(l.hub.Link("temp0"), name))
	must(l.t, l.hub.NL.LinkSetNsFd(l.hub.Link(name), int(h.NS)))
	l.hub.SetUp(port)
	h.SetUp(name)
	wait.Until(l.t, port+" forwards", func() bool { // until then the kernel drops frames without an error
		return l.hub.Link(port).Attrs().OperState == netlink.OperUp && h.Link(name).Attrs().OperState == netlink.OperUp
	})
}

// run starts the announcer on the first host, until the test ends.
func (l *lan) run() *arp.Announcer {
	l.t.Helper()
	l.announcer = l.runOn(l.self)
	l.announces("eth0", netip.MustParseAddr("10.0.0.1"))
	l.announcer.Withdraw("eth0", netip.MustParseAddr("10.0.0.1"))
	return l.announcer
}

// runOn starts an announcer on a host, until the test ends.
func (l *lan) runOn(h *host) *arp.Announcer {
	a := arp.NewInside(slog.New(slog.DiscardHandler), arp.Options{}, h.in)
	wait.Go(l.t, func(ctx context.Context) {
		if err := a.Run(ctx); err != nil {
			l.t.Errorf("Run: %v", err)
		}
	})
	return a
}

// announces calls Announce until it succeeds: a link may have come up just before.
func (l *lan) announces(link string, addrs ...netip.Addr) {
	l.t.Helper()
	wait.Until(l.t, "Announce succeeds", func() bool { return l.announcer.Announce(time.Time{}, link, addrs...) == nil })
}

// believes waits until the client's neighbour entries for the VIPs have mac.
func (l *lan) believes(mac net.HardwareAddr) {
	l.t.Helper()
	for _, vip := range vips {
		wait.Until(l.t, "the client's entry for "+vip.String()+" is "+mac.String(), func() bool {
			return slices.Equal(l.client.neighbour("eth0", vip), mac)
		})
	}
}

// mislead sets the client's neighbour entries for the VIPs to the stranger.
func (l *lan) mislead() {
	l.t.Helper()
	for _, vip := range vips {
		l.client.believe("eth0", vip, l.stranger.mac("eth0"))
	}
}

// finds waits for the state of a VIP on eth0.
func (l *lan) finds(vip netip.Addr, want arp.State) (found arp.Finding) {
	l.t.Helper()
	wait.Until(l.t, vip.String()+" is "+want.String(), func() bool {
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
