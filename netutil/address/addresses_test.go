package address_test

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/netutil/address"

	"github.com/herald-vip/herald/netutil/rtnetlink"
	"github.com/herald-vip/herald/testenv/nettest"
	"github.com/herald-vip/herald/testenv/recorder"
	"github.com/herald-vip/herald/testenv/wait"
)

var (
	vip4 = netip.MustParseAddr("10.99.0.10")
	vip6 = netip.MustParseAddr("fd00:99::10")
)

// start returns a Binder for the host, with Run running. stop ends Run.
func start(h *nettest.Host, opts address.Options) (a *address.Binder, stop func()) {
	h.T.Helper()
	a = open(h, opts)
	return a, run(h.T, a)
}

func run(t testing.TB, a *address.Binder) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

func open(h *nettest.Host, opts address.Options) *address.Binder {
	h.T.Helper()
	opts.NetNS = int(h.NS)
	a, err := address.New(slog.New(slog.NewTextHandler(h.T.Output(), nil)), opts)
	h.Must(err)
	return a
}

func status(t testing.TB, a *address.Binder, iface string, addr netip.Addr) address.Status {
	t.Helper()
	for _, s := range a.Status() {
		if s.Interface == iface && s.Addr == addr {
			return s
		}
	}
	t.Fatalf("no status of %s on %s", addr, iface)
	panic("unreachable")
}

func TestBoundAddress(t *testing.T) {
	h := nettest.NewHost(t)
	h.AddVeth("veth0", "veth1")
	h.Add("veth0", "10.0.0.1/24")
	h.Add("veth0", "fd00:1::1/64")
	a := open(h, address.Options{})

	for _, tt := range []struct {
		iface string
		addr  netip.Addr
		scope netlink.Scope
		label string
		flags int
	}{
		{"lo", vip4, netlink.SCOPE_HOST, "lo:herald", unix.IFA_F_NOPREFIXROUTE | unix.IFA_F_DEPRECATED},
		{"lo", vip6, netlink.SCOPE_UNIVERSE, "", unix.IFA_F_NOPREFIXROUTE | unix.IFA_F_DEPRECATED | unix.IFA_F_NODAD},
		{"veth0", vip4.Next(), netlink.SCOPE_UNIVERSE, "veth0:herald", unix.IFA_F_NOPREFIXROUTE | unix.IFA_F_DEPRECATED},
		{"veth0", vip6.Next(), netlink.SCOPE_UNIVERSE, "", unix.IFA_F_NOPREFIXROUTE | unix.IFA_F_DEPRECATED | unix.IFA_F_NODAD},
	} {
		for range 2 { // the second Bind changes nothing
			if err := a.Bind(tt.iface, tt.addr); err != nil {
				t.Fatalf("Bind(%s, %s): %v", tt.iface, tt.addr, err)
			}
			got := h.Find(tt.iface, tt.addr)
			if got == nil {
				t.Fatalf("%s has no %s", tt.iface, tt.addr)
			}
			if ones, bits := got.Mask.Size(); ones != bits {
				t.Errorf("%s has prefix length %d, want a single address", tt.addr, ones)
			}
			if got.Flags != tt.flags || netlink.Scope(got.Scope) != tt.scope || got.Label != tt.label {
				t.Errorf("%s on %s has flags %#x, scope %v, label %q; want %#x, %v, %q",
					tt.addr, tt.iface, got.Flags, netlink.Scope(got.Scope), got.Label, tt.flags, tt.scope, tt.label)
			}
			if got.ValidLft < 8 || got.ValidLft > 10 || got.PreferedLft != 0 {
				t.Errorf("%s is valid for %d s and preferred for %d s, want 10 and 0", tt.addr, got.ValidLft, got.PreferedLft)
			}
		}
		if s := status(t, a, tt.iface, tt.addr); !s.Bound || s.Err != nil || s.Restored != 0 {
			t.Errorf("status: %+v", s)
		}
	}

	// Some programs take a link's first IPv4 address for the node's: it must not be the VIP.
	addrs, err := h.NL.AddrList(h.Link("veth0"), netlink.FAMILY_V4)
	h.Must(err)
	if first := addrs[0].IP.String(); first != "10.0.0.1" {
		t.Errorf("first address of veth0 is %s, want 10.0.0.1", first)
	}

	for _, s := range a.Status() {
		for range 2 {
			if err := a.Unbind(s.Interface, s.Addr); err != nil {
				t.Fatalf("Unbind(%s, %s): %v", s.Interface, s.Addr, err)
			}
			if h.Find(s.Interface, s.Addr) != nil {
				t.Errorf("%s still has %s", s.Interface, s.Addr)
			}
		}
	}
	if s := a.Status(); len(s) != 0 {
		t.Errorf("status after unbinding all: %v", s)
	}
}

// Bind deletes the neighbour entry of the previous holder. Otherwise, after Unbind, the host would forward late packets to
// that holder, and get them back.
func TestForgetsPreviousHolder(t *testing.T) {
	t.Parallel()
	h := nettest.NewHost(t)
	h.AddVeth("veth0", "veth1")
	a := open(h, address.Options{})
	previous, err := net.ParseMAC("02:00:00:00:00:01")
	h.Must(err)
	for _, vip := range []netip.Addr{vip4, vip6} {
		h.Must(h.NL.NeighAdd(&netlink.Neigh{
			LinkIndex: h.Link("veth0").Attrs().Index, IP: vip.AsSlice(), HardwareAddr: previous, State: netlink.NUD_STALE,
		}))
		h.Must(a.Bind("veth0", vip))
	}
	known, err := h.NL.NeighList(h.Link("veth0").Attrs().Index, netlink.FAMILY_ALL)
	h.Must(err)
	for _, n := range known {
		if n.State != netlink.NUD_NOARP {
			t.Errorf("neighbour entry of %s left: %v", n.IP, n)
		}
	}
}

func TestAddressExpiresWithoutRefresh(t *testing.T) {
	t.Parallel()
	h := nettest.NewHost(t)
	a, stop := start(h, address.Options{Lifetime: 2 * time.Second})
	changes := watch(h, vip4, vip6)
	for _, addr := range []netip.Addr{vip4, vip6} {
		h.Must(a.Bind("lo", addr))
	}
	// Nine refreshes keep the addresses for three lifetimes.
	for refreshed := map[netip.Addr]int{}; refreshed[vip4] < 9 || refreshed[vip6] < 9; {
		c := nettest.Receive(t, changes)
		if c.gone {
			t.Fatalf("%s expired although it is refreshed", c.addr)
		}
		refreshed[c.addr]++
	}
	for _, s := range a.Status() {
		if !s.Bound || s.Restored != 0 {
			t.Errorf("%s: bound %v, restored %d", s.Addr, s.Bound, s.Restored)
		}
	}

	stop()
	if h.Find("lo", vip4) == nil || h.Find("lo", vip6) == nil {
		t.Error("Run removed an address when it ended")
	}
	for _, addr := range []netip.Addr{vip4, vip6} {
		wait.Until(t, addr.String()+" expires", func() bool { return h.Find("lo", addr) == nil })
	}
}

func TestRemovedAddressIsPutBack(t *testing.T) {
	h := nettest.NewHost(t)
	h.AddVeth("veth0", "veth1")
	a, _ := start(h, address.Options{})
	h.Must(a.Bind("lo", vip4))
	h.Must(a.Bind("veth0", vip6))
	eventuallyListening(h, a)

	h.Remove("lo", "10.99.0.10/32")
	h.Remove("veth0", "fd00:99::10/128")
	wait.Until(t, "both are back", func() bool {
		return h.Find("lo", vip4) != nil && h.Find("veth0", vip6) != nil
	})
	for _, s := range a.Status() {
		if !s.Bound || s.Restored != 1 || s.Err != nil {
			t.Errorf("status: %+v", s)
		}
	}
}

// With a minimal receive buffer the kernel loses changes; Run recovers.
func TestLostChangesOfTheKernel(t *testing.T) {
	h := nettest.NewHost(t)
	var log recorder.Log
	a, err := address.New(log.Logger(), address.Options{NetNS: int(h.NS), Watcher: &rtnetlink.Watcher{NetNS: int(h.NS), Buffer: 1, Mark: address.DefaultMark}})
	h.Must(err)
	run(t, a)
	h.Must(a.Bind("lo", vip4))
	eventuallyListening(h, a)

	for i := range 60 {
		h.AddVeth("veth0", "veth1")
		if i == 30 {
			h.Remove("lo", "10.99.0.10/32")
		}
		h.Must(h.NL.LinkDel(h.Link("veth0")))
	}
	wait.Until(t, "the address is put back", func() bool {
		return h.Find("lo", vip4) != nil && status(t, a, "lo", vip4).Restored == 1
	})
	if log.Count("recvmsg: "+unix.ENOBUFS.Error()) == 0 {
		t.Errorf("the kernel lost no changes: the test is void\n%s", log.String())
	}
	if n := log.Count("changes of links and addresses were lost"); n != 1 {
		t.Errorf("%d log lines about lost changes, want 1:\n%s", n, log.String())
	}
}

// The watcher does not report Herald's own refreshes.
func TestOwnRefreshesAreNotReported(t *testing.T) {
	h := nettest.NewHost(t)
	next, stop, err := address.Reported(int(h.NS))
	h.Must(err)
	defer stop()
	defer time.AfterFunc(nettest.Patience, stop).Stop()
	a := open(h, address.Options{})
	h.Must(a.Bind("lo", vip4))
	h.Must(a.Bind("lo", vip6))
	address.RefreshAll(a)
	other := netip.MustParseAddr("10.99.0.72") // 72 is also the mark
	h.Add("lo", "10.99.0.72/32")
	h.Must(a.Unbind("lo", vip6))
	h.Must(a.Unbind("lo", vip4))
	for _, want := range []change{{other, false}, {vip6, true}, {vip4, true}} {
		ip, gone, err := next()
		h.Must(err)
		if got := (change{ip, gone}); got != want {
			t.Errorf("reported %v, want %v", got, want)
		}
	}
}

func TestRefusals(t *testing.T) {
	for _, opts := range []address.Options{{Lifetime: time.Millisecond}, {Lifetime: 1500 * time.Millisecond}, {Lifetime: time.Hour}, {Mark: 3}} {
		if _, err := address.New(slog.Default(), opts); err == nil {
			t.Errorf("%+v: no error", opts)
		}
	}
	h := nettest.NewHost(t)
	a := open(h, address.Options{})
	for _, b := range []address.Binding{
		{Interface: "lo"},
		{Interface: "", Addr: vip4},
		{Interface: "a-name-too-long-for-a-link", Addr: vip4},
		{Interface: "lo", Addr: netip.MustParseAddr("0.0.0.0")},
		{Interface: "lo", Addr: netip.MustParseAddr("127.0.0.1")},
		{Interface: "lo", Addr: netip.MustParseAddr("224.0.0.1")},
		{Interface: "lo", Addr: netip.MustParseAddr("fe80::1")},
		{Interface: "lo", Addr: netip.MustParseAddr("fd00::1%lo")},
	} {
		if err := a.Bind(b.Interface, b.Addr); err == nil {
			t.Errorf("Bind(%v): no error", b)
		} else if len(a.Status()) > 0 {
			t.Errorf("Bind(%v) fails, but keeps the binding", b)
		}
	}
	if err := a.Bind("lo", netip.MustParseAddr("::ffff:10.99.0.10")); err != nil || h.Find("lo", vip4) == nil {
		t.Errorf("Bind of an IPv4-mapped address: %v", err)
	}

	// /proc/sys/net belongs to the namespace of the process that opens it.
	h.In(func() {
		if err := os.WriteFile("/proc/sys/net/ipv6/conf/lo/disable_ipv6", []byte("1"), 0); err != nil {
			t.Error(err)
		}
	})
	if err := a.Bind("lo", vip6); err == nil || !strings.Contains(err.Error(), "net.ipv6.conf.lo.disable_ipv6=0") {
		t.Errorf("Bind with IPv6 disabled: error %v, want the sysctl to set", err)
	}
}

// eventuallyListening waits until Run is subscribed to changes: it binds to a missing link, which Run then learns
// about from a change.
func eventuallyListening(h *nettest.Host, a *address.Binder) {
	h.T.Helper()
	addr := netip.MustParseAddr("10.255.255.255")
	_ = a.Bind("probe0", addr)
	h.AddVeth("probe0", "probe1")
	wait.Until(h.T, "Run is subscribed", func() bool { return status(h.T, a, "probe0", addr).Bound })
	h.Must(a.Unbind("probe0", addr))
	h.Must(h.NL.LinkDel(h.Link("probe0")))
}

type change struct {
	addr netip.Addr
	gone bool
}

// watch reports changes of addrs from now on.
func watch(h *nettest.Host, addrs ...netip.Addr) <-chan change {
	h.T.Helper()
	updates, changes, done := make(chan netlink.AddrUpdate), make(chan change, 1000), make(chan struct{})
	h.Must(netlink.AddrSubscribeWithOptions(updates, done, netlink.AddrSubscribeOptions{Namespace: &h.NS}))
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		for u := range updates {
			ip, _ := netip.AddrFromSlice(u.LinkAddress.IP)
			if ip = ip.Unmap(); slices.Contains(addrs, ip) {
				select {
				case changes <- change{ip, !u.NewAddr}:
				default:
				}
			}
		}
	}()
	h.T.Cleanup(func() { close(done); <-finished })
	return changes
}

// A renamed link keeps its addresses, and Unbind with the old name removes them.
func TestUnbindAfterRename(t *testing.T) {
	t.Parallel()
	h := nettest.NewHost(t)
	h.AddVeth("veth0", "veth1")
	a, _ := start(h, address.Options{})
	eventuallyListening(h, a)
	both := []netip.Addr{vip4, vip6}
	for _, addr := range both {
		h.Must(a.Bind("veth0", addr))
	}
	h.Must(h.NL.LinkSetName(h.Link("veth0"), "wan0"))
	for _, addr := range both {
		if h.Find("wan0", addr) == nil {
			t.Fatalf("%s is gone from the renamed link", addr)
		}
		wait.Until(t, "the binding is lost", func() bool { return !status(t, a, "veth0", addr).Bound })
	}
	h.Must(a.Unbind("veth0", both...))
	for _, addr := range both {
		if h.Find("wan0", addr) != nil {
			t.Errorf("%s is left on the renamed link", addr)
		}
	}

	// An address that a binding under the new name wants too stays.
	h.Must(a.Bind("wan0", vip4))
	h.Must(h.NL.LinkSetName(h.Link("wan0"), "lan0"))
	wait.Until(t, "the binding is lost", func() bool { return !status(t, a, "wan0", vip4).Bound })
	h.Must(a.Bind("lan0", vip4))
	h.Must(a.Unbind("wan0", vip4))
	if h.Find("lan0", vip4) == nil || !status(t, a, "lan0", vip4).Bound {
		t.Error("Unbind with the old name removed an address bound under the new name")
	}
}
