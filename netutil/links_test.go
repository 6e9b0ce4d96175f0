package netutil_test

import (
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/herald-vip/herald/netutil"
)

func TestLinkDownAndUp(t *testing.T) {
	h := newHost(t)
	h.addVeth("veth0", "veth1")
	a, _ := start(h, netutil.Options{})
	h.must(a.Bind("veth0", vip4))
	h.must(a.Bind("veth0", vip6))
	eventuallyListening(h, a)

	h.setDown("veth0")
	eventually(t, "both count as lost", func() bool {
		s4, s6 := status(t, a, "veth0", vip4), status(t, a, "veth0", vip6)
		return !s4.Bound && s4.Err != nil && !s6.Bound && s6.Err != nil
	})
	if err := a.Bind("veth0", vip4); err == nil {
		t.Error("Bind on a link that is down: no error")
	}
	h.setUp("veth0")
	eventually(t, "both count as bound", func() bool {
		return status(t, a, "veth0", vip4).Bound && status(t, a, "veth0", vip6).Bound
	})
	if h.find("veth0", vip4) == nil || h.find("veth0", vip6) == nil {
		t.Error("the link lacks an address that counts as bound")
	}
	if got := status(t, a, "veth0", vip6).Restored; got != 1 {
		t.Errorf("IPv6 was put back %d times, want 1: the kernel drops it with the link", got)
	}
	if got := status(t, a, "veth0", vip4).Restored; got != 0 {
		t.Errorf("IPv4 was put back %d times, want 0: the kernel keeps it", got)
	}
}

func TestLinkDeletedAndMadeAnew(t *testing.T) {
	h := newHost(t)
	a, _ := start(h, netutil.Options{})
	if err := a.Bind("veth0", vip4); err == nil {
		t.Fatal("Bind on a link that does not exist: no error")
	}
	if err := a.Bind("veth0", vip6); err == nil {
		t.Fatal("Bind on a link that does not exist: no error")
	}
	for round := range 2 {
		h.addVeth("veth0", "veth1")
		eventually(t, "both bound", func() bool {
			return status(t, a, "veth0", vip4).Bound && status(t, a, "veth0", vip6).Bound
		})
		if h.find("veth0", vip4) == nil || h.find("veth0", vip6) == nil {
			t.Error("the link lacks an address that counts as bound")
		}
		for _, s := range a.Status() {
			if s.Restored != round {
				t.Errorf("%s was put back %d times, want %d", s.Addr, s.Restored, round)
			}
		}
		h.must(h.nl.LinkDel(h.link("veth0")))
		eventually(t, "both lost", func() bool {
			return !status(t, a, "veth0", vip4).Bound && !status(t, a, "veth0", vip6).Bound
		})
	}
}

func TestLinkRenamed(t *testing.T) {
	h := newHost(t)
	h.addVeth("old0", "old1")
	a, _ := start(h, netutil.Options{})
	h.must(a.Bind("old0", vip4))
	eventuallyListening(h, a)
	_ = a.Bind("new0", vip6)

	l := h.link("old0")
	h.setDown("old0")
	h.must(h.nl.LinkSetName(l, "new0"))
	h.setUp("new0")
	eventually(t, "the name decides", func() bool {
		return !status(t, a, "old0", vip4).Bound && status(t, a, "new0", vip6).Bound
	})
}

// A port that leaves a bridge is reported in a message much like that of a link that is deleted.
func TestLinkLeavesBridge(t *testing.T) {
	h := newHost(t)
	h.must(h.nl.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}}))
	h.setUp("br0")
	h.addVeth("veth0", "veth1")
	a, _ := start(h, netutil.Options{})
	h.must(a.Bind("veth0", vip4))
	h.must(a.Bind("br0", vip6))
	eventuallyListening(h, a)
	h.must(h.nl.LinkSetMaster(h.link("veth0"), h.link("br0")))
	h.must(h.nl.LinkSetNoMaster(h.link("veth0")))

	h.addVeth("last0", "last1") // what is done by now was told before
	_ = a.Bind("last0", vip4.Next())
	eventually(t, "all is told", func() bool { return status(t, a, "last0", vip4.Next()).Bound })
	for _, s := range a.Status() {
		if !s.Bound || s.Restored != 0 {
			t.Errorf("status: %+v", s)
		}
	}
}
