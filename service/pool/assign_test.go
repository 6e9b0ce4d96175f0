package pool_test

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/herald-vip/herald/service/pool"
	"github.com/herald-vip/herald/testenv/must"
)

var (
	v4   = []pool.Family{pool.IPv4}
	v6   = []pool.Family{pool.IPv6}
	dual = []pool.Family{pool.IPv4, pool.IPv6}
)

// newPool returns a pool of these ranges with AutoAssign.
func newPool(name string, ranges ...string) pool.Pool {
	p := pool.Pool{Name: name, AutoAssign: true}
	for _, s := range ranges {
		r, err := pool.ParseRange(s)
		if err != nil {
			panic(err)
		}
		p.Ranges = append(p.Ranges, r)
	}
	return p
}

func preferred(p pool.Pool, priority int) pool.Pool {
	p.Priority = priority
	return p
}

func manual(p pool.Pool) pool.Pool {
	p.AutoAssign = false
	return p
}

func addresses(list string) []netip.Addr {
	var addrs []netip.Addr
	for s := range strings.FieldsSeq(list) {
		addrs = append(addrs, netip.MustParseAddr(s))
	}
	return addrs
}

func tcp(numbers ...uint16) []pool.Port {
	var ports []pool.Port
	for _, n := range numbers {
		ports = append(ports, pool.Port{Protocol: "TCP", Number: n})
	}
	return ports
}

func allocator(t *testing.T, pools ...pool.Pool) *pool.Allocator {
	t.Helper()
	a := pool.New()
	must.Do(t, a.Replace(pools))
	return a
}

// given is a claim that has addresses.
type given struct {
	pool.Claim
	addrs string
}

// sharer is a claim that holds addresses with the sharing key x.
func sharer(key, addrs string, ports ...uint16) given {
	families := dual
	switch first := addresses(addrs); {
	case len(first) == 2:
	case first[0].Is4():
		families = v4
	default:
		families = v6
	}
	return given{pool.Claim{Key: key, Families: families, Share: "x", Ports: tcp(ports...)}, addrs}
}

// sharing is a claim with the sharing key x.
func sharing(families []pool.Family, ports ...uint16) pool.Claim {
	return pool.Claim{Families: families, Share: "x", Ports: tcp(ports...)}
}

func owner(key, addrs string) given {
	g := sharer(key, addrs)
	g.Share = ""
	return g
}

// TestAssign assigns addresses to default/web while other claims hold some. The
// addresses that default/web itself already holds are listed among others.
func TestAssign(t *testing.T) {
	const web = "default/web"
	small := newPool("small", "10.0.0.1-10.0.0.2", "fd00::1-fd00::2")
	only := func(names ...string) func(string) bool {
		return func(name string) bool { return strings.Contains(strings.Join(names, " "), name) }
	}
	for _, c := range []struct {
		name   string
		pools  []pool.Pool // nil means small
		others []given
		claim  pool.Claim
		want   string
		reason pool.Reason
		err    string
	}{
		// Which pool and which address of it.
		{name: "the lowest address", pools: []pool.Pool{newPool("a", "10.0.0.8/30", "10.0.0.0/30")}, claim: pool.Claim{Families: v4}, want: "10.0.0.0"},
		{name: "a gap", pools: []pool.Pool{newPool("a", "10.0.0.0/30")}, others: []given{owner("b", "10.0.0.0"), owner("c", "10.0.0.2")},
			claim: pool.Claim{Families: v4}, want: "10.0.0.1"},
		{name: "priority before name", pools: []pool.Pool{newPool("a", "10.0.0.0/30"), preferred(newPool("b", "10.0.1.0/30"), 1), preferred(newPool("c", "10.0.2.0/30"), -1)},
			claim: pool.Claim{Families: v4}, want: "10.0.1.0"},
		{name: "names in order", pools: []pool.Pool{newPool("b", "10.0.0.0/30"), newPool("a", "10.0.1.0/30")}, claim: pool.Claim{Families: v4}, want: "10.0.1.0"},
		{name: "the next pool when one is exhausted", pools: []pool.Pool{newPool("a", "10.0.0.0/32"), newPool("b", "10.0.1.0/30")},
			others: []given{owner("b", "10.0.0.0")}, claim: pool.Claim{Families: v4}, want: "10.0.1.0"},
		{name: "a pool that does not assign by itself", pools: []pool.Pool{manual(newPool("a", "10.0.0.0/30")), newPool("b", "10.0.1.0/30")},
			claim: pool.Claim{Families: v4}, want: "10.0.1.0"},
		{name: "by selectors", pools: []pool.Pool{newPool("a", "10.0.0.0/30"), newPool("b", "10.0.1.0/30")},
			claim: pool.Claim{Families: v4, SelectedBy: only("b")}, want: "10.0.1.0"},
		{name: "a million networks", pools: []pool.Pool{newPool("a", "10.0.0.0/8", "fd00::/64")}, claim: pool.Claim{Families: dual}, want: "10.0.0.0 fd00::"},
		{name: "no buggy addresses", pools: []pool.Pool{{Name: "a", AutoAssign: true, AvoidBuggyIPs: true, Ranges: newPool("", "10.0.0.254-10.0.1.1", "fd00::ff/128").Ranges}},
			others: []given{owner("b", "10.0.0.254")}, claim: pool.Claim{Families: dual}, want: "10.0.1.1 fd00::ff"},

		// Asking for a pool.
		{name: "a pool by name", pools: []pool.Pool{newPool("a", "10.0.0.0/30"), manual(newPool("b", "10.0.1.0/30"))},
			claim: pool.Claim{Families: v4, Pool: "b"}, want: "10.0.1.0"},
		{name: "an unknown pool", claim: pool.Claim{Families: v4, Pool: "b"}, reason: pool.NoPool,
			err: `there is no pool "b": create it, or ask for another`},
		{name: "a pool that does not select the claim", claim: pool.Claim{Families: v4, Pool: "small", SelectedBy: only("b")}, reason: pool.NoPool,
			err: `the selectors of pool "small" do not choose default/web: ask for another pool`},
		{name: "a pool without the family", pools: []pool.Pool{newPool("a", "10.0.0.0/30")}, claim: pool.Claim{Families: v6, Pool: "a"}, reason: pool.NoPool,
			err: `pool "a" has no IPv6 addresses: add some, or ask for another pool`},
		{name: "an exhausted pool, though another is not", pools: []pool.Pool{newPool("a", "10.0.0.0/32"), newPool("b", "10.0.1.0/30")},
			others: []given{owner("b", "10.0.0.0")}, claim: pool.Claim{Families: v4, Pool: "a"}, reason: pool.PoolExhausted,
			err: `no IPv4 address is free in pool "a": add addresses, or release some`},
		{name: "exhausted pools", pools: []pool.Pool{newPool("a", "10.0.0.0/32"), newPool("b", "10.0.1.0/32"), preferred(newPool("c", "10.0.2.0/32"), 1), newPool("d", "fd00::/64")},
			others: []given{owner("b", "10.0.0.0"), owner("c", "10.0.1.0"), owner("d", "10.0.2.0")}, claim: pool.Claim{Families: v4}, reason: pool.PoolExhausted,
			err: `no IPv4 address is free in pools "c", "a" and "b": add addresses, or release some`},
		{name: "no pool at all", pools: []pool.Pool{}, claim: pool.Claim{Families: v6}, reason: pool.NoPool,
			err: "no pool assigns IPv6 addresses to default/web: create one that does, or ask for a pool by name"},

		// Asking for addresses.
		{name: "an address", pools: []pool.Pool{manual(small)}, claim: pool.Claim{Families: v4, Addresses: addresses("10.0.0.2")}, want: "10.0.0.2"},
		{name: "an address mapped into IPv6", claim: pool.Claim{Families: v4, Addresses: addresses("::ffff:10.0.0.2")}, want: "10.0.0.2"},
		{name: "one of two addresses", claim: pool.Claim{Families: dual, Addresses: addresses("fd00::2")}, want: "10.0.0.1 fd00::2"},
		{name: "two addresses, the first family first",
			claim: pool.Claim{Families: []pool.Family{pool.IPv6, pool.IPv4}, Addresses: addresses("10.0.0.2 fd00::2")}, want: "fd00::2 10.0.0.2"},
		{name: "an address outside all pools", claim: pool.Claim{Families: v4, Addresses: addresses("10.0.0.9")}, reason: pool.AddressNotInPool,
			err: "10.0.0.9 is in no ready pool: ask for an address of a ready pool, or add this one to a pool"},
		{name: "an address of another pool", pools: []pool.Pool{small, newPool("b", "10.0.1.0/30")},
			claim: pool.Claim{Families: v4, Addresses: addresses("10.0.1.0"), Pool: "small"}, reason: pool.AddressNotInPool,
			err: `10.0.1.0 is in pool "b", not in pool "small": ask for only one of address and pool`},
		{name: "a buggy address", pools: []pool.Pool{{Name: "a", AvoidBuggyIPs: true, Ranges: newPool("", "10.0.0.0/24").Ranges}},
			claim: pool.Claim{Families: v4, Addresses: addresses("10.0.0.255")}, reason: pool.AddressNotInPool,
			err: `10.0.0.255 ends in .0 or .255, which pool "a" avoids: ask for another address`},
		{name: "an address of a pool that does not select the claim",
			claim: pool.Claim{Families: v4, Addresses: addresses("10.0.0.2"), SelectedBy: only("b")}, reason: pool.AddressNotInPool,
			err: `10.0.0.2 is in pool "small", which does not select default/web: ask for an address of another pool`},
		{name: "an address of another family", claim: pool.Claim{Families: v4, Addresses: addresses("fd00::2")}, reason: pool.InvalidClaim,
			err: "fd00::2 is an IPv6 address, but default/web wants IPv4: ask for an address of that family"},
		{name: "two addresses of a family", claim: pool.Claim{Families: v4, Addresses: addresses("10.0.0.2 10.0.0.1")}, reason: pool.InvalidClaim,
			err: "10.0.0.2 and 10.0.0.1 are both IPv4 addresses: ask for one of each family"},
		{name: "an address with a zone", claim: pool.Claim{Families: v6, Addresses: addresses("fe80::1%eth0")}, reason: pool.InvalidClaim,
			err: "fe80::1%eth0 cannot be assigned: ask for an address without a zone"},
		{name: "the address of another claim", others: []given{owner("b", "10.0.0.2")},
			claim: pool.Claim{Families: v4, Addresses: addresses("10.0.0.2")}, reason: pool.AddressConflict,
			err: "10.0.0.2 belongs to b: ask for another address, or give both the same sharing key"},
		{name: "a requested address is mandatory", others: []given{owner("b", "10.0.0.2")},
			claim: pool.Claim{Families: dual, Partial: true, Addresses: addresses("10.0.0.2")}, reason: pool.AddressConflict,
			err: "10.0.0.2 belongs to b: ask for another address, or give both the same sharing key"},

		// Both families.
		{name: "both, from different pools", pools: []pool.Pool{newPool("a", "10.0.0.0/30"), newPool("b", "fd00::/126")},
			claim: pool.Claim{Families: dual}, want: "10.0.0.0 fd00::"},
		{name: "both or none", pools: []pool.Pool{newPool("a", "10.0.0.0/30")}, claim: pool.Claim{Families: dual}, reason: pool.NoPool,
			err: "no pool assigns IPv6 addresses to default/web: create one that does, or ask for a pool by name"},
		{name: "one is enough", pools: []pool.Pool{newPool("a", "10.0.0.0/30")},
			claim: pool.Claim{Families: []pool.Family{pool.IPv6, pool.IPv4}, Partial: true}, want: "10.0.0.0"},
		{name: "not even one", pools: []pool.Pool{manual(small)}, claim: pool.Claim{Families: dual, Partial: true}, reason: pool.NoPool,
			err: "no pool assigns IPv4 addresses to default/web: create one that does, or ask for a pool by name"},
		{name: "the other when it is available", others: []given{owner(web, "10.0.0.2")},
			claim: pool.Claim{Families: dual, Partial: true}, want: "10.0.0.2 fd00::1"},
		{name: "only one family left", others: []given{owner(web, "10.0.0.2 fd00::2")}, claim: pool.Claim{Families: v6}, want: "fd00::2"},

		// Sharing.
		{name: "other ports", others: []given{sharer("b", "10.0.0.2", 80)}, claim: sharing(v4, 443), want: "10.0.0.2"},
		{name: "the same port of another protocol", others: []given{sharer("b", "10.0.0.2", 80)},
			claim: pool.Claim{Families: v4, Share: "x", Ports: []pool.Port{{Protocol: "UDP", Number: 80}}}, want: "10.0.0.2"},
		{name: "the same port", others: []given{sharer("b", "10.0.0.2", 80)}, claim: sharing(v4, 443, 80), want: "10.0.0.1"},
		{name: "another key", others: []given{sharer("b", "10.0.0.2", 80)}, claim: pool.Claim{Families: v4, Share: "y", Ports: tcp(443)}, want: "10.0.0.1"},
		{name: "another policy", others: []given{sharer("b", "10.0.0.2", 80)},
			claim: pool.Claim{Families: v4, Share: "x", Policy: "local", Ports: tcp(443)}, want: "10.0.0.1"},
		{name: "the lowest that has the ports free", pools: []pool.Pool{newPool("a", "10.0.0.0/29")},
			others: []given{sharer("b", "10.0.0.1", 80), sharer("c", "10.0.0.3", 443), sharer("d", "10.0.0.4", 443)}, claim: sharing(v4, 80), want: "10.0.0.3"},
		{name: "asking for the same port", others: []given{sharer("b", "10.0.0.2", 80)},
			claim: pool.Claim{Families: v4, Share: "x", Ports: tcp(80), Addresses: addresses("10.0.0.2")}, reason: pool.AddressConflict,
			err: "port 80/TCP of 10.0.0.2 belongs to b: use another port, or ask for another address"},
		{name: "asking with another key", others: []given{sharer("b", "10.0.0.2", 80)},
			claim: pool.Claim{Families: v4, Share: "y", Ports: tcp(443), Addresses: addresses("10.0.0.2")}, reason: pool.AddressConflict,
			err: `10.0.0.2 is shared by the key "x": ask for another address, or use that key`},
		{name: "asking with another policy", others: []given{sharer("b", "10.0.0.2", 80)},
			claim: pool.Claim{Families: v4, Share: "x", Policy: "local", Ports: tcp(443), Addresses: addresses("10.0.0.2")}, reason: pool.AddressConflict,
			err: `10.0.0.2 is shared by the key "x" with another policy for its traffic: ask for another address, or use the same policy`},
		{name: "not in a pool that does not select the claim", pools: []pool.Pool{small, newPool("b", "10.0.1.0/30")}, others: []given{sharer("b", "10.0.1.2", 80)},
			claim: pool.Claim{Families: v4, Share: "x", Ports: tcp(443), SelectedBy: only("small")}, want: "10.0.0.1"},
		{name: "when nothing is free", pools: []pool.Pool{newPool("a", "10.0.0.1/32")}, others: []given{sharer("b", "10.0.0.1", 80)},
			claim: sharing(v4, 443), want: "10.0.0.1"},

		// Sharing both families.
		{name: "a pair", others: []given{sharer("b", "10.0.0.2 fd00::2", 80)}, claim: sharing(dual, 443), want: "10.0.0.2 fd00::2"},
		{name: "a pair rather than two single addresses", others: []given{sharer("b", "10.0.0.2 fd00::2", 80), sharer("c", "10.0.0.1", 81), sharer("d", "fd00::1", 82)},
			claim: sharing(dual, 443), want: "10.0.0.2 fd00::2"},
		{name: "two single addresses", others: []given{sharer("b", "10.0.0.2", 80), sharer("c", "fd00::2", 80)},
			claim: sharing(dual, 443), want: "10.0.0.2 fd00::2"},
		{name: "one single address", others: []given{sharer("b", "fd00::2", 80)}, claim: sharing(dual, 443), want: "10.0.0.1 fd00::2"},
		{name: "half a pair", others: []given{sharer("b", "10.0.0.2 fd00::2", 80)}, claim: sharing(v6, 443), want: "fd00::2"},
		{name: "a pair with the port in use on one address", others: []given{sharer("b", "10.0.0.2 fd00::2", 80), sharer("c", "fd00::2", 443)},
			claim: sharing(dual, 443), want: "10.0.0.1 fd00::1"},
		{name: "one address of a pair brings the other", pools: []pool.Pool{manual(small)}, others: []given{sharer("b", "10.0.0.2 fd00::2", 80)},
			claim: pool.Claim{Families: dual, Share: "x", Ports: tcp(443), Pool: "small", Addresses: addresses("fd00::2")}, want: "10.0.0.2 fd00::2"},
		{name: "the other address of the pair is in no usable pool", pools: []pool.Pool{newPool("a", "10.0.0.0/30"), newPool("b", "fd00::/126")}, others: []given{sharer("b", "10.0.0.2 fd00::2", 80)},
			claim: pool.Claim{Families: dual, Share: "x", Ports: tcp(443), SelectedBy: only("a"), Addresses: addresses("10.0.0.2")}, reason: pool.AddressConflict,
			err: "fd00::2 is the second address of Services that share 10.0.0.2, but no pool assigns it to default/web: ask for both addresses, or use another sharing key"},
		{name: "the other address of the pair has the port in use", others: []given{sharer("b", "10.0.0.2 fd00::2", 80), sharer("c", "fd00::2", 443)},
			claim: pool.Claim{Families: dual, Share: "x", Ports: tcp(443), Addresses: addresses("10.0.0.2")}, reason: pool.AddressConflict,
			err: "port 443/TCP of fd00::2 belongs to c: use another port, or ask for another address"},
		{name: "asking for addresses of different pairs", others: []given{sharer("b", "10.0.0.2 fd00::2", 80)},
			claim: pool.Claim{Families: dual, Share: "x", Ports: tcp(443), Addresses: addresses("10.0.0.2 fd00::1")}, reason: pool.AddressConflict,
			err: "10.0.0.2 and fd00::1 cannot be assigned together: Services that share one of them have a different second address"},
		{name: "the sharing claims disagree already", others: []given{sharer("b", "10.0.0.2 fd00::2", 80), sharer("c", "10.0.0.2 fd00::1", 81)},
			claim: pool.Claim{Families: dual, Share: "x", Ports: tcp(443), Addresses: addresses("10.0.0.2")}, reason: pool.AddressConflict,
			err: "Services that share 10.0.0.2 have different second addresses: ask for another address, or use another sharing key"},

		// Addresses stay.
		{name: "its address", others: []given{owner(web, "10.0.0.2")}, claim: pool.Claim{Families: v4}, want: "10.0.0.2"},
		{name: "its address in a pool that would not be used now", pools: []pool.Pool{manual(small), newPool("b", "10.0.1.0/30")}, others: []given{owner(web, "10.0.0.2")},
			claim: pool.Claim{Families: v4, SelectedBy: only("b")}, want: "10.0.0.2"},
		{name: "its address in no pool", others: []given{owner(web, "10.0.0.9")}, claim: pool.Claim{Families: v4, Pool: "small"}, want: "10.0.0.9"},
		{name: "its address in no pool, requested", others: []given{owner(web, "10.0.0.9")},
			claim: pool.Claim{Families: v4, Addresses: addresses("10.0.0.9")}, want: "10.0.0.9"},
		{name: "its address with another key", others: []given{owner(web, "10.0.0.2"), sharer("b", "10.0.0.1", 80)}, claim: sharing(v4, 443), want: "10.0.0.2"},
		{name: "its address, when it asks for another of the other family", others: []given{owner(web, "10.0.0.2 fd00::2")},
			claim: pool.Claim{Families: dual, Addresses: addresses("fd00::1")}, want: "10.0.0.2 fd00::1"},
		{name: "one family of another pool", pools: []pool.Pool{small, newPool("b", "10.0.1.0/30")}, others: []given{owner(web, "10.0.0.2 fd00::2")},
			claim: pool.Claim{Families: v4, Pool: "b"}, want: "10.0.1.0"},
		{name: "all when the requested address is taken", others: []given{owner(web, "10.0.0.1"), owner("b", "10.0.0.2")},
			claim: pool.Claim{Families: v4, Addresses: addresses("10.0.0.2")}, want: "10.0.0.1", reason: pool.AddressConflict,
			err: "10.0.0.2 belongs to b: ask for another address, or give both the same sharing key"},
		{name: "all when the other family is unavailable", pools: []pool.Pool{newPool("a", "10.0.0.0/30")}, others: []given{owner(web, "10.0.0.2")},
			claim: pool.Claim{Families: dual}, want: "10.0.0.2", reason: pool.NoPool,
			err: "no pool assigns IPv6 addresses to default/web: create one that does, or ask for a pool by name"},

		// Addresses move.
		{name: "with a new port that is in use", others: []given{sharer("b", "10.0.0.1", 80), sharer(web, "10.0.0.1", 443)},
			claim: sharing(v4, 80), want: "10.0.0.2"},
		{name: "with the sharing key removed", others: []given{sharer("b", "10.0.0.1", 80), sharer(web, "10.0.0.1", 443)},
			claim: pool.Claim{Families: v4, Ports: tcp(443)}, want: "10.0.0.2"},
		{name: "with no free address left", pools: []pool.Pool{newPool("a", "10.0.0.1/32")}, others: []given{sharer("b", "10.0.0.1", 80), sharer(web, "10.0.0.1", 443)},
			claim: sharing(v4, 80), reason: pool.PoolExhausted,
			err: `no IPv4 address is free in pool "a": add addresses, or release some`},
		{name: "with the requested pair", others: []given{sharer("b", "10.0.0.2 fd00::2", 80), sharer(web, "10.0.0.1 fd00::1", 443)},
			claim: pool.Claim{Families: dual, Share: "x", Ports: tcp(443), Addresses: addresses("fd00::2")}, want: "10.0.0.2 fd00::2"},
		{name: "to a pair if there is no other address", pools: []pool.Pool{newPool("a", "10.0.0.1-10.0.0.2", "fd00::2/128")}, others: []given{sharer("b", "10.0.0.2 fd00::2", 80), sharer(web, "10.0.0.1", 443)},
			claim: sharing(dual, 443), want: "10.0.0.2 fd00::2"},
		{name: "but not if one is enough", pools: []pool.Pool{newPool("a", "10.0.0.1-10.0.0.2", "fd00::2/128")}, others: []given{sharer("b", "10.0.0.2 fd00::2", 80), sharer(web, "10.0.0.1", 443)},
			claim: pool.Claim{Families: dual, Share: "x", Partial: true, Ports: tcp(443)}, want: "10.0.0.1"},

		{name: "no family", claim: pool.Claim{}, reason: pool.InvalidClaim,
			err: "default/web names no valid address families: ask for IPv4, IPv6 or both"},
		{name: "one family twice", claim: pool.Claim{Families: []pool.Family{pool.IPv4, pool.IPv4}}, reason: pool.InvalidClaim,
			err: "default/web names no valid address families: ask for IPv4, IPv6 or both"},
		{name: "a third family", claim: pool.Claim{Families: []pool.Family{2}}, reason: pool.InvalidClaim,
			err: "default/web names no valid address families: ask for IPv4, IPv6 or both"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.pools == nil {
				c.pools = []pool.Pool{small}
			}
			a := allocator(t, c.pools...)
			for _, o := range c.others {
				must.Do(t, a.Adopt(o.Claim, addresses(o.addrs)))
			}
			c.claim.Key = web
			got, err := a.Assign(c.claim)
			if fmt.Sprint(got) != fmt.Sprint(addresses(c.want)) {
				t.Errorf("got %v, want %s", got, c.want)
			}
			if held := a.Addresses(web); fmt.Sprint(held) != fmt.Sprint(got) {
				t.Errorf("Assign returned %v, but the claim has %v", got, held)
			}
			var refusal *pool.Refusal
			switch {
			case c.err == "" && err != nil:
				t.Errorf("refused: %v", err)
			case c.err != "" && (!errors.As(err, &refusal) || refusal.Reason != c.reason || err.Error() != c.err):
				t.Errorf("error %v, want %s: %s", err, c.reason, c.err)
			}
			for _, o := range c.others {
				if held := a.Addresses(o.Key); o.Key != web && fmt.Sprint(held) != fmt.Sprint(addresses(o.addrs)) {
					t.Errorf("%s had %s and now has %v", o.Key, o.addrs, held)
				}
			}
			if again, _ := a.Assign(c.claim); fmt.Sprint(again) != fmt.Sprint(got) {
				t.Errorf("assigned again: %v instead of %v", again, got)
			}
		})
	}
}
