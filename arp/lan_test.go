package arp_test

import (
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/herald-vip/herald/arp"
	"github.com/herald-vip/herald/testenv/wait"
)

// Neighbours with another entry for an address send to the announcer's link after an announcement.
func TestNeighboursFollow(t *testing.T) {
	for _, kind := range []string{"veth", "bridge", "macvlan"} {
		t.Run(kind, func(t *testing.T) {
			l := newLAN(t)
			link := "eth0"
			switch kind {
			case "bridge":
				link = "br0"
				must(t, l.self.NL.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: link}}))
				must(t, l.self.NL.LinkSetHardwareAddr(l.self.Link(link), net.HardwareAddr{2, 0, 0, 0, 0, 0x42}))
				must(t, l.self.NL.LinkSetMaster(l.self.Link("eth0"), l.self.Link(link)))
			case "macvlan":
				link = "mac0"
				must(t, l.self.NL.LinkAdd(&netlink.Macvlan{Mode: netlink.MACVLAN_MODE_BRIDGE,
					LinkAttrs: netlink.LinkAttrs{Name: link, ParentIndex: l.self.Link("eth0").Attrs().Index}}))
			}
			l.self.SetUp(link)
			a := l.run()
			l.mislead()
			a.Apply([]arp.Watched{{Link: link, Addr: vips[0]}, {Link: link, Addr: vips[1]}})
			l.announces(link, vips...)
			l.believes(l.self.mac(link))

			for _, vip := range vips {
				l.stranger.send("eth0", arp.Frames(l.stranger.mac("eth0"), vip)...)
			}
			wait.Until(t, "both conflicts are found", func() bool {
				found := 0
				for _, f := range a.Status() {
					if f.State == arp.Taken && slices.Equal(f.MAC, l.stranger.mac("eth0")) {
						found++
					}
				}
				return found == len(vips)
			})
		})
	}
}

func TestLinkDownAndUp(t *testing.T) {
	l := newLAN(t)
	a := l.run()
	l.mislead()
	l.announces("eth0", vips...)
	l.believes(l.self.mac("eth0"))

	for _, set := range []struct{ down, up func() }{
		{func() { l.self.SetDown("eth0") }, func() { l.self.SetUp("eth0") }},
		{func() { l.hub.SetDown("port0") }, func() { l.hub.SetUp("port0") }}, // the carrier
	} {
		set.down()
		wait.Until(t, "Announce fails", func() bool { return a.Announce(time.Time{}, "eth0", vips...) != nil })
		l.mislead()
		set.up()
		l.believes(l.self.mac("eth0"))
	}
}

func TestLinkIsMadeAnew(t *testing.T) {
	l := newLAN(t)
	a := l.run()
	a.Apply([]arp.Watched{{Link: "eth0", Addr: vips[0]}, {Link: "eth0", Addr: vips[1]}})
	l.announces("eth0", vips...)
	before := l.self.mac("eth0")
	must(t, l.self.NL.LinkDel(l.self.Link("eth0")))
	l.mislead()
	l.plug(l.self, "port9", "eth0")
	if mac := l.self.mac("eth0"); slices.Equal(mac, before) {
		t.Fatalf("the new link has the old hardware address, %s", mac)
	}
	l.believes(l.self.mac("eth0"))
	for _, vip := range vips {
		l.stranger.send("eth0", arp.Frames(l.stranger.mac("eth0"), vip)...)
		l.finds(vip, arp.Taken)
	}
}

func TestHardwareAddressChanges(t *testing.T) {
	l := newLAN(t)
	l.run()
	l.mislead()
	l.announces("eth0", vips...)
	l.believes(l.self.mac("eth0"))
	mac := net.HardwareAddr{2, 0, 0, 0, 0, 0x17}
	must(t, l.self.NL.LinkSetHardwareAddr(l.self.Link("eth0"), mac))
	l.believes(mac)
}

// The kernel of a host with the address answers the probe.
func TestProbeOnTheWire(t *testing.T) {
	l := newLAN(t)
	l.stranger.Add("eth0", "10.0.0.99/32")
	l.stranger.Add("eth0", "fd00::99/128")
	a := l.run()
	free := []netip.Addr{vips[0].Next(), vips[1].Next()}
	var watched []arp.Watched
	for _, addr := range append(free, vips...) {
		watched = append(watched, arp.Watched{Link: "eth0", Addr: addr, Policy: arp.Yield, Probe: true})
	}
	a.Apply(watched)
	for _, vip := range vips {
		if f := l.finds(vip, arp.Taken); !slices.Equal(f.MAC, l.stranger.mac("eth0")) {
			t.Errorf("%s is taken by %s, want %s", vip, f.MAC, l.stranger.mac("eth0"))
		}
	}
	for _, addr := range free {
		l.finds(addr, arp.Free)
	}

	a.Members([]net.HardwareAddr{l.stranger.mac("eth0")}) // the stranger is a member after all
	for _, vip := range vips {
		l.finds(vip, arp.Free)
	}
}

// A stranger that uses the addresses is detected, and loses them if they are defended.
func TestDefend(t *testing.T) {
	l := newLAN(t)
	a := l.run()
	a.Apply([]arp.Watched{{Link: "eth0", Addr: vips[0]}, {Link: "eth0", Addr: vips[1]}})
	l.mislead()
	l.announces("eth0", vips...)
	l.believes(l.self.mac("eth0"))

	l.usurp()
	for _, vip := range vips {
		if f := l.finds(vip, arp.Taken); !slices.Equal(f.MAC, l.stranger.mac("eth0")) {
			t.Errorf("%s is taken by %s, want %s", vip, f.MAC, l.stranger.mac("eth0"))
		}
	}
	wait.Until(t, "both are defended", func() bool { return a.Stats().Defended >= 2 })
	l.believes(l.self.mac("eth0"))
}

// usurp makes the stranger's kernel use the VIPs: it sends requests for another host with them as source.
func (l *lan) usurp() {
	l.t.Helper()
	l.stranger.Add("eth0", "10.0.0.99/24")
	l.stranger.Add("eth0", "fd00::99/64")
	for i, unused := range []string{"10.0.0.200", "fd00::200"} {
		must(l.t, l.stranger.in(func() error {
			c, err := net.DialUDP("udp", &net.UDPAddr{IP: vips[i].AsSlice()}, &net.UDPAddr{IP: net.ParseIP(unused), Port: 9})
			if err != nil {
				return err
			}
			defer c.Close()
			_, err = c.Write([]byte{0})
			return err
		}))
	}
}

// The kernel filters frames about other addresses, frames to other hosts, and frames of other VLANs.
func TestFilterOnTheWire(t *testing.T) {
	l := newLAN(t)
	a := l.run()
	a.Apply([]arp.Watched{{Link: "eth0", Addr: vips[0]}, {Link: "eth0", Addr: vips[1]}})
	mac := l.stranger.mac("eth0")
	var frames [][]byte
	for _, vip := range vips {
		for range 100 {
			frames = append(frames, arp.Frames(mac, vip.Next())...)
		}
		for _, frame := range arp.Frames(mac, vip) {
			elsewhere := slices.Clone(frame)
			copy(elsewhere, l.client.mac("eth0"))
			frames = append(frames, elsewhere, slices.Insert(slices.Clone(frame), 12, 0x81, 0, 0, 10))
		}
	}
	l.stranger.send("eth0", append(frames, arp.Frames(mac, vips[0])[0], arp.Frames(mac, vips[1])[0])...)
	for _, vip := range vips {
		l.finds(vip, arp.Taken)
	}
	if got := a.Stats(); got.Received != 2 {
		t.Errorf("%d statements received, want 2", got.Received)
	}
}

// This node's own frames that come back on the link are no conflicts.
func TestOwnFrames(t *testing.T) {
	l := newLAN(t)
	a := l.run()
	a.Apply([]arp.Watched{{Link: "eth0", Addr: vips[0]}, {Link: "eth0", Addr: vips[1]}})
	l.announces("eth0", vips...)
	for _, vip := range vips {
		l.stranger.send("eth0", arp.Frames(l.self.mac("eth0"), vip)...) // as by a loop in the network
	}
	free := vips[0].Next()
	a.Apply([]arp.Watched{{Link: "eth0", Addr: vips[0]}, {Link: "eth0", Addr: vips[1]}, {Link: "eth0", Addr: free}})
	l.stranger.send("eth0", arp.Frames(l.stranger.mac("eth0"), free)...)
	l.finds(free, arp.Taken)
	for _, vip := range vips {
		l.finds(vip, arp.Free)
	}
}

// A host that uses the addresses but only answers requests is detected. A member that still has them, as the
// previous holder might, is not reported.
func TestSilentDuplicate(t *testing.T) {
	l := newLAN(t)
	for i, bits := range []string{"/32", "/128"} {
		l.client.Add("eth0", vips[i].String()+bits)
	}
	a := l.run()
	a.Members([]net.HardwareAddr{l.client.mac("eth0")})
	a.Apply([]arp.Watched{{Link: "eth0", Addr: vips[0]}, {Link: "eth0", Addr: vips[1]}})
	l.announces("eth0", vips...)
	wait.Until(t, "the member answers for both", func() bool { return a.Stats().Received >= 2 })
	for _, vip := range vips {
		l.finds(vip, arp.Free)
	}

	for i, bits := range []string{"/32", "/128"} {
		l.stranger.Add("eth0", vips[i].String()+bits)
	}
	l.announces("eth0", vips...) // stands for the next refresh
	for _, vip := range vips {
		if f := l.finds(vip, arp.Taken); !slices.Equal(f.MAC, l.stranger.mac("eth0")) {
			t.Errorf("%s is taken by %s, want %s", vip, f.MAC, l.stranger.mac("eth0"))
		}
	}
}

// Two members that hold the VIPs at once both detect it.
func TestTwoMembersOnTheWire(t *testing.T) {
	l := newLAN(t)
	self, other := l.run(), l.runOn(l.stranger)
	self.Members([]net.HardwareAddr{l.stranger.mac("eth0")})
	other.Members([]net.HardwareAddr{l.self.mac("eth0")})
	for _, a := range []*arp.Announcer{self, other} {
		a.Apply([]arp.Watched{{Link: "eth0", Addr: vips[0]}, {Link: "eth0", Addr: vips[1]}})
		wait.Until(t, "Announce succeeds", func() bool { return a.Announce(time.Time{}, "eth0", vips...) == nil })
	}
	for _, a := range []*arp.Announcer{self, other} {
		wait.Until(t, "both addresses have a rival", func() bool {
			return !slices.ContainsFunc(a.Status(), func(f arp.Finding) bool { return f.Rival == nil })
		})
	}
}
