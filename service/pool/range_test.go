package pool_test

import (
	"testing"

	"github.com/herald-vip/herald/service/pool"
)

func TestParseRange(t *testing.T) {
	const spec, network = `: write it like 10.2.0.10-10.2.0.50`, `: write it like 10.1.0.0/24 or fd00::/120`
	for _, c := range []struct{ in, want, err string }{
		{in: "10.1.0.0/24", want: "10.1.0.0/24"},
		{in: " 10.1.0.0/24 ", want: "10.1.0.0/24"},
		{in: "fd00::/120", want: "fd00::/120"},
		{in: "10.0.0.0/8", want: "10.0.0.0/8"},
		{in: "10.0.0.7/32", want: "10.0.0.7/32"},
		{in: "10.2.0.10-10.2.0.50", want: "10.2.0.10-10.2.0.50"},
		{in: "10.2.0.10 - 10.2.0.50", want: "10.2.0.10-10.2.0.50"},
		{in: "10.2.0.0-10.2.1.255", want: "10.2.0.0/23"},
		{in: "10.2.0.1-10.2.0.1", want: "10.2.0.1/32"},
		{in: "fd00::1-fd00::1:0", want: "fd00::1-fd00::1:0"},
		{in: "240.0.0.0-255.255.255.254", want: "240.0.0.0-255.255.255.254"},

		{in: "", err: `"" is not a network` + network},
		{in: "10.1.0.0/33", err: `"10.1.0.0/33" is not a network` + network},
		{in: "ten/8", err: `"ten/8" is not a network` + network},
		{in: "-", err: `"-" is not a range of addresses` + spec},
		{in: "10.1.0.0-", err: `"10.1.0.0-" is not a range of addresses` + spec},
		{in: "10.1.0.0/24-10.2.0.0/24", err: `"10.1.0.0/24-10.2.0.0/24" is not a range of addresses` + spec},
		{in: "10.1.0.1-10.1.0.2-10.1.0.3", err: `"10.1.0.1-10.1.0.2-10.1.0.3" is not a range of addresses` + spec},
		{in: "10.1.0.5", err: `"10.1.0.5" is an address without a length: write 10.1.0.5/32 for the single address`},
		{in: "fd00::5", err: `"fd00::5" is an address without a length: write fd00::5/128 for the single address`},
		{in: "10.1.0.5/24", err: `"10.1.0.5/24" has bits set beyond its length: write 10.1.0.0/24 for the network or 10.1.0.5/32 for the address`},
		{in: "10.1.0.5-10.1.0.4", err: `"10.1.0.5-10.1.0.4": the last address is before the first: exchange them`},
		{in: "10.1.0.5-fd00::1", err: `"10.1.0.5-fd00::1": the addresses are of different families: write a range for each`},
		{in: "fe80::1%a-fe80::2%a", err: `"fe80::1%a-fe80::2%a": an address with a zone cannot be announced: leave the zone out`},
		{in: "::ffff:10.0.0.1-::ffff:10.0.0.2", err: `"::ffff:10.0.0.1-::ffff:10.0.0.2": an IPv4 address mapped into IPv6 cannot be announced: write it as IPv4`},
		{in: "0.0.0.0/0", err: `"0.0.0.0/0": it contains unspecified addresses (0.0.0.0/32), which cannot be announced: leave them out`},
		{in: "126.0.0.0-128.0.0.0", err: `"126.0.0.0-128.0.0.0": it contains loopback addresses (127.0.0.0/8), which cannot be announced: leave them out`},
		{in: "169.254.0.0/24", err: `"169.254.0.0/24": it contains link-local addresses (169.254.0.0/16), which cannot be announced: leave them out`},
		{in: "224.0.0.0/4", err: `"224.0.0.0/4": it contains multicast addresses (224.0.0.0/4), which cannot be announced: leave them out`},
		{in: "255.255.255.0/24", err: `"255.255.255.0/24": it contains broadcast addresses (255.255.255.255/32), which cannot be announced: leave them out`},
		{in: "::/64", err: `"::/64": it contains unspecified addresses (::/128), which cannot be announced: leave them out`},
		{in: "::1/128", err: `"::1/128": it contains loopback addresses (::1/128), which cannot be announced: leave them out`},
		{in: "::2-::1:0:0:0", err: `"::2-::1:0:0:0": it contains IPv4-mapped addresses (::ffff:0.0.0.0/96), which cannot be announced: leave them out`},
		{in: "fe80::/64", err: `"fe80::/64": it contains link-local addresses (fe80::/10), which cannot be announced: leave them out`},
		{in: "ff00::/8", err: `"ff00::/8": it contains multicast addresses (ff00::/8), which cannot be announced: leave them out`},
	} {
		r, err := pool.ParseRange(c.in)
		switch {
		case c.err == "" && (err != nil || r.String() != c.want):
			t.Errorf("%q: %s, %v, want %s", c.in, r, err, c.want)
		case c.err != "" && (err == nil || err.Error() != c.err):
			t.Errorf("%q: %s, error %v, want %s", c.in, r, err, c.err)
		case err != nil && r != (pool.Range{}):
			t.Errorf("%q: %s beside an error", c.in, r)
		}
	}
}

// FuzzParseRange parses the output of String again and assigns addresses of the range.
func FuzzParseRange(f *testing.F) {
	for _, s := range []string{"10.1.0.0/24", "10.2.0.10-10.2.0.50", "fd00::/120", "::2-::ffff:0:0", "10.0.0.5/24", "fe80::1%a-fe80::2", "1.2.3.4 -\t1.2.3.4", "255.255.255.254/32"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r, err := pool.ParseRange(s)
		if err != nil {
			return
		}
		again, err := pool.ParseRange(r.String())
		if err != nil || again != r {
			t.Fatalf("%q is %s, which is %s, %v", s, r, again, err)
		}
		for _, avoid := range []bool{false, true} {
			a := pool.New()
			if err := a.Replace([]pool.Pool{{Name: "a", AutoAssign: true, AvoidBuggyIPs: avoid, Ranges: []pool.Range{r}}}); err != nil {
				t.Fatalf("%q: %v", s, err)
			}
			c := pool.Claim{Key: "web", Families: []pool.Family{pool.FamilyOf(r.First)}}
			addrs, err := a.Assign(c)
			if capacity := a.Usage("a", c.Families[0]).Capacity; (err == nil) != (capacity.Sign() > 0) {
				t.Fatalf("%q: capacity %d, but %v, %v", s, capacity, addrs, err)
			}
			for _, addr := range addrs {
				if addr.Less(r.First) || r.Last.Less(addr) {
					t.Fatalf("%q: %s is outside", s, addr)
				}
			}
		}
	})
}
