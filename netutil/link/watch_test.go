package link_test

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/herald-vip/herald/netutil/link"

	"github.com/herald-vip/herald/netutil/rtnetlink"
	"github.com/herald-vip/herald/testenv/nettest"
	"github.com/herald-vip/herald/testenv/wait"
)

// watched records the reports of Watch.
type watched struct {
	mu    sync.Mutex
	links map[string]link.Link
	downs map[string]int // by link: number of reports that it went down
}

func (w *watched) changed(links map[string]link.Link) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for name, prev := range w.links {
		if now, ok := links[name]; ok && prev.Up && !now.Up {
			w.downs[name]++
		}
	}
	w.links = links
}

func (w *watched) link(name string) link.Link {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.links[name]
}

// watchLinks runs Watch in the host until the test ends.
func watchLinks(h *nettest.Host, watcher *rtnetlink.Watcher, changed func(*watched, map[string]link.Link)) *watched {
	h.T.Helper()
	w := &watched{downs: make(map[string]int)}
	ctx, cancel := context.WithCancel(h.T.Context())
	done := make(chan error, 1)
	go h.In(func() {
		done <- link.Watch(ctx, watcher, func(links map[string]link.Link) { changed(w, links) })
	})
	h.T.Cleanup(func() {
		cancel()
		if err := nettest.Receive(h.T, done); err != nil {
			h.T.Errorf("Watch: %v", err)
		}
	})
	return w
}

func TestWatchLinks(t *testing.T) {
	h := nettest.NewHost(t)
	w := watchLinks(h, new(rtnetlink.Watcher), (*watched).changed)
	wait.Until(t, "lo is known", func() bool { return w.link("lo").Index == 1 })

	h.AddVeth("veth0", "veth1")
	wait.Until(t, "veth0 is up", func() bool { return w.link("veth0").Up })
	attrs := h.Link("veth0").Attrs()
	if got := w.link("veth0"); got.Kind != "veth" || got.MTU != 1500 || !slices.Equal(got.MAC, attrs.HardwareAddr) || got.Index != attrs.Index {
		t.Errorf("veth0 is %+v", got)
	}

	h.SetDown("veth1")
	wait.Until(t, "veth0 has no carrier", func() bool { return !w.link("veth0").Up })
	h.SetUp("veth1")
	wait.Until(t, "veth0 has a carrier", func() bool { return w.link("veth0").Up })
	h.SetDown("veth0")
	wait.Until(t, "veth0 is down", func() bool { return !w.link("veth0").Up })
	h.SetUp("veth0")
	wait.Until(t, "veth0 is up again", func() bool { return w.link("veth0").Up })

	mac := net.HardwareAddr{2, 0, 0, 0, 0, 9}
	h.Must(h.NL.LinkSetHardwareAddr(h.Link("veth0"), mac))
	h.Must(h.NL.LinkSetMTU(h.Link("veth0"), 1400))
	h.Add("veth0", "10.0.0.1/24")
	h.Add("veth0", "fd00::1/64")
	subnets := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24"), netip.MustParsePrefix("fd00::/64")}
	wait.Until(t, "MAC, MTU and subnets are reported", func() bool {
		got := w.link("veth0")
		return slices.Equal(got.MAC, mac) && got.MTU == 1400 && slices.Equal(got.Prefixes, subnets)
	})
	h.In(func() {
		for _, addr := range []string{"10.0.0.99", "fd00::99"} {
			if got, err := link.For(netip.MustParseAddr(addr)); got != "veth0" || err != nil {
				t.Errorf("the link for %s is %q, error %v", addr, got, err)
			}
		}
	})

	h.Must(h.NL.LinkDel(h.Link("veth0")))
	wait.Until(t, "veth0 is gone", func() bool { return w.link("veth0").Index == 0 })
	h.AddVeth("veth0", "veth1")
	wait.Until(t, "another veth0", func() bool { return w.link("veth0").Index > attrs.Index && w.link("veth0").Up })
}

// A bridge passes packets when one of its ports does.
func TestWatchBridge(t *testing.T) {
	h := nettest.NewHost(t)
	h.Must(h.NL.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}}))
	h.SetUp("br0")
	h.AddVeth("veth0", "veth1")
	w := watchLinks(h, new(rtnetlink.Watcher), (*watched).changed)
	h.Must(h.NL.LinkSetMaster(h.Link("veth0"), h.Link("br0")))
	wait.Until(t, "the bridge is up", func() bool {
		return w.link("br0").Kind == "bridge" && w.link("br0").Up && w.link("veth0").PortOf == "bridge"
	})
	h.Must(h.NL.LinkSetNoMaster(h.Link("veth0")))
	wait.Until(t, "the bridge is down, its port up", func() bool { return !w.link("br0").Up && w.link("veth0").Up })
}

// Watch reads everything again after the kernel has lost changes, here for want of a receive buffer.
func TestWatchLinksLosesChanges(t *testing.T) {
	h := nettest.NewHost(t)
	release := make(chan struct{})
	entered := make(chan struct{}, 1)
	w := watchLinks(h, &rtnetlink.Watcher{Buffer: 1}, func(w *watched, links map[string]link.Link) {
		w.changed(links)
		select {
		case entered <- struct{}{}:
		default:
		}
		<-release
	})
	nettest.Receive(t, entered)
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		h.Must(h.NL.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: name + "1"}))
	}
	close(release)
	wait.Until(t, "all links are known", func() bool { return w.link("h").Index != 0 && w.link("h1").Index != 0 })
}

// Watch reports each link that goes down, even if it is up again at once.
func TestWatchLinksReportsEachFlap(t *testing.T) {
	h := nettest.NewHost(t)
	h.AddVeth("veth0", "veth1")
	w := watchLinks(h, new(rtnetlink.Watcher), (*watched).changed)
	wait.Until(t, "veth0 is up", func() bool { return w.link("veth0").Up })
	const flaps = 5
	for range flaps {
		h.SetDown("veth0")
		h.SetUp("veth0")
	}
	wait.Until(t, "each flap is reported", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.downs["veth0"] == flaps && w.links["veth0"].Up
	})
}
