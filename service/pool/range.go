package pool

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/big"
	"net/netip"
	"slices"
	"strings"
)

// Range is the addresses of one family from First to Last, both included.
type Range struct{ First, Last netip.Addr }

// ParseRange parses a network such as 10.1.0.0/24 or fd00::/120, or a range such as 10.2.0.10-10.2.0.50.
func ParseRange(s string) (Range, error) {
	first, last, found := strings.Cut(s, "-")
	if !found {
		return parseNetwork(s)
	}
	start, err := netip.ParseAddr(strings.TrimSpace(first))
	end, errEnd := netip.ParseAddr(strings.TrimSpace(last))
	if err != nil || errEnd != nil {
		return Range{}, fmt.Errorf("%q is not a range of addresses: write it like 10.2.0.10-10.2.0.50", s)
	}
	return checked(s, Range{start, end})
}

// checked returns r, parsed from s, or an error if it is no range for Services.
func checked(s string, r Range) (Range, error) {
	if err := r.check(); err != nil {
		return Range{}, fmt.Errorf("%q: %w", s, err)
	}
	return r, nil
}

func parseNetwork(s string) (Range, error) {
	p, err := netip.ParsePrefix(strings.TrimSpace(s))
	if err != nil {
		if addr, err := netip.ParseAddr(strings.TrimSpace(s)); err == nil && addr.Zone() == "" {
			return Range{}, fmt.Errorf("%q is an address without a length: write %s/%d for the single address", s, addr, addr.BitLen())
		}
		return Range{}, fmt.Errorf("%q is not a network: write it like 10.1.0.0/24 or fd00::/120", s)
	}
	if p != p.Masked() {
		return Range{}, fmt.Errorf("%q has bits set beyond its length: write %s for the network or %s/%d for the address",
			s, p.Masked(), p.Addr(), p.Addr().BitLen())
	}
	return checked(s, Range{First: p.Addr(), Last: lastOf(p)})
}

// check returns an error if r is no range of addresses that a Service can have.
func (r Range) check() error {
	switch {
	case !r.First.IsValid() || !r.Last.IsValid():
		return errors.New("a range needs a first and a last address")
	case r.First.Zone() != "" || r.Last.Zone() != "":
		return errors.New("an address with a zone cannot be announced: leave the zone out")
	case r.First.Is4In6() || r.Last.Is4In6():
		return errors.New("an IPv4 address mapped into IPv6 cannot be announced: write it as IPv4")
	case r.First.BitLen() != r.Last.BitLen():
		return errors.New("the addresses are of different families: write a range for each")
	case r.Last.Less(r.First):
		return errors.New("the last address is before the first: exchange them")
	}
	for _, s := range reserved() {
		if r.Overlaps(s.Range) {
			return fmt.Errorf("it contains %s addresses (%s), which cannot be announced: leave them out", s.kind, s.Range)
		}
	}
	return nil
}

type reservation struct {
	Range
	kind string
}

// reserved returns the ranges that no Service can have.
func reserved() []reservation {
	reserve := func(kind, network string) reservation {
		p := netip.MustParsePrefix(network)
		return reservation{Range{p.Addr(), lastOf(p)}, kind}
	}
	return []reservation{
		reserve("unspecified", "0.0.0.0/32"), reserve("loopback", "127.0.0.0/8"), reserve("link-local", "169.254.0.0/16"),
		reserve("multicast", "224.0.0.0/4"), reserve("broadcast", "255.255.255.255/32"),
		reserve("unspecified", "::/128"), reserve("loopback", "::1/128"), reserve("IPv4-mapped", "::ffff:0:0/96"),
		reserve("link-local", "fe80::/10"), reserve("multicast", "ff00::/8"),
	}
}

// String is r as a network if it is one, and else its first and last address.
func (r Range) String() string {
	for length := range r.First.BitLen() + 1 {
		if p := netip.PrefixFrom(r.First, length); p.IsValid() && p == p.Masked() && lastOf(p) == r.Last {
			return p.String()
		}
	}
	return r.First.String() + "-" + r.Last.String()
}

func (r Range) family() Family { return FamilyOf(r.First) }

// Contains reports whether addr is in r.
func (r Range) Contains(addr netip.Addr) bool {
	return r.First.BitLen() == addr.BitLen() && !addr.Less(r.First) && !r.Last.Less(addr)
}

// Overlaps reports whether r and o have an address in common.
func (r Range) Overlaps(o Range) bool { return r.Contains(o.First) || o.Contains(r.First) }

// size counts the addresses of r.
func (r Range) size() *big.Int {
	first, last := new(big.Int).SetBytes(r.First.AsSlice()), new(big.Int).SetBytes(r.Last.AsSlice())
	return last.Add(last.Sub(last, first), big.NewInt(1))
}

// buggies counts the [buggy] addresses of r.
func (r Range) buggies() int64 {
	if r.family() != IPv4 {
		return 0
	}
	below := func(n int64) int64 { return (n+255)/256 + n/256 } // among the n lowest IPv4 addresses
	first, last := r.First.As4(), r.Last.As4()
	return below(int64(binary.BigEndian.Uint32(last[:]))+1) - below(int64(binary.BigEndian.Uint32(first[:])))
}

// buggy reports whether addr ends in .0 or .255: some devices take it for a network or a broadcast address.
func buggy(addr netip.Addr) bool {
	if !addr.Is4() {
		return false
	}
	last := addr.As4()[3]
	return last == 0 || last == 255
}

func lastOf(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for i := p.Bits(); i < 8*len(b); i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	last, _ := netip.AddrFromSlice(b)
	return last
}

// merge returns the same addresses as sorted ranges with gaps between them.
func merge(ranges []Range) []Range {
	var merged []Range
	for _, r := range slices.SortedFunc(slices.Values(ranges), func(a, b Range) int { return a.First.Compare(b.First) }) {
		if n := len(merged); n > 0 && (merged[n-1].Contains(r.First) || merged[n-1].Last.Next() == r.First) {
			if merged[n-1].Last.Less(r.Last) {
				merged[n-1].Last = r.Last
			}
			continue
		}
		merged = append(merged, r)
	}
	return merged
}
