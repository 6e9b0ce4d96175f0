package address_test

import (
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/herald-vip/herald/netutil/address"

	"github.com/herald-vip/herald/testenv/nettest"
	"github.com/herald-vip/herald/testenv/wait"
)

func TestLinkDownAndUp(t *testing.T) {
	h := nettest.NewHost(t)
	h.AddVeth("veth0", "veth1")
	a, _ := start(h, address.Options{})
	h.Must(a.Bind("veth0", vip4))
	h.Must(a.Bind("veth0", vip6))
	eventuallyListening(h, a)

	h.SetDown("veth0")
	wait.Until(t, "both are lost", func() bool {
		s4, s6 := status(t, a, "veth0", vip4), status(t, a, "veth0", vip6)
		return !s4.Bound && s4.Err != nil && !s6.Bound && s6.Err != nil
	})
	if err := a.Bind("veth0", vip4); err == nil {
		t.Error("Bind on a link that is down: no error")
	}
	h.SetUp("veth0")
	wait.Until(t, "both are bound", func() bool {
		return status(t, a, "veth0", vip4).Bound && status(t, a, "veth0", vip6).Bound
	})
	if h.Find("veth0", vip4) == nil || h.Find("veth0", vip6) == nil {
		t.Error("the link lacks an address with status bound")
	}
	if got := status(t, a, "veth0", vip6).Restored; got != 1 {
		t.Errorf("IPv6 put back %d times, want 1: the kernel removes it with the link", got)
	}
	if got := status(t, a, "veth0", vip4).Restored; got != 0 {
		t.Errorf("IPv4 put back %d times, want 0: the kernel keeps it", got)
	}
}

func TestLinkDeletedAndMadeAgain(t *testing.T) {
	h := nettest.NewHost(t)
	a, _ := start(h, address.Options{})
	if err := a.Bind("veth0", vip4); err == nil {
		t.Fatal("Bind on a link that does not exist: no error")
	}
	if err := a.Bind("veth0", vip6); err == nil {
		t.Fatal("Bind on a link that does not exist: no error")
	}
	for round := range 2 {
		h.AddVeth("veth0", "veth1")
		wait.Until(t, "both bound", func() bool {
			return status(t, a, "veth0", vip4).Bound && status(t, a, "veth0", vip6).Bound
		})
		if h.Find("veth0", vip4) == nil || h.Find("veth0", vip6) == nil {
			t.Error("the link lacks an address with status bound")
		}
		for _, s := range a.Status() {
			if s.Restored != round {
				t.Errorf("%s put back %d times, want %d", s.Addr, s.Restored, round)
			}
		}
		h.Must(h.NL.LinkDel(h.Link("veth0")))
		wait.Until(t, "both lost", func() bool {
			return !status(t, a, "veth0", vip4).Bound && !status(t, a, "veth0", vip6).Bound
		})
	}
}

func TestLinkRenamed(t *testing.T) {
	h := nettest.NewHost(t)
	h.AddVeth("old0", "old1")
	a, _ := start(h, address.Options{})
	h.Must(a.Bind("old0", vip4))
	eventuallyListening(h, a)
	_ = a.Bind("new0", vip6)

	l := h.Link("old0")
	h.SetDown("old0")
	h.Must(h.NL.LinkSetName(l, "new0"))
	h.SetUp("new0")
	wait.Until(t, "bindings follow the name", func() bool {
		return !status(t, a, "old0", vip4).Bound && status(t, a, "new0", vip6).Bound
	})
}

// A port that leaves a bridge does not count as a deleted link, although the kernel's messages are similar.
func TestLinkLeavesBridge(t *testing.T) {
	h := nettest.NewHost(t)
	h.Must(h.NL.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}}))
	h.SetUp("br0")
	h.AddVeth("veth0", "veth1")
	a, _ := start(h, address.Options{})
	h.Must(a.Bind("veth0", vip4))
	h.Must(a.Bind("br0", vip6))
	eventuallyListening(h, a)
	h.Must(h.NL.LinkSetMaster(h.Link("veth0"), h.Link("br0")))
	h.Must(h.NL.LinkSetNoMaster(h.Link("veth0")))

	h.AddVeth("last0", "last1") // its events come last
	_ = a.Bind("last0", vip4.Next())
	wait.Until(t, "all events were received", func() bool { return status(t, a, "last0", vip4.Next()).Bound })
	for _, s := range a.Status() {
		if !s.Bound || s.Restored != 0 {
			t.Errorf("status: %+v", s)
		}
	}
}
