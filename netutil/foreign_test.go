package netutil_test

import (
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/netutil"
)

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

// What appeared a moment ago and is not known yet is not overwritten.
func TestAddedAtTheSameTime(t *testing.T) {
	h := newHost(t)
	for _, cidr := range []string{"10.99.0.10/32", "fd00:99::10/128"} {
		h.add("lo", cidr)
		addr := netip.MustParsePrefix(cidr).Addr()
		if err := netutil.AddToLo(int(h.ns), addr); !errors.Is(err, netutil.ErrExists) {
			t.Errorf("%s: %v", addr, err)
		}
		if got := h.find("lo", addr); got == nil || got.Flags&unix.IFA_F_PERMANENT == 0 {
			t.Errorf("%s is now %+v", addr, got)
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

// Many go at once. Neither one that is gone already nor a foreign one stands in their way.
func TestUnbindMany(t *testing.T) {
	h := newHost(t)
	a, _ := start(h, netutil.Options{})
	foreign, never := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	h.add("lo", "192.0.2.1/32")
	all := []netip.Addr{foreign, vip6}
	addr := vip4
	for range 600 { // more than are asked for in a row
		all = append(all, addr)
		addr = addr.Next()
	}
	for _, addr := range all[1:] {
		h.must(a.Bind("lo", addr))
	}
	all = slices.Insert(all, 300, never)
	h.must(a.Unbind("lo", all...))
	for _, addr := range all[1:] {
		if h.find("lo", addr) != nil {
			t.Errorf("%s is still there", addr)
		}
	}
	if h.find("lo", foreign) == nil {
		t.Error("the foreign one is gone")
	}
	if n := len(a.Status()); n != 0 {
		t.Errorf("%d are still wanted", n)
	}
}
