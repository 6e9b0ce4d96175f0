// Package community is the communities that a BGP route carries: RFC 1997's and
// the large ones of RFC 8092.
package community

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/herald-vip/herald/internal/text"
)

// Community is an RFC 1997 community.
type Community uint32

// GracefulShutdown asks the receiver to prefer any other path (RFC 8326).
const GracefulShutdown Community = 0xffff0000

// Large is an RFC 8092 large community.
type Large struct{ Global, Local1, Local2 uint32 }

// Reserved is the global number of large communities that [ParseLarge] refuses (RFC 8092
// section 5), so that package bgp can mark routes with it.
const Reserved = math.MaxUint32

// String is the "asn:value" form.
func (c Community) String() string { return fmt.Sprintf("%d:%d", c>>16, c&0xffff) }

// String is the "global:local1:local2" form.
func (l Large) String() string { return fmt.Sprintf("%d:%d:%d", l.Global, l.Local1, l.Local2) }

// Compare orders large communities.
func (l Large) Compare(o Large) int {
	return cmp.Or(cmp.Compare(l.Global, o.Global), cmp.Compare(l.Local1, o.Local1), cmp.Compare(l.Local2, o.Local2))
}

// Parse reads a community: two numbers of 16 bits as in 65000:100, or a well-known name.
func Parse(s string) (Community, error) {
	wellKnown := map[string]Community{
		"graceful-shutdown":   GracefulShutdown,
		"blackhole":           0xffff029a, // RFC 7999
		"no-export":           0xffffff01, // RFC 1997
		"no-advertise":        0xffffff02, // RFC 1997
		"no-export-subconfed": 0xffffff03, // RFC 1997
		"no-peer":             0xffffff04, // RFC 3765
	}
	if c, ok := wellKnown[s]; ok {
		return c, nil
	}
	n, ok := numbers(s, 2, 16)
	if !ok {
		return 0, fmt.Errorf("want a community such as 65000:100 or no-export, got %s", quote(s))
	}
	return Community(n[0]<<16 | n[1]), nil
}

// ParseLarge reads a large community: three numbers of 32 bits as in 64512:1:2.
func ParseLarge(s string) (Large, error) {
	n, ok := numbers(s, 3, 32)
	if !ok {
		return Large{}, fmt.Errorf("want a large community such as 64512:1:2, got %s", quote(s))
	}
	if n[0] == Reserved {
		return Large{}, fmt.Errorf("the number %d is reserved, got %s", n[0], quote(s))
	}
	return Large{n[0], n[1], n[2]}, nil
}

// ParseLists reads the communities and the large communities of a route.
func ParseLists[C, L ~string](communities []C, large []L) (all []Community, allLarge []Large, err error) {
	for _, s := range communities {
		c, err := Parse(string(s))
		if err != nil {
			return nil, nil, fmt.Errorf("community %q: %w", s, err)
		}
		all = append(all, c)
	}
	for _, s := range large {
		l, err := ParseLarge(string(s))
		if err != nil {
			return nil, nil, fmt.Errorf("large community %q: %w", s, err)
		}
		allLarge = append(allLarge, l)
	}
	return all, allLarge, nil
}

// numbers reads count numbers of the given size, joined by colons.
func numbers(s string, count, bits int) ([]uint32, bool) {
	parts := strings.Split(s, ":")
	if len(parts) != count {
		return nil, false
	}
	n := make([]uint32, count)
	for i, part := range parts {
		v, err := strconv.ParseUint(part, 10, bits)
		if err != nil {
			return nil, false
		}
		n[i] = uint32(v)
	}
	return n, true
}

func quote(s string) string {
	const limit = 64
	return strconv.Quote(text.Cut(s, limit))
}
