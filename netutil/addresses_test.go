package netutil_test

import (
	"context"
	"errors"
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

	"github.com/herald-vip/herald/netutil"
)

var (
	vip4 = netip.MustParseAddr("10.99.0.10")
	vip6 = netip.MustParseAddr("fd00:99::10")
)

// start returns an Addresses that works in the host, with Run on. stop ends Run.
func start(h *host, opts netutil.Options) (a *netutil.Addresses, stop func()) {
	h.t.Helper()
	a = open(h, opts)
	return a, run(h.t, a)
}

func run(t testing.TB, a *netutil.Addresses) (stop func()) {
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

func open(h *host, opts netutil.Options) *netutil.Addresses {
	h.t.Helper()
	opts.NetNS = int(h.ns)
	a, err := netutil.NewAddresses(slog.New(slog.NewTextHandler(h.t.Output(), nil)), opts)
	h.must(err)
	return a
}

func status(t testing.TB, a *netutil.Addresses, iface string, addr netip.Addr) netutil.AddressStatus {
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
	h := newHost(t)
	h.addVeth("veth0", "veth1")
	h.add("veth0", "10.0.0.1/24")
	h.add("veth0", "fd00:1::1/64")
	a := open(h, netutil.Options{})

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
		for range 2 { // binding again changes nothing
			if err := a.Bind(tt.iface, tt.addr); err != nil {
				t.Fatalf("Bind(%s, %s): %v", tt.iface, tt.addr, err)
			}
			got := h.find(tt.iface, tt.addr)
			if got == nil {
				t.Fatalf("%s has no %s", tt.iface, tt.addr)
			}
			if ones, bits := got.Mask.Size(); ones != bits {
				t.Errorf("%s has prefix length %d", tt.addr, ones)
			}
			if got.Flags != tt.flags || netlink.Scope(got.Scope) != tt.scope || got.Label != tt.label {
				t.Errorf("%s on %s has flags %#x, scope %v, label %q; want %#x, %v, %q",
					tt.addr, tt.iface, got.Flags, netlink.Scope(got.Scope), got.Label, tt.flags, tt.scope, tt.label)
			}
			if got.ValidLft < 8 || got.ValidLft > 10 || got.PreferedLft != 0 {
				t.Errorf("%s lives for %d s and is preferred for %d s", tt.addr, got.ValidLft, got.PreferedLft)
			}
		}
		if s := status(t, a, tt.iface, tt.addr); !s.Bound || s.Err != nil || s.Restored != 0 || s.Since.IsZero() {
			t.Errorf("status: %+v", s)
		}
	}

	// Programs that take a link's first IPv4 address for the node's must not find the VIP.
	addrs, err := h.nl.AddrList(h.link("veth0"), netlink.FAMILY_V4)
	h.must(err)
	if first := addrs[0].IP.String(); first != "10.0.0.1" {
		t.Errorf("the first address of veth0 is %s", first)
	}

	for _, s := range a.Status() {
		for range 2 {
			if err := a.Unbind(s.Interface, s.Addr); err != nil {
				t.Fatalf("Unbind(%s, %s): %v", s.Interface, s.Addr, err)
			}
			if h.find(s.Interface, s.Addr) != nil {
				t.Errorf("%s still has %s", s.Interface, s.Addr)
			}
		}
	}
	if s := a.Status(); len(s) != 0 {
		t.Errorf("after unbinding all, status has %v", s)
	}
}

func TestAddressExpiresWithoutRefresh(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	a, stop := start(h, netutil.Options{Lifetime: 2 * time.Second})
	changes := h.watch(vip4, vip6)
	for _, addr := range []netip.Addr{vip4, vip6} {
		h.must(a.Bind("lo", addr))
	}
	// Three lifetimes long nine refreshes keep it there.
	for refreshed := map[netip.Addr]int{}; refreshed[vip4] < 9 || refreshed[vip6] < 9; {
		c := receive(t, changes)
		if c.gone {
			t.Fatalf("%s went although it is refreshed", c.addr)
		}
		refreshed[c.addr]++
	}
	for _, s := range a.Status() {
		if !s.Bound || s.Restored != 0 {
			t.Errorf("%s: bound %v, restored %d", s.Addr, s.Bound, s.Restored)
		}
	}

	stop()
	if h.find("lo", vip4) == nil || h.find("lo", vip6) == nil {
		t.Error("Run removed an address when it ended")
	}
	for _, addr := range []netip.Addr{vip4, vip6} {
		eventually(t, addr.String()+" expires", func() bool { return h.find("lo", addr) == nil })
	}
}

func TestRemovedAddressIsPutBack(t *testing.T) {
	h := newHost(t)
	h.addVeth("veth0", "veth1")
	a, _ := start(h, netutil.Options{})
	h.must(a.Bind("lo", vip4))
	h.must(a.Bind("veth0", vip6))
	eventuallyListening(h, a)

	h.remove("lo", "10.99.0.10/32")
	h.remove("veth0", "fd00:99::10/128")
	eventually(t, "both are back", func() bool {
		return h.find("lo", vip4) != nil && h.find("veth0", vip6) != nil
	})
	for _, s := range a.Status() {
		if !s.Bound || s.Restored != 1 || s.Err != nil {
			t.Errorf("status: %+v", s)
		}
	}
}

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

func TestForeignAddress(t *testing.T) {
	for _, tt := range []struct{ name, link, cidr string }{
		{"same link, IPv4", "lo", "10.99.0.10/32"},
		{"same link, IPv6", "lo", "fd00:99::10/128"},
		{"same link, other prefix", "lo", "10.99.0.10/24"},
		{"other link, IPv4", "veth0", "10.99.0.10/24"},
		{"other link, IPv6", "veth0", "fd00:99::10/64"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := newHost(t)
			h.addVeth("veth0", "veth1")
			h.add(tt.link, tt.cidr)
			addr := netip.MustParsePrefix(tt.cidr).Addr()
			before := h.find(tt.link, addr)
			a, _ := start(h, netutil.Options{})

			err := a.Bind("lo", addr)
			if !errors.Is(err, netutil.ErrForeign) {
				t.Fatalf("Bind: %v, want ErrForeign", err)
			}
			t.Log(err)
			h.must(a.Sweep(nil))
			h.must(a.Unbind("lo", addr))
			if after := h.find(tt.link, addr); after == nil || after.ValidLft != before.ValidLft || after.Flags != before.Flags {
				t.Errorf("before: %+v; after: %+v", before, after)
			}

			// Once the administrator takes it away it is bound without being asked again.
			if err := a.Bind("lo", addr); !errors.Is(err, netutil.ErrForeign) {
				t.Fatalf("Bind: %v, want ErrForeign", err)
			}
			h.remove(tt.link, tt.cidr)
			eventually(t, "bound after all", func() bool { return status(t, a, "lo", addr).Bound })

			// And when it comes back beside Herald's, that is told, but neither is given up.
			if tt.link == "lo" && netip.MustParsePrefix(tt.cidr).IsSingleIP() {
				return
			}
			h.add(tt.link, tt.cidr)
			eventually(t, "the second copy is told", func() bool {
				s := status(t, a, "lo", addr)
				return s.Bound && errors.Is(s.Err, netutil.ErrForeign)
			})
			h.must(a.Unbind("lo", addr))
			if h.find(tt.link, addr) == nil {
				t.Error("Unbind removed the administrator's copy")
			}
		})
	}
}

// An administrator who takes over Herald's own entry is not fought.
func TestAddressTakenOver(t *testing.T) {
	for _, cidr := range []string{"10.99.0.10/32", "fd00:99::10/128"} {
		h := newHost(t)
		addr := netip.MustParsePrefix(cidr).Addr()
		a, _ := start(h, netutil.Options{})
		h.must(a.Bind("lo", addr))
		eventuallyListening(h, a)

		h.must(h.nl.AddrReplace(h.link("lo"), parse(t, cidr)))
		eventually(t, "it counts as foreign", func() bool {
			s := status(t, a, "lo", addr)
			return !s.Bound && errors.Is(s.Err, netutil.ErrForeign)
		})
		h.must(a.Unbind("lo", addr))
		if got := h.find("lo", addr); got == nil || got.Flags&unix.IFA_F_PERMANENT == 0 {
			t.Errorf("what the administrator made permanent is now %+v", got)
		}
	}
}

func TestAdoptAndSweep(t *testing.T) {
	h := newHost(t)
	h.addVeth("veth0", "veth1")
	h.add("lo", "10.99.0.99/32")
	h.add("veth0", "10.0.0.1/24")
	foreign := []netip.Addr{netip.MustParseAddr("10.99.0.99"), netip.MustParseAddr("10.0.0.1")}

	crashed := open(h, netutil.Options{Lifetime: time.Minute})
	adopted, kept, left, moved := vip4, vip6, vip4.Next(), vip6.Next()
	for _, addr := range []netip.Addr{adopted, kept, left} {
		h.must(crashed.Bind("lo", addr))
	}
	h.must(crashed.Bind("veth0", moved))
	another := open(h, netutil.Options{Mark: 73})
	others := netip.MustParseAddr("10.99.0.73")
	h.must(another.Bind("lo", others))

	last := netip.MustParseAddr("10.99.0.255")
	changes := h.watch(adopted, kept, others, foreign[0], foreign[1], last)
	next, _ := start(h, netutil.Options{})
	h.must(next.Bind("lo", adopted))
	h.must(next.Sweep([]netutil.Binding{{Interface: "lo", Addr: kept}, {Interface: "lo", Addr: moved}}))

	if h.find("lo", left) != nil || h.find("veth0", moved) != nil {
		t.Error("a left-over is still there")
	}
	for _, addr := range append(foreign, kept, others) {
		if h.find("lo", addr) == nil && h.find("veth0", addr) == nil {
			t.Errorf("Sweep removed %s", addr)
		}
	}
	if got := h.find("lo", adopted); got == nil || got.ValidLft > 10 {
		t.Errorf("adopted: %+v", got)
	}
	if s := next.Status(); len(s) != 1 || !s[0].Bound || s[0].Restored != 0 {
		t.Errorf("status %+v", s)
	}
	if err := next.Bind("lo", others); !errors.Is(err, netutil.ErrForeign) {
		t.Errorf("Bind of another Herald's address: %v", err)
	}

	h.add("lo", last.String()+"/32")
	for c := receive(t, changes); c.addr != last; c = receive(t, changes) {
		if c.gone {
			t.Errorf("%s was gone for a moment", c.addr)
		}
	}

	// Both end on request: what was adopted and what was only kept.
	for _, addr := range []netip.Addr{adopted, kept} {
		h.must(next.Unbind("lo", addr))
		if h.find("lo", addr) != nil {
			t.Errorf("%s is still there", addr)
		}
	}
}

// With next to no buffer, changes are lost for real.
func TestLostChangesOfTheKernel(t *testing.T) {
	h := newHost(t)
	var log lockedBuffer
	a, err := netutil.NewAddresses(slog.New(slog.NewTextHandler(&log, nil)), netutil.Options{NetNS: int(h.ns), ReceiveBuffer: 1})
	h.must(err)
	run(t, a)
	h.must(a.Bind("lo", vip4))
	eventuallyListening(h, a)

	for i := range 60 {
		h.addVeth("veth0", "veth1")
		if i == 30 {
			h.remove("lo", "10.99.0.10/32")
		}
		h.must(h.nl.LinkDel(h.link("veth0")))
	}
	eventually(t, "it is put back", func() bool {
		return h.find("lo", vip4) != nil && status(t, a, "lo", vip4).Restored == 1
	})
	if !strings.Contains(log.String(), unix.ENOBUFS.Error()) {
		t.Errorf("no change was lost:\n%s", log.String())
	}
	if n := strings.Count(log.String(), "unheard"); n != 1 {
		t.Errorf("told %d times that changes were lost:\n%s", n, log.String())
	}
}

// Of its own refreshes Herald is not told.
func TestOwnRefreshesAreNotTold(t *testing.T) {
	h := newHost(t)
	next, stop, err := netutil.Told(int(h.ns))
	h.must(err)
	defer stop()
	defer time.AfterFunc(patience, stop).Stop()
	a := open(h, netutil.Options{})
	h.must(a.Bind("lo", vip4))
	h.must(a.Bind("lo", vip6))
	netutil.RefreshAll(a)
	other := netip.MustParseAddr("10.99.0.72") // 72 is also the mark
	h.add("lo", "10.99.0.72/32")
	h.must(a.Unbind("lo", vip6))
	h.must(a.Unbind("lo", vip4))
	for _, want := range []change{{other, false}, {vip6, true}, {vip4, true}} {
		ip, gone, err := next()
		h.must(err)
		if got := (change{ip, gone}); got != want {
			t.Errorf("told of %v, want %v", got, want)
		}
	}
}

// A VIP is served, but never picked as the source of what the node itself sends.
func TestTraffic(t *testing.T) {
	h, client := newHost(t), newHost(t)
	h.addVeth("veth0", "client0")
	h.must(h.nl.LinkSetNsFd(h.link("client0"), int(client.ns)))
	client.setUp("client0")
	h.addVeth("bare0", "bare1") // has no addresses of its own

	h.add("veth0", "10.0.0.1/24")
	h.add("veth0", "fd00:1::1/64")
	client.add("client0", "10.0.0.2/24")
	client.add("client0", "fd00:1::2/64")
	client.route("10.99.0.0/16", "client0", "10.0.0.1")
	client.route("fd00:99::/64", "client0", "fd00:1::1")
	h.route("0.0.0.0/0", "bare0", "")
	h.route("::/0", "bare0", "")

	a := open(h, netutil.Options{})
	onLo, onVeth := []netip.Addr{vip4, vip6}, []netip.Addr{vip4.Next(), vip6.Next()}
	for i := range onLo {
		h.must(a.Bind("lo", onLo[i]))
		h.must(a.Bind("veth0", onVeth[i]))
	}

	for _, addr := range append(onLo, onVeth...) {
		var l net.Listener
		var err error
		h.in(func() { l, err = net.Listen("tcp", netip.AddrPortFrom(addr, 0).String()) })
		h.must(err)
		var c net.Conn
		client.in(func() { c, err = net.Dial("tcp", l.Addr().String()) })
		if err != nil {
			t.Errorf("the client does not reach %s: %v", addr, err)
		} else {
			_ = c.Close()
		}
		_ = l.Close()
	}

	for dst, want := range map[string]string{
		"10.0.0.2":      "10.0.0.1",
		"192.0.2.1":     "10.0.0.1", // by the link without addresses
		"fd00:1::2":     "fd00:1::1",
		"2001:db8::1":   "fd00:1::1",
		"10.99.255.255": "10.0.0.1",
	} {
		var c net.Conn
		var err error
		h.in(func() { c, err = net.Dial("udp", net.JoinHostPort(dst, "9")) })
		h.must(err)
		if got := c.LocalAddr().(*net.UDPAddr).IP.String(); got != want {
			t.Errorf("the source of traffic to %s is %s, want %s", dst, got, want)
		}
		_ = c.Close()
	}
}

func TestLookups(t *testing.T) {
	h := newHost(t)
	h.addVeth("veth0", "veth1")
	h.add("lo", "10.255.0.1/32")
	h.add("veth0", "10.0.0.1/24")
	h.add("veth0", "fd00:1::1/64")
	a := open(h, netutil.Options{})
	for _, addr := range []netip.Addr{vip4, vip6} {
		h.must(a.Bind("veth0", addr))
	}
	local := netip.MustParseAddr("10.0.0.1")
	h.in(func() {
		if got, err := netutil.RouterID(); err != nil || got != local {
			t.Errorf("router ID %s, error %v", got, err)
		}
		if got, err := netutil.RouterID(local); err != nil || got != netip.MustParseAddr("10.255.0.1") {
			t.Errorf("router ID other than %s: %s, error %v", local, got, err)
		}
		if got, err := netutil.GlobalAddr6(local); err != nil || got != netip.MustParseAddr("fd00:1::1") {
			t.Errorf("next hop %s, error %v", got, err)
		}
	})
}

func TestRefusals(t *testing.T) {
	for _, opts := range []netutil.Options{{Lifetime: time.Millisecond}, {Lifetime: 1500 * time.Millisecond}, {Lifetime: time.Hour}, {Mark: 3}} {
		if _, err := netutil.NewAddresses(slog.Default(), opts); err == nil {
			t.Errorf("%+v: no error", opts)
		}
	}
	h := newHost(t)
	a := open(h, netutil.Options{})
	for _, b := range []netutil.Binding{
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
			t.Errorf("Bind(%v) refuses and wants it all the same", b)
		}
	}
	if err := a.Bind("lo", netip.MustParseAddr("::ffff:10.99.0.10")); err != nil || h.find("lo", vip4) == nil {
		t.Errorf("an IPv4 address in an IPv6 one: %v", err)
	}

	// /proc/sys/net shows the namespace of whoever opens it.
	h.in(func() {
		if err := os.WriteFile("/proc/sys/net/ipv6/conf/lo/disable_ipv6", []byte("1"), 0); err != nil {
			t.Error(err)
		}
	})
	if err := a.Bind("lo", vip6); err == nil || !strings.Contains(err.Error(), "net.ipv6.conf.lo.disable_ipv6=0") {
		t.Errorf("Bind where IPv6 is off: %v", err)
	}
}

// eventuallyListening returns once Run listens to changes: only by one of them it
// learns that a link is there which Bind lacked.
func eventuallyListening(h *host, a *netutil.Addresses) {
	h.t.Helper()
	addr := netip.MustParseAddr("10.255.255.255")
	_ = a.Bind("probe0", addr)
	h.addVeth("probe0", "probe1")
	eventually(h.t, "Run listens", func() bool { return status(h.t, a, "probe0", addr).Bound })
	h.must(a.Unbind("probe0", addr))
	h.must(h.nl.LinkDel(h.link("probe0")))
}

type change struct {
	addr netip.Addr
	gone bool
}

// watch reports what happens to addrs from now on.
func (h *host) watch(addrs ...netip.Addr) <-chan change {
	h.t.Helper()
	updates, changes, done := make(chan netlink.AddrUpdate), make(chan change, 1000), make(chan struct{})
	h.must(netlink.AddrSubscribeWithOptions(updates, done, netlink.AddrSubscribeOptions{Namespace: &h.ns}))
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
	h.t.Cleanup(func() { close(done); <-finished })
	return changes
}
