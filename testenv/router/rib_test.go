package router_test

import (
	"errors"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/osrg/gobgp/v4/pkg/apiutil"
	"github.com/osrg/gobgp/v4/pkg/packet/bgp"
	"pgregory.net/rapid"

	"github.com/herald-vip/herald/testenv/router"
)

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

func addrs(list ...string) []netip.Addr {
	var all []netip.Addr
	for _, s := range list {
		all = append(all, addr(s))
	}
	return all
}

func TestSelectPaths(t *testing.T) {
	// path is a plain eBGP path from AS 64512 by a neighbour that is its own next hop.
	path := func(hop string, change ...func(*router.Path)) router.Path {
		p := router.Path{Peer: addr(hop), NextHop: addr(hop), ASPath: []uint32{64512}, ASPathLength: 1, LocalPref: 100, External: true}
		for _, c := range change {
			c(&p)
		}
		return p
	}
	shutdown := func(p *router.Path) { p.GracefulShutdown = true }
	med := func(n uint32) func(*router.Path) { return func(p *router.Path) { p.MED = n } }
	pref := func(n uint32) func(*router.Path) { return func(p *router.Path) { p.LocalPref = n } }
	origin := func(n uint8) func(*router.Path) { return func(p *router.Path) { p.Origin = n } }
	as := func(asns ...uint32) func(*router.Path) {
		return func(p *router.Path) { p.ASPath, p.ASPathLength = asns, len(asns) }
	}
	via := func(hop string) func(*router.Path) { return func(p *router.Path) { p.NextHop = addr(hop) } }
	internal := func(p *router.Path) { p.External = false }

	tests := []struct {
		name  string
		paths []router.Path
		relax bool
		limit int
		want  []netip.Addr
	}{
		{"none", nil, false, 0, nil},
		{"one", []router.Path{path("10.0.0.1")}, false, 0, addrs("10.0.0.1")},
		{"equal paths share", []router.Path{path("10.0.0.3"), path("10.0.0.1"), path("10.0.0.2")}, false, 0, addrs("10.0.0.1", "10.0.0.2", "10.0.0.3")},
		{"one next hop of two neighbours counts once", []router.Path{path("10.0.0.1"), path("10.0.0.2", via("10.0.0.1"))}, false, 0, addrs("10.0.0.1")},
		{"at most two", []router.Path{path("10.0.0.3"), path("10.0.0.1"), path("10.0.0.2")}, false, 2, addrs("10.0.0.1", "10.0.0.2")},

		{"graceful shutdown steps back", []router.Path{path("10.0.0.1", shutdown), path("10.0.0.2"), path("10.0.0.3")}, false, 0, addrs("10.0.0.2", "10.0.0.3")},
		{"graceful shutdown steps back even behind a longer path", []router.Path{path("10.0.0.1", shutdown), path("10.0.0.2", as(64512, 64512))}, false, 0, addrs("10.0.0.2")},
		{"graceful shutdown of all", []router.Path{path("10.0.0.1", shutdown), path("10.0.0.2", shutdown)}, false, 0, addrs("10.0.0.1", "10.0.0.2")},

		{"higher local preference wins", []router.Path{path("10.0.0.1", internal, pref(100)), path("10.0.0.2", internal, pref(200), as(64512, 1, 2))}, false, 0, addrs("10.0.0.2")},
		{"shorter AS path wins", []router.Path{path("10.0.0.1", as(64512, 64512)), path("10.0.0.2")}, false, 0, addrs("10.0.0.2")},
		{"lower origin wins", []router.Path{path("10.0.0.1", origin(2)), path("10.0.0.2", origin(0))}, false, 0, addrs("10.0.0.2")},
		{"lower MED wins", []router.Path{path("10.0.0.1", med(10)), path("10.0.0.2", med(5)), path("10.0.0.3", med(5))}, false, 0, addrs("10.0.0.2", "10.0.0.3")},
		{"a shorter AS path beats a lower MED", []router.Path{path("10.0.0.1", as(64512, 1), med(0)), path("10.0.0.2", med(9))}, false, 0, addrs("10.0.0.2")},
		{"MEDs of different ASes do not compare", []router.Path{path("10.0.0.1", med(10)), path("10.0.0.2", as(64513), med(5))}, true, 0, addrs("10.0.0.1", "10.0.0.2")},
		{"eBGP beats iBGP", []router.Path{path("10.0.0.1", internal), path("10.0.0.2")}, false, 0, addrs("10.0.0.2")},

		{"other AS paths do not share", []router.Path{path("10.0.0.2"), path("10.0.0.1", as(64513)), path("10.0.0.3", as(64513))}, false, 0, addrs("10.0.0.1", "10.0.0.3")},
		{"other AS paths share if relaxed", []router.Path{path("10.0.0.2"), path("10.0.0.1", as(64513))}, true, 0, addrs("10.0.0.1", "10.0.0.2")},
		{"relaxed, but of equal length", []router.Path{path("10.0.0.2"), path("10.0.0.1", as(64513, 64513))}, true, 0, addrs("10.0.0.2")},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for range 10 {
				rand.Shuffle(len(tt.paths), func(i, j int) { tt.paths[i], tt.paths[j] = tt.paths[j], tt.paths[i] })
				got := router.SelectPaths(tt.paths, tt.relax, tt.limit)
				if diff := cmp.Diff(tt.want, got, compareNetip); diff != "" {
					t.Fatalf("next hops (-want +got):\n%s", diff)
				}
			}
		})
	}
}

// compareNetip lets cmp look at addresses and prefixes.
var compareNetip = cmp.Options{
	cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
	cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
}

// Whatever the paths, the choice does not depend on their order, and a path
// that does not say goodbye is never passed over for one that does.
func TestSelectPathsProperties(t *testing.T) {
	genPath := rapid.Custom(func(t *rapid.T) router.Path {
		n := rapid.Uint8Range(1, 9).Draw(t, "peer")
		asPath := rapid.SliceOfN(rapid.Uint32Range(1, 3), 0, 3).Draw(t, "asPath")
		return router.Path{
			Peer:             netip.AddrFrom4([4]byte{10, 0, 0, n}),
			NextHop:          netip.AddrFrom4([4]byte{10, 0, 1, rapid.Uint8Range(1, 9).Draw(t, "hop")}),
			ASPath:           asPath,
			ASPathLength:     len(asPath),
			Origin:           rapid.Uint8Range(0, 2).Draw(t, "origin"),
			MED:              rapid.Uint32Range(0, 2).Draw(t, "med"),
			LocalPref:        rapid.Uint32Range(99, 101).Draw(t, "localPref"),
			External:         rapid.Bool().Draw(t, "external"),
			GracefulShutdown: rapid.Bool().Draw(t, "gracefulShutdown"),
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		paths := rapid.SliceOfNDistinct(genPath, 1, 8, func(p router.Path) netip.Addr { return p.Peer }).Draw(t, "paths")
		relax := rapid.Bool().Draw(t, "relax")
		limit := rapid.IntRange(0, 3).Draw(t, "limit")
		got := router.SelectPaths(paths, relax, limit)
		if len(got) == 0 || limit > 0 && len(got) > limit {
			t.Fatalf("%d next hops, limit %d", len(got), limit)
		}
		shuffled := rapid.Permutation(paths).Draw(t, "shuffled")
		if again := router.SelectPaths(shuffled, relax, limit); !slices.Equal(got, again) {
			t.Fatalf("next hops %v, in another order %v", got, again)
		}
		staying := func(p router.Path) bool { return !p.GracefulShutdown }
		if !slices.ContainsFunc(paths, staying) {
			return
		}
		for _, hop := range got {
			if !slices.ContainsFunc(paths, func(p router.Path) bool { return staying(p) && p.NextHop == hop }) {
				t.Fatalf("next hop %v is only that of a path about to go", hop)
			}
		}
	})
}

func TestDiff(t *testing.T) {
	p := netip.MustParsePrefix
	have := map[netip.Prefix][]netip.Addr{
		p("10.99.0.1/32"): addrs("10.0.0.1", "10.0.0.2"),
		p("10.99.0.2/32"): addrs("10.0.0.1"),
		p("10.99.0.3/32"): addrs("10.0.0.1"),
		p("10.99.0.5/32"): nil, // in the kernel, but all next hops are dead
		p("10.99.0.6/32"): nil,
	}
	want := map[netip.Prefix][]netip.Addr{
		p("10.99.0.1/32"): addrs("10.0.0.1", "10.0.0.2"),
		p("10.99.0.2/32"): addrs("10.0.0.1", "10.0.0.2"),
		p("10.99.0.4/32"): addrs("10.0.0.1"),
		p("10.99.0.5/32"): addrs("10.0.0.1"),
	}
	replace, remove := router.Diff(have, want)
	if diff := cmp.Diff([]netip.Prefix{p("10.99.0.2/32"), p("10.99.0.4/32"), p("10.99.0.5/32")}, replace, compareNetip); diff != "" {
		t.Errorf("replace (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]netip.Prefix{p("10.99.0.3/32"), p("10.99.0.6/32")}, remove, compareNetip); diff != "" {
		t.Errorf("remove (-want +got):\n%s", diff)
	}
}

func TestReadPath(t *testing.T) {
	nlri := func(s string) bgp.NLRI {
		n, err := bgp.NewIPAddrPrefix(netip.MustParsePrefix(s))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	hop4 := func(s string) bgp.PathAttributeInterface {
		a, err := bgp.NewPathAttributeNextHop(addr(s))
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	hop6 := func(hops ...string) bgp.PathAttributeInterface {
		a, err := bgp.NewPathAttributeMpReachNLRI(bgp.RF_IPv6_UC, []bgp.PathNLRI{{NLRI: nlri("fd00:99::10/128")}}, addrs(hops...)...)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	asPath := bgp.NewPathAttributeAsPath([]bgp.AsPathParamInterface{
		bgp.NewAs4PathParam(bgp.BGP_ASPATH_ATTR_TYPE_SEQ, []uint32{64512, 64600}),
		bgp.NewAs4PathParam(bgp.BGP_ASPATH_ATTR_TYPE_SET, []uint32{1, 2, 3}),
	})
	linkTo := func(a netip.Addr) (string, error) {
		if a == addr("10.9.1.1") {
			return "eth0", nil
		}
		return "", errors.New("no link")
	}
	type attrs = []bgp.PathAttributeInterface
	tests := []struct {
		name   string
		update apiutil.Path
		want   router.Path
		err    bool
	}{
		{
			"all attributes",
			apiutil.Path{Nlri: nlri("10.99.0.10/32"), PeerASN: 64512, Attrs: attrs{
				bgp.NewPathAttributeOrigin(2), asPath, hop4("10.9.1.1"), bgp.NewPathAttributeMultiExitDisc(7),
				bgp.NewPathAttributeLocalPref(300), bgp.NewPathAttributeCommunities([]uint32{64512<<16 | 100, 65535 << 16}),
			}},
			router.Path{NextHop: addr("10.9.1.1"), ASPath: []uint32{64512, 64600, 1, 2, 3}, ASPathLength: 3,
				Origin: 2, MED: 7, LocalPref: 300, External: true, GracefulShutdown: true},
			false,
		},
		{
			"internal, other communities",
			apiutil.Path{Nlri: nlri("10.99.0.10/32"), PeerASN: 64500, Attrs: attrs{
				hop4("10.9.1.1"), bgp.NewPathAttributeCommunities([]uint32{0xffffff01, 65535<<16 | 1}),
			}},
			router.Path{NextHop: addr("10.9.1.1"), LocalPref: 100},
			false,
		},
		{
			"global next hop before link-local",
			apiutil.Path{Nlri: nlri("fd00:99::10/128"), PeerASN: 64512, Attrs: attrs{hop6("fd09::1", "fe80::1")}},
			router.Path{NextHop: addr("fd09::1"), LocalPref: 100, External: true},
			false,
		},
		{
			"link-local next hop behind an unspecified one",
			apiutil.Path{Nlri: nlri("fd00:99::10/128"), PeerASN: 64512, Attrs: attrs{hop6("::", "fe80::1")}},
			router.Path{NextHop: addr("fe80::1%eth0"), LocalPref: 100, External: true},
			false,
		},
		{
			"link-local next hop",
			apiutil.Path{Nlri: nlri("fd00:99::10/128"), PeerASN: 64512, Attrs: attrs{hop6("fe80::1")}},
			router.Path{NextHop: addr("fe80::1%eth0"), LocalPref: 100, External: true},
			false,
		},
		{
			"link-local next hop of a distant neighbour",
			apiutil.Path{Nlri: nlri("fd00:99::10/128"), PeerAddress: addr("192.0.2.1"), Attrs: attrs{hop6("fe80::1")}},
			router.Path{}, true,
		},
		{
			"IPv4-mapped next hop",
			apiutil.Path{Nlri: nlri("fd00:99::10/128"), Attrs: attrs{hop6("::ffff:10.9.1.1")}},
			router.Path{}, true,
		},
		{"no next hop", apiutil.Path{Nlri: nlri("10.99.0.10/32")}, router.Path{}, true},
		{"withdrawal", apiutil.Path{Nlri: nlri("10.99.0.10/32"), Withdrawal: true}, router.Path{}, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if !tt.update.PeerAddress.IsValid() {
				tt.update.PeerAddress = addr("10.9.1.1")
			}
			prefix, got, err := router.ReadPath(&tt.update, 64500, linkTo)
			if prefix.String() != tt.update.Nlri.String() {
				t.Errorf("prefix %v, want %v", prefix, tt.update.Nlri)
			}
			if (err != nil) != tt.err || errors.Is(err, router.ErrWithdraw) != tt.update.Withdrawal {
				t.Fatalf("error %v, want one: %v", err, tt.err)
			}
			if err != nil {
				return
			}
			tt.want.Peer = tt.update.PeerAddress
			if diff := cmp.Diff(tt.want, got, compareNetip); diff != "" {
				t.Errorf("path (-want +got):\n%s", diff)
			}
		})
	}
}
