package pool_test

import (
	"errors"
	"fmt"
	"math/big"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/herald-vip/herald/service/pool"
	"github.com/herald-vip/herald/testenv/must"
)

func TestAdopt(t *testing.T) {
	for _, c := range []struct {
		name   string
		others []given
		claim  pool.Claim
		addrs  string
		want   string
		strays string
		errs   []string
	}{
		{name: "both families", claim: pool.Claim{Families: dual}, addrs: "fd00::1 10.0.0.1", want: "10.0.0.1 fd00::1"},
		{name: "nothing", claim: pool.Claim{Families: dual}},
		{name: "an address twice", claim: pool.Claim{Families: v4}, addrs: "10.0.0.1 ::ffff:10.0.0.1", want: "10.0.0.1"},
		{name: "outside all pools", claim: pool.Claim{Families: dual}, addrs: "10.0.0.9 fd00::1", want: "10.0.0.9 fd00::1", strays: "10.0.0.9"},
		{name: "avoided by the pool", claim: pool.Claim{Families: v4}, addrs: "10.1.0.0", want: "10.1.0.0", strays: "10.1.0.0"},
		{name: "instead of another", others: []given{owner("web", "10.0.0.1")}, claim: pool.Claim{Families: v4}, addrs: "10.0.0.2", want: "10.0.0.2"},
		{name: "shared", others: []given{sharer("b", "10.0.0.1", 80)}, claim: sharer("", "10.0.0.1", 443).Claim, addrs: "10.0.0.1", want: "10.0.0.1"},
		{name: "beside another address than others", others: []given{sharer("b", "10.0.0.1 fd00::1", 80)},
			claim: sharer("", "10.0.0.1 fd00::2", 443).Claim, addrs: "10.0.0.1 fd00::2", want: "10.0.0.1 fd00::2"},
		{name: "of another claim", others: []given{owner("b", "10.0.0.1")}, claim: pool.Claim{Families: dual}, addrs: "10.0.0.1 fd00::1", want: "fd00::1",
			errs: []string{"AddressConflict: 10.0.0.1 belongs to b: ask for another address, or give both the same sharing key"}},
		{name: "in no pool and of another claim", others: []given{owner("b", "10.0.0.9")}, claim: pool.Claim{Families: v4}, addrs: "10.0.0.9",
			errs: []string{"AddressConflict: 10.0.0.9 belongs to b: ask for another address, or give both the same sharing key"}},
		{name: "with a port in use", others: []given{sharer("b", "10.0.0.1 fd00::1", 80)}, claim: sharer("", "10.0.0.1", 80).Claim, addrs: "10.0.0.1 fd00::1",
			errs: []string{"AddressConflict: port 80/TCP of 10.0.0.1 belongs to b: use another port, or ask for another address",
				"AddressConflict: port 80/TCP of fd00::1 belongs to b: use another port, or ask for another address"}},
		{name: "two of a family", claim: pool.Claim{Families: v4}, addrs: "10.0.0.1 10.0.0.2", want: "10.0.0.1",
			errs: []string{"InvalidClaim: web has a second IPv4 address, 10.0.0.2, beside 10.0.0.1: remove one of them"}},
		{name: "with a zone", claim: pool.Claim{Families: v6}, addrs: "fe80::1%eth0",
			errs: []string{"InvalidClaim: fe80::1%eth0 cannot be adopted: remove it, as no Service can have this address"}},
		{name: "without families", addrs: "10.0.0.1",
			errs: []string{"InvalidClaim: web names no valid address families: ask for IPv4, IPv6 or both"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			buggy := newPool("b", "10.1.0.0/24")
			buggy.AvoidBuggyIPs = true
			a := allocator(t, newPool("a", "10.0.0.1-10.0.0.2", "fd00::1-fd00::2"), buggy)
			for _, o := range c.others {
				must.Do(t, a.Adopt(o.Claim, addresses(o.addrs)))
			}
			c.claim.Key = "web"
			err := a.Adopt(c.claim, addresses(c.addrs))
			if got := refusals(err); fmt.Sprint(got) != fmt.Sprint(c.errs) {
				t.Errorf("errors %q, want %q", got, c.errs)
			}
			if got := a.Addresses("web"); fmt.Sprint(got) != fmt.Sprint(addresses(c.want)) {
				t.Errorf("has %v, want %s", got, c.want)
			}
			if strays := strays(a, "web"); fmt.Sprint(strays) != fmt.Sprint(addresses(c.strays)) {
				t.Errorf("strays %v, want %s", strays, c.strays)
			}
		})
	}
}

// strays returns the addresses of a claim that are in no pool.
func strays(a *pool.Allocator, key string) []netip.Addr {
	return slices.DeleteFunc(a.Addresses(key), func(addr netip.Addr) bool {
		_, ok := a.PoolOf(addr)
		return ok
	})
}

// refusals returns the reasons and messages of an error.
func refusals(err error) []string {
	var all []string
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, err := range joined.Unwrap() {
			all = append(all, refusals(err)...)
		}
	} else if r := (*pool.Refusal)(nil); errors.As(err, &r) {
		all = append(all, fmt.Sprintf("%s: %s", r.Reason, err))
	}
	return all
}

// TestNoKey uses claims without a key.
func TestNoKey(t *testing.T) {
	a := allocator(t, newPool("a", "10.0.0.0/24"))
	const want = "[InvalidClaim: the claim has no key: give it the namespace and name of its Service]"
	if addrs, err := a.Assign(pool.Claim{Families: v4}); addrs != nil || fmt.Sprint(refusals(err)) != want {
		t.Errorf("Assign = %v, %v", addrs, err)
	}
	if err := a.Adopt(pool.Claim{Families: v4}, addresses("10.0.0.1")); fmt.Sprint(refusals(err)) != want {
		t.Errorf("Adopt = %v", err)
	}
	if addrs := a.Release("absent"); addrs != nil {
		t.Errorf("Release = %v", addrs)
	}
}

// TestReplace edits pools while claims hold addresses.
func TestReplace(t *testing.T) {
	a := allocator(t, newPool("a", "10.0.0.0/29", "fd00::/125"))
	claim := func(key, share string, port uint16) pool.Claim {
		return pool.Claim{Key: key, Families: dual, Share: share, Ports: tcp(port)}
	}
	assign := func(c pool.Claim, want string) {
		t.Helper()
		if got, err := a.Assign(c); err != nil || fmt.Sprint(got) != fmt.Sprint(addresses(want)) {
			t.Errorf("Assign(%s) = %v, %v, want %s", c.Key, got, err, want)
		}
	}
	assign(claim("one", "", 80), "10.0.0.0 fd00::")
	assign(claim("two", "x", 80), "10.0.0.1 fd00::1")
	assign(claim("three", "x", 81), "10.0.0.1 fd00::1")
	assign(claim("four", "", 80), "10.0.0.2 fd00::2")

	replace := func(want string, pools ...pool.Pool) {
		t.Helper()
		must.Do(t, a.Replace(pools))
		var got []string
		for _, key := range []string{"one", "two", "three", "four", "five", "six"} {
			for _, addr := range strays(a, key) {
				got = append(got, key+" "+addr.String())
			}
		}
		if strings.Join(got, ", ") != want {
			t.Errorf("strays %v, want %s", got, want)
		}
	}
	replace("two 10.0.0.1, three 10.0.0.1, four 10.0.0.2", newPool("a", "10.0.0.0/32", "fd00::/125"), newPool("b", "10.0.0.3/32"))
	if u := a.Usage("a", pool.IPv4); !same(u, 1, 1) {
		t.Errorf("usage %+v", u)
	}
	assign(claim("two", "x", 80), "10.0.0.1 fd00::1")   // stays
	assign(claim("five", "", 80), "10.0.0.3 fd00::3")   // not one outside the pools
	assign(claim("four", "x", 82), "10.0.0.2 fd00::2")  // shares from now on
	assign(claim("three", "x", 83), "10.0.0.1 fd00::1") // not with four: it has an address
	if had := a.Release("four"); fmt.Sprint(had) != "[10.0.0.2 fd00::2]" {
		t.Errorf("released %v", had)
	}
	replace("", newPool("c", "10.0.0.0/30"), newPool("d", "fd00::/64"))
	for addr, want := range map[string]string{"10.0.0.1": "c", "10.0.0.4": "", "fd00::2": "d", "9.9.9.9": ""} {
		if name, ok := a.PoolOf(netip.MustParseAddr(addr)); name != want || ok != (want != "") {
			t.Errorf("%s is in %q, want %q", addr, name, want)
		}
	}
	assign(claim("six", "", 80), "10.0.0.2 fd00::2")
	replace("one fd00::, two fd00::1, three fd00::1, five fd00::3, six fd00::2", newPool("c", "10.0.0.0/30"))

	// Invalid pools change nothing.
	for _, c := range []struct {
		pools []pool.Pool
		want  string
	}{
		{[]pool.Pool{newPool("a", "10.0.0.0/24"), newPool("b", "fd00::/64", "10.0.0.250-10.0.1.5")},
			`pool "a" (10.0.0.0/24) and pool "b" (10.0.0.250-10.0.1.5) overlap: remove the common addresses from one of them`},
		{[]pool.Pool{newPool("a", "10.0.0.0/24"), newPool("a", "10.0.1.0/24")}, `two pools are called "a": rename one of them`},
		{[]pool.Pool{{Name: "a", Ranges: []pool.Range{{}}}}, `pool "a": invalid IP-invalid IP: a range needs a first and a last address`},
	} {
		err := a.Replace(c.pools)
		if err == nil || err.Error() != c.want {
			t.Errorf("Replace = %v, want %s", err, c.want)
		}
		if name, _ := a.PoolOf(netip.MustParseAddr("10.0.0.1")); name != "c" {
			t.Errorf("pools were replaced despite the error: %v", err)
		}
	}
	if u := a.Usage("a", pool.IPv4); !same(u, 0, 0) {
		t.Errorf("usage of a deleted pool: %+v", u)
	}
}

// TestPoolsAreCopied changes pools and claims after the call.
func TestPoolsAreCopied(t *testing.T) {
	p := newPool("a", "10.0.0.0/24")
	a := allocator(t, p)
	p.Ranges[0] = newPool("", "10.0.1.0/24").Ranges[0]
	c := pool.Claim{Key: "web", Families: []pool.Family{pool.IPv4}, Share: "x", Ports: tcp(80)}
	if addrs, err := a.Assign(c); err != nil || fmt.Sprint(addrs) != "[10.0.0.0]" {
		t.Errorf("got %v, %v", addrs, err)
	}
	c.Ports[0].Number, c.Families[0] = 81, pool.IPv6
	other := pool.Claim{Key: "b", Families: v4, Share: "x", Ports: tcp(81)}
	if addrs, err := a.Assign(other); err != nil || fmt.Sprint(addrs) != "[10.0.0.0]" {
		t.Errorf("got %v, %v", addrs, err)
	}
}

func TestOverlaps(t *testing.T) {
	for _, c := range []struct {
		pools []pool.Pool
		want  []string
	}{
		{nil, nil},
		{[]pool.Pool{newPool("a", "10.0.0.0/24", "10.0.0.0/25"), newPool("b", "10.0.1.0/24", "fd00::/64")}, nil},
		{[]pool.Pool{newPool("b", "10.0.0.0/24"), newPool("a", "10.0.0.255-10.0.1.0")}, []string{"a (10.0.0.255-10.0.1.0) b (10.0.0.0/24)"}},
		{[]pool.Pool{newPool("a", "10.0.0.0/8"), newPool("b", "10.1.0.0/16", "10.2.0.0/16"), newPool("c", "10.2.3.4/32"), newPool("d", "11.0.0.0/8")},
			[]string{"a (10.0.0.0/8) b (10.1.0.0/16)", "a (10.0.0.0/8) c (10.2.3.4/32)", "b (10.2.0.0/16) c (10.2.3.4/32)"}},
		{[]pool.Pool{newPool("a", "fd00::/64"), newPool("b", "fd00::/64")}, []string{"a (fd00::/64) b (fd00::/64)"}},
	} {
		var got []string
		for _, o := range pool.Overlaps(c.pools) {
			got = append(got, fmt.Sprintf("%s (%s) %s (%s)", o.Pools[0], o.Ranges[0], o.Pools[1], o.Ranges[1]))
		}
		if fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("overlaps %q, want %q", got, c.want)
		}
	}
}

// same reports whether u has this capacity and this usage.
func same(u pool.Usage, capacity, used int64) bool {
	return u.Capacity.Cmp(big.NewInt(capacity)) == 0 && u.Used == used
}

func TestUsage(t *testing.T) {
	avoiding := func(p pool.Pool) pool.Pool {
		p.AvoidBuggyIPs = true
		return p
	}
	for _, c := range []struct {
		pool pool.Pool
		want [2]string
	}{
		{newPool("a"), [2]string{"0", "0"}},
		{newPool("a", "10.0.0.0/8"), [2]string{"16777216", "0"}},
		{avoiding(newPool("a", "10.0.0.0/8")), [2]string{"16646144", "0"}},
		{avoiding(newPool("a", "10.0.0.255-10.0.1.0")), [2]string{"0", "0"}},
		{avoiding(newPool("a", "10.0.0.254-10.0.1.1", "fd00::/120")), [2]string{"2", "256"}},
		{avoiding(newPool("a", "255.255.255.0-255.255.255.254")), [2]string{"254", "0"}},
		{newPool("a", "10.0.0.0/24", "10.0.0.128-10.0.1.9"), [2]string{"266", "0"}},
		{newPool("a", "10.0.0.0/24", "10.0.0.16/28"), [2]string{"256", "0"}},
		{newPool("a", "fd00::/65"), [2]string{"0", "9223372036854775808"}},
		{newPool("a", "fd00::/65", "fd01::/65"), [2]string{"0", "18446744073709551616"}},
		{newPool("a", "fd00::/64"), [2]string{"0", "18446744073709551616"}},
		{newPool("a", "fd00::/9"), [2]string{"0", "664613997892457936451903530140172288"}},
	} {
		a := allocator(t, c.pool)
		for f, want := range c.want {
			if got := a.Usage("a", pool.Family(f)); got.Capacity.String() != want || got.Used != 0 {
				t.Errorf("%v: %s %+v, want %s", c.pool.Ranges, pool.Family(f), got, want)
			}
		}
	}
}

// TestGapsClose takes every address and returns them in random order: the free
// addresses form one range again.
func TestGapsClose(t *testing.T) {
	p := newPool("a", "10.0.0.0/22")
	p.AvoidBuggyIPs = true
	a := allocator(t, p)
	const all = 4 * 254
	key := func(i int) string { return fmt.Sprint(i) }
	for i := range all {
		if _, err := a.Assign(pool.Claim{Key: key(i), Families: v4}); err != nil {
			t.Fatal(err)
		}
	}
	if u, n := a.Usage("a", pool.IPv4), a.Fragments("a"); !same(u, all, all) || n != 0 {
		t.Errorf("with every address in use: %+v and %d ranges free", u, n)
	}
	for _, i := range rand.New(rand.NewPCG(1, 2)).Perm(all) {
		a.Release(key(i))
	}
	if u, n := a.Usage("a", pool.IPv4), a.Fragments("a"); !same(u, all, 0) || n != 1 {
		t.Errorf("with no address in use: %+v and %d ranges free", u, n)
	}
}
