package address

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/netutil/rtnetlink"
)

// with returns an edited copy of a.
func with(a address, edit func(*address)) address {
	edit(&a)
	return a
}

func TestOurs(t *testing.T) {
	own4 := vip(lo, vip4, defaultLifetime, DefaultMark)
	own6 := vip(eth0, vip6, defaultLifetime, DefaultMark)
	forgotten := func(a *address) { a.Proto = 0 }
	old4, old6 := with(own4, forgotten), with(own6, forgotten)
	long := vip(link{Index: 3, Name: "enp129s0f0np0", AdminUp: true}, vip4, defaultLifetime, 0)

	for _, tt := range []struct {
		name  string
		a     address
		link  string
		marks bool
		want  bool
	}{
		{"marked IPv4", own4, "lo", true, true},
		{"marked IPv6", own6, "eth0", true, true},
		{"marked, but no marks in the view yet", own4, "lo", false, true},
		{"marked, then changed without losing the mark", with(own4, func(a *address) { a.Valid, a.Flags = rtnetlink.Infinite, unix.IFA_F_PERMANENT }), "lo", true, true},
		{"right label, but no mark on a kernel with marks", old4, "lo", true, true},
		{"right shape, but no mark on a kernel with marks", old6, "eth0", true, false},
		{"right shape, but another's mark", with(own4, func(a *address) { a.Proto = 18 }), "lo", false, false},
		{"another Herald's mark", with(own4, func(a *address) { a.Proto++ }), "lo", true, false},
		{"permanent", permanent(lo, "10.99.0.10/32"), "lo", true, false},

		{"old kernel, IPv4", old4, "lo", false, true},
		{"old kernel, IPv6", old6, "eth0", false, true},
		{"old kernel, a link's name too long for a label", long, "enp129s0f0np0", false, true},
		{"old kernel, almost expired", with(old4, func(a *address) { a.Valid = 1 }), "lo", false, true},
		{"old kernel, permanent", with(old4, func(a *address) { a.Valid, a.Flags = rtnetlink.Infinite, a.Flags|unix.IFA_F_PERMANENT }), "lo", false, true},
		{"old kernel, permanent by its lifetime", with(old4, func(a *address) { a.Valid = rtnetlink.Infinite }), "lo", false, true},
		{"old kernel, a lease of hours", with(old4, func(a *address) { a.Valid = 7200 }), "lo", false, true},
		{"old kernel, still preferred", with(old4, func(a *address) { a.Preferred = 5 }), "lo", false, true},
		{"old kernel, not deprecated", with(old4, func(a *address) { a.Flags &^= unix.IFA_F_DEPRECATED }), "lo", false, true},
		{"old kernel, with a route", with(old4, func(a *address) { a.Flags &^= unix.IFA_F_NOPREFIXROUTE }), "lo", false, true},
		{"old kernel, IPv6, permanent", with(old6, func(a *address) { a.Valid = rtnetlink.Infinite }), "eth0", false, false},
		{"old kernel, IPv6, a lease of hours", with(old6, func(a *address) { a.Valid = 7200 }), "eth0", false, false},
		{"old kernel, IPv6, still preferred", with(old6, func(a *address) { a.Preferred = 5 }), "eth0", false, false},
		{"old kernel, IPv6, not deprecated", with(old6, func(a *address) { a.Flags &^= unix.IFA_F_DEPRECATED }), "eth0", false, false},
		{"old kernel, IPv6, with a route", with(old6, func(a *address) { a.Flags &^= unix.IFA_F_NOPREFIXROUTE }), "eth0", false, false},
		{"old kernel, a subnet", with(old4, func(a *address) { a.Subnet = netip.MustParsePrefix("10.99.0.0/24") }), "lo", false, false},
		{"old kernel, a far end", with(old4, func(a *address) { a.Subnet = netip.MustParsePrefix("10.99.0.11/32") }), "lo", false, false},
		{"old kernel, no label", with(old4, func(a *address) { a.Label = "lo" }), "lo", false, false},
		{"old kernel, another link's label", old4, "eth0", false, false},
		{"old kernel, IPv6 with duplicate address detection", with(old6, func(a *address) { a.Flags &^= unix.IFA_F_NODAD }), "eth0", false, false},
	} {
		if got := Ours(tt.a, tt.link, DefaultMark, tt.marks); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

func TestPlan(t *testing.T) {
	down := link{Index: 2, Name: "eth0"}
	ipvs := link{Index: 9, Name: "kube-ipvs0"} // never up
	own := vip(lo, vip4, defaultLifetime, DefaultMark)
	elsewhere := vip(eth0, vip4, defaultLifetime, DefaultMark)
	nowhere := func(int) bool { return false }
	for _, tt := range []struct {
		name  string
		links []link
		addrs []address
		want  step
		err   string // part of it
	}{
		{"missing", []link{lo}, nil, create, ""},
		{"present", []link{lo}, []address{own}, keep, ""},
		{"present, made permanent", []link{lo}, []address{with(own, func(a *address) { a.Proto, a.Valid, a.Flags = 0, rtnetlink.Infinite, unix.IFA_F_PERMANENT })}, mend, ""},
		{"no link", []link{eth0}, nil, leave, "link lo does not exist"},
		{"no link, but an address of an unknown link", nil, []address{own}, leave, "link lo does not exist"},
		{"link down", []link{{Index: 1, Name: "lo"}}, nil, leave, "link lo is down"},
		{"link down, address present", []link{{Index: 1, Name: "lo"}}, []address{own}, leave, "link lo is down"},
		{"Herald's own, but on another link", []link{lo, eth0}, []address{elsewhere}, create, ""},
		{"Herald's own, but as a subnet", []link{lo}, []address{with(own, func(a *address) { a.Subnet = netip.MustParsePrefix("10.99.0.0/24") })}, create, ""},
		{"other addresses", []link{lo, eth0}, []address{permanent(lo, "10.99.0.11/32"), permanent(eth0, "10.99.0.1/24")}, create, ""},

		{"foreign in the same place", []link{lo}, []address{permanent(lo, "10.99.0.10/32")}, leave, "10.99.0.10/32 is on lo already, not put there by Herald"},
		{"foreign as a subnet", []link{lo}, []address{permanent(lo, "10.99.0.10/24")}, leave, "10.99.0.10/24 is on lo already, not put there by Herald"},
		{"foreign on another link", []link{lo, eth0}, []address{permanent(eth0, "10.99.0.10/24")}, leave, "`ip address del 10.99.0.10/24 dev eth0`"},
		{"foreign on another link that is down", []link{lo, down}, []address{permanent(eth0, "10.99.0.10/24")}, leave, "on eth0"},
		{"foreign on two links", []link{lo, eth0}, []address{permanent(lo, "10.99.0.10/24"), permanent(eth0, "10.99.0.10/24")}, leave, "on eth0"},
		{"present, and foreign on another link", []link{lo, eth0}, []address{own, permanent(eth0, "10.99.0.10/24")}, keep, "on eth0"},
		{"kube-proxy's, in IPVS mode", []link{lo, ipvs}, []address{permanent(ipvs, "10.99.0.10/32")}, create, ""},
		{"present, and kube-proxy's", []link{lo, ipvs}, []address{own, permanent(ipvs, "10.99.0.10/32")}, keep, ""},
		{"kube-proxy's, and foreign too", []link{lo, eth0, ipvs}, []address{permanent(ipvs, "10.99.0.10/32"), permanent(eth0, "10.99.0.10/24")}, leave, "on eth0"},
		{"another Herald's", []link{lo}, []address{vip(lo, vip4, defaultLifetime, DefaultMark+1)}, leave, "10.99.0.10/32 is on lo already labelled lo:herald with protocol 73, not put there by Herald"},
	} {
		v := newView(tt.links, append(tt.addrs, marked))
		got, err := v.plan(Binding{"lo", vip4}, DefaultMark, nowhere)
		for range 20 { // must not depend on the map's order
			if again, againErr := v.plan(Binding{"lo", vip4}, DefaultMark, nowhere); again != got || !sameError(againErr, err) {
				t.Errorf("%s: first %v, error %v; then %v, error %v", tt.name, got, err, again, againErr)
			}
		}
		if got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
		switch {
		case tt.err == "" && err != nil:
			t.Errorf("%s: %v", tt.name, err)
		case tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)):
			t.Errorf("%s: error %v, want %q", tt.name, err, tt.err)
		case strings.Contains(tt.name, "foreign") && !errors.Is(err, ErrForeign):
			t.Errorf("%s: error %v, want an ErrForeign", tt.name, err)
		}
	}
}

func TestViewOfLinks(t *testing.T) {
	v := newView([]link{lo, eth0}, nil)
	for _, tt := range []struct {
		name    string
		change  func() []string
		changed []string
		index   map[string]int
	}{
		{"unchanged", func() []string { return v.setLink(eth0) }, nil, map[string]int{"lo": 1, "eth0": 2}},
		{"down", func() []string { return v.setLink(link{Index: 2, Name: "eth0"}) }, []string{"eth0"}, map[string]int{"lo": 1, "eth0": 2}},
		{"renamed", func() []string { return v.setLink(link{Index: 2, Name: "wan0"}) }, []string{"eth0", "wan0"}, map[string]int{"lo": 1, "wan0": 2}},
		{"another link takes the old name", func() []string { return v.setLink(link{Index: 3, Name: "eth0"}) }, []string{"eth0"}, map[string]int{"lo": 1, "wan0": 2, "eth0": 3}},
		{"a link takes a name", func() []string { return v.setLink(link{Index: 4, Name: "wan0"}) }, []string{"wan0"}, map[string]int{"lo": 1, "wan0": 4, "eth0": 3}},
		{"before the other link lost it", func() []string { return v.setLink(link{Index: 2, Name: "old0"}) }, []string{"wan0", "old0"}, map[string]int{"lo": 1, "wan0": 4, "eth0": 3, "old0": 2}},
		{"gone", func() []string { return v.dropLink(link{Index: 2}) }, []string{"old0"}, map[string]int{"lo": 1, "wan0": 4, "eth0": 3}},
		{"gone again", func() []string { return v.dropLink(link{Index: 2}) }, nil, map[string]int{"lo": 1, "wan0": 4, "eth0": 3}},
	} {
		if diff := cmp.Diff(tt.changed, tt.change()); diff != "" {
			t.Errorf("%s: changed (-want +got):\n%s", tt.name, diff)
		}
		if diff := cmp.Diff(tt.index, v.index); diff != "" {
			t.Errorf("%s: index (-want +got):\n%s", tt.name, diff)
		}
	}
	if len(v.links) != len(v.index) {
		t.Errorf("%d links, %d names", len(v.links), len(v.index))
	}
}

func TestLabel(t *testing.T) {
	for link, want := range map[string]string{
		"lo":              "lo:herald",
		"bond0.10":        "bond0.10:herald",
		"enp3s0f1n":       "enp3s0f1n",
		"enp129s0f0np0v1": "enp129s0f0np0v1",
	} {
		if got := label(link); got != want || len(got) >= unix.IFNAMSIZ {
			t.Errorf("label(%q) = %q, want %q", link, got, want)
		}
	}
}

func TestExplain(t *testing.T) {
	for _, tt := range []struct {
		addr netip.Addr
		err  error
		want string
	}{
		{vip4, unix.EPERM, "put 10.99.0.10 on lo: operation not permitted: Herald needs CAP_NET_ADMIN"},
		{vip6, unix.EACCES, "put fd00:99::10 on lo: permission denied: is IPv6 off there? set net.ipv6.conf.lo.disable_ipv6=0"},
		{vip4, unix.EACCES, "put 10.99.0.10 on lo: permission denied"},
		{vip4, unix.ENOMEM, "put 10.99.0.10 on lo: cannot allocate memory"},
	} {
		got := explainError(Binding{"lo", tt.addr}, tt.err)
		if got.Error() != tt.want || !errors.Is(got, tt.err) {
			t.Errorf("got  %v\nwant %s", got, tt.want)
		}
	}
}
