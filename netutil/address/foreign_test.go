package address_test

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/netutil/address"

	"github.com/herald-vip/herald/testenv/nettest"
	"github.com/herald-vip/herald/testenv/wait"
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
			h := nettest.NewHost(t)
			h.AddVeth("veth0", "veth1")
			h.Add(tt.link, tt.cidr)
			addr := netip.MustParsePrefix(tt.cidr).Addr()
			before := h.Find(tt.link, addr)
			a, _ := start(h, address.Options{})

			if err := a.Try("lo", addr); !errors.Is(err, address.ErrForeign) {
				t.Fatalf("Try: %v, want ErrForeign", err)
			}
			err := a.Bind("lo", addr)
			if !errors.Is(err, address.ErrForeign) {
				t.Fatalf("Bind: %v, want ErrForeign", err)
			}
			t.Log(err)
			h.Must(a.Sweep(nil))
			h.Must(a.Unbind("lo", addr))
			if after := h.Find(tt.link, addr); after == nil || after.ValidLft != before.ValidLft || after.Flags != before.Flags {
				t.Errorf("before: %+v; after: %+v", before, after)
			}

			// Once the administrator removes it, Run binds the address.
			if err := a.Bind("lo", addr); !errors.Is(err, address.ErrForeign) {
				t.Fatalf("Bind: %v, want ErrForeign", err)
			}
			h.Remove(tt.link, tt.cidr)
			wait.Until(t, "the address is bound", func() bool { return status(t, a, "lo", addr).Bound })
			h.Must(a.Try("lo", addr))
			h.Must(a.Try("lo", addr.Next()))
			if h.Find("lo", addr.Next()) != nil {
				t.Error("Try bound an address")
			}

			// When the foreign copy returns beside Herald's, Status shows it, and both stay.
			if tt.link == "lo" && netip.MustParsePrefix(tt.cidr).IsSingleIP() {
				return
			}
			h.Add(tt.link, tt.cidr)
			wait.Until(t, "Status shows the second copy", func() bool {
				s := status(t, a, "lo", addr)
				return s.Bound && errors.Is(s.Err, address.ErrForeign)
			})
			h.Must(a.Unbind("lo", addr))
			if h.Find(tt.link, addr) == nil {
				t.Error("Unbind removed the administrator's copy")
			}
		})
	}
}

// An address of Herald's that another program made permanent gets its lifetime back, and Unbind removes it.
func TestMadePermanent(t *testing.T) {
	for _, cidr := range []string{"10.99.0.10/32", "fd00:99::10/128"} {
		h := nettest.NewHost(t)
		addr := netip.MustParsePrefix(cidr).Addr()
		a, _ := start(h, address.Options{})
		h.Must(a.Bind("lo", addr))
		eventuallyListening(h, a)

		forever := func() { h.Must(h.NL.AddrReplace(h.Link("lo"), nettest.Parse(t, cidr))) }
		for i := range 3 { // each time after a longer pause
			forever()
			wait.Until(t, "the address has a lifetime again", func() bool {
				got, s := h.Find("lo", addr), status(t, a, "lo", addr)
				return got.ValidLft <= 10 && got.Flags&unix.IFA_F_NOPREFIXROUTE != 0 && s.Bound && s.Err == nil && s.Restored == i+1
			})
		}
		forever()
		h.Must(a.Unbind("lo", addr))
		if got := h.Find("lo", addr); got != nil {
			t.Errorf("left after Unbind: %+v", got)
		}
	}
}

// An IPv4 address that an earlier Herald left, made permanent since, is recognised by its label.
func TestLeftPermanent(t *testing.T) {
	h := nettest.NewHost(t)
	crashed := open(h, address.Options{})
	for _, addr := range []netip.Addr{vip4, vip4.Next()} {
		h.Must(crashed.Bind("lo", addr))
		h.Must(h.NL.AddrReplace(h.Link("lo"), nettest.Parse(t, addr.String()+"/32")))
	}
	next, _ := start(h, address.Options{})
	h.Must(next.Bind("lo", vip4))
	if got := h.Find("lo", vip4); got == nil || got.ValidLft > 10 {
		t.Errorf("adopted: %+v", got)
	}
	h.Must(next.Sweep(nil))
	if got := h.Find("lo", vip4.Next()); got != nil {
		t.Errorf("left after Sweep: %+v", got)
	}
}

// Foreign reports a reserved address that another program put here, and does not touch it.
func TestReserved(t *testing.T) {
	h := nettest.NewHost(t)
	h.AddVeth("veth0", "veth1")
	a, _ := start(h, address.Options{})
	eventuallyListening(h, a)
	h.Add("veth0", "10.99.0.10/24") // before Reserve
	a.Reserve([]netip.Addr{vip4, vip6})
	expectForeign := func(addr netip.Addr, want bool) {
		t.Helper()
		wait.Until(t, fmt.Sprintf("%s is foreign: %t", addr, want), func() bool { return errors.Is(a.Foreign()[addr], address.ErrForeign) == want })
	}
	expectForeign(vip4, true)
	h.Add("lo", vip6.String()+"/128")
	expectForeign(vip6, true)
	h.Must(a.Unbind("lo", vip4, vip6))
	if h.Find("veth0", vip4) == nil || h.Find("lo", vip6) == nil {
		t.Error("a foreign address was removed")
	}

	// For wanted addresses Status reports it.
	if err := a.Bind("lo", vip4); !errors.Is(err, address.ErrForeign) {
		t.Errorf("Bind: error %v, want ErrForeign", err)
	}
	expectForeign(vip4, false)
	h.Must(a.Unbind("lo", vip4))
	expectForeign(vip4, true)

	h.Remove("veth0", "10.99.0.10/24")
	expectForeign(vip4, false)
	h.Must(a.Bind("lo", vip4)) // Herald's own copy is not foreign
	expectForeign(vip4, false)
	a.Reserve([]netip.Addr{vip4})
	expectForeign(vip6, false)
}

// Add does not overwrite an address that appeared just before.
func TestAddedAtTheSameTime(t *testing.T) {
	h := nettest.NewHost(t)
	for _, cidr := range []string{"10.99.0.10/32", "fd00:99::10/128"} {
		h.Add("lo", cidr)
		addr := netip.MustParsePrefix(cidr).Addr()
		if err := address.AddToLo(int(h.NS), addr); !errors.Is(err, address.ErrExists) {
			t.Errorf("add %s: error %v, want ErrExists", addr, err)
		}
		if got := h.Find("lo", addr); got == nil || got.Flags&unix.IFA_F_PERMANENT == 0 {
			t.Errorf("%s is now %+v, want it permanent", addr, got)
		}
	}
}

func TestAdoptAndSweep(t *testing.T) {
	h := nettest.NewHost(t)
	h.AddVeth("veth0", "veth1")
	h.Add("lo", "10.99.0.99/32")
	h.Add("veth0", "10.0.0.1/24")
	foreign := []netip.Addr{netip.MustParseAddr("10.99.0.99"), netip.MustParseAddr("10.0.0.1")}

	crashed := open(h, address.Options{Lifetime: time.Minute})
	adopted, kept, left, moved := vip4, vip6, vip4.Next(), vip6.Next()
	for _, addr := range []netip.Addr{adopted, kept, left} {
		h.Must(crashed.Bind("lo", addr))
	}
	h.Must(crashed.Bind("veth0", moved))
	another := open(h, address.Options{Mark: 73})
	others := netip.MustParseAddr("10.99.0.73")
	h.Must(another.Bind("lo", others))

	last := netip.MustParseAddr("10.99.0.255")
	changes := watch(h, adopted, kept, others, foreign[0], foreign[1], last)
	next, _ := start(h, address.Options{})
	h.Must(next.Bind("lo", adopted))
	h.Must(next.Sweep([]address.Binding{{Interface: "lo", Addr: kept}, {Interface: "lo", Addr: moved}}))

	if h.Find("lo", left) != nil || h.Find("veth0", moved) != nil {
		t.Error("Sweep left an address")
	}
	for _, addr := range append(foreign, kept, others) {
		if h.Find("lo", addr) == nil && h.Find("veth0", addr) == nil {
			t.Errorf("Sweep removed %s", addr)
		}
	}
	if got := h.Find("lo", adopted); got == nil || got.ValidLft > 10 {
		t.Errorf("adopted: %+v", got)
	}
	if s := next.Status(); len(s) != 1 || !s[0].Bound || s[0].Restored != 0 {
		t.Errorf("status %+v", s)
	}
	if err := next.Bind("lo", others); !errors.Is(err, address.ErrForeign) {
		t.Errorf("Bind of another Herald's address: error %v, want ErrForeign", err)
	}

	h.Add("lo", last.String()+"/32")
	for c := nettest.Receive(t, changes); c.addr != last; c = nettest.Receive(t, changes) {
		if c.gone {
			t.Errorf("%s was gone for a moment", c.addr)
		}
	}

	// Unbind removes adopted addresses, and addresses that Sweep kept.
	for _, addr := range []netip.Addr{adopted, kept} {
		h.Must(next.Unbind("lo", addr))
		if h.Find("lo", addr) != nil {
			t.Errorf("%s is still there", addr)
		}
	}
}

// Unbind removes many addresses at once. Missing and foreign addresses among them do no harm.
func TestUnbindMany(t *testing.T) {
	h := nettest.NewHost(t)
	a, _ := start(h, address.Options{})
	foreign, never := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	h.Add("lo", "192.0.2.1/32")
	all := []netip.Addr{foreign, vip6}
	addr := vip4
	for range 600 { // more than one batch
		all = append(all, addr)
		addr = addr.Next()
	}
	for _, addr := range all[1:] {
		h.Must(a.Bind("lo", addr))
	}
	all = slices.Insert(all, 300, never)
	h.Must(a.Unbind("lo", all...))
	for _, addr := range all[1:] {
		if h.Find("lo", addr) != nil {
			t.Errorf("%s is still there", addr)
		}
	}
	if h.Find("lo", foreign) == nil {
		t.Error("Unbind removed the foreign address")
	}
	if n := len(a.Status()); n != 0 {
		t.Errorf("%d addresses are still wanted", n)
	}
}
