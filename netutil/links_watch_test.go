package netutil_test

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/herald-vip/herald/netutil"
)

// watched keeps what WatchLinks tells.
type watched struct {
	mu    sync.Mutex
	links map[string]netutil.Link
	downs map[string]int // by link: times it was told to be down
}

func (w *watched) changed(links map[string]netutil.Link) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for name, was := range w.links {
		if now, ok := links[name]; ok && was.Up && !now.Up {
			w.downs[name]++
		}
	}
	w.links = links
}

func (w *watched) link(name string) netutil.Link {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.links[name]
}

// watchLinks has WatchLinks run in the host until the test ends.
func watchLinks(h *host, watch func(context.Context, func(map[string]netutil.Link)) error) *watched {
	h.t.Helper()
	w := &watched{downs: make(map[string]int)}
	ctx, cancel := context.WithCancel(h.t.Context())
	done := make(chan error, 1)
	go h.in(func() { done <- watch(ctx, w.changed) })
	h.t.Cleanup(func() {
		cancel()
		if err := receive(h.t, done); err != nil {
			h.t.Errorf("WatchLinks: %v", err)
		}
	})
	return w
}

func TestWatchLinks(t *testing.T) {
	h := newHost(t)
	w := watchLinks(h, netutil.WatchLinks)
	eventually(t, "lo is known", func() bool { return w.link("lo").Index == 1 })

	h.addVeth("veth0", "veth1")
	eventually(t, "veth0 is up", func() bool { return w.link("veth0").Up })
	was := h.link("veth0").Attrs()
	if got := w.link("veth0"); got.Kind != "veth" || got.MTU != 1500 || !slices.Equal(got.MAC, was.HardwareAddr) || got.Index != was.Index {
		t.Errorf("veth0 is %+v", got)
	}

	h.setDown("veth1")
	eventually(t, "veth0 has no carrier", func() bool { return !w.link("veth0").Up })
	h.setUp("veth1")
	eventually(t, "veth0 has a carrier", func() bool { return w.link("veth0").Up })
	h.setDown("veth0")
	eventually(t, "veth0 is down", func() bool { return !w.link("veth0").Up })
	h.setUp("veth0")
	eventually(t, "veth0 is up again", func() bool { return w.link("veth0").Up })

	mac := net.HardwareAddr{2, 0, 0, 0, 0, 9}
	h.must(h.nl.LinkSetHardwareAddr(h.link("veth0"), mac))
	h.must(h.nl.LinkSetMTU(h.link("veth0"), 1400))
	h.add("veth0", "10.0.0.1/24")
	h.add("veth0", "fd00::1/64")
	subnets := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24"), netip.MustParsePrefix("fd00::/64")}
	eventually(t, "MAC, MTU and subnets are told", func() bool {
		got := w.link("veth0")
		return slices.Equal(got.MAC, mac) && got.MTU == 1400 && slices.Equal(got.Prefixes, subnets)
	})
	h.in(func() {
		for _, addr := range []string{"10.0.0.99", "fd00::99"} {
			if got, err := netutil.LinkFor(netip.MustParseAddr(addr)); got != "veth0" || err != nil {
				t.Errorf("the link for %s is %q, error %v", addr, got, err)
			}
		}
	})

	h.must(h.nl.LinkDel(h.link("veth0")))
	eventually(t, "veth0 is gone", func() bool { return w.link("veth0").Index == 0 })
	h.addVeth("veth0", "veth1")
	eventually(t, "another veth0", func() bool { return w.link("veth0").Index > was.Index && w.link("veth0").Up })
}

// A bridge passes packets when one of its ports does.
func TestWatchBridge(t *testing.T) {
	h := newHost(t)
	h.must(h.nl.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}}))
	h.setUp("br0")
	h.addVeth("veth0", "veth1")
	w := watchLinks(h, netutil.WatchLinks)
	h.must(h.nl.LinkSetMaster(h.link("veth0"), h.link("br0")))
	eventually(t, "the bridge is up", func() bool { return w.link("br0").Kind == "bridge" && w.link("br0").Up })
	h.must(h.nl.LinkSetNoMaster(h.link("veth0")))
	eventually(t, "the bridge is down, its port still there", func() bool { return !w.link("br0").Up && w.link("veth0").Up })
}

// What the kernel could not tell, because it was too much, is looked up.
func TestWatchLinksLosesChanges(t *testing.T) {
	h := newHost(t)
	held := make(chan struct{})
	entered := make(chan struct{}, 1)
	w := watchLinks(h, func(ctx context.Context, changed func(map[string]netutil.Link)) error {
		return netutil.WatchLinksWith(ctx, 4096, func(links map[string]netutil.Link) {
			changed(links)
			select {
			case entered <- struct{}{}:
			default:
			}
			<-held
		})
	})
	receive(t, entered)
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		h.must(h.nl.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: name + "1"}))
	}
	close(held)
	eventually(t, "all links are known", func() bool { return w.link("h").Index != 0 && w.link("h1").Index != 0 })
}

// Each link that goes down and up is told to be down, however quick it is.
func TestWatchLinksTellsEachFlap(t *testing.T) {
	h := newHost(t)
	h.addVeth("veth0", "veth1")
	w := watchLinks(h, netutil.WatchLinks)
	eventually(t, "veth0 is up", func() bool { return w.link("veth0").Up })
	const flaps = 5
	for range flaps {
		h.setDown("veth0")
		h.setUp("veth0")
	}
	eventually(t, "each is told", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.downs["veth0"] == flaps && w.links["veth0"].Up
	})
}
