package announce

import (
	"fmt"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/bgp"
	"github.com/herald-vip/herald/config"
)

// Attributes are those of a pool or a BGPPeer in the terms of package bgp.
func Attributes(a v1alpha1.Attributes) (bgp.Attributes, error) {
	out := bgp.Attributes{Prepend: int(a.Prepend)}
	for _, s := range a.Communities {
		v, err := config.ParseCommunity(string(s))
		if err != nil {
			return bgp.Attributes{}, fmt.Errorf("community %q: %w", s, err)
		}
		out.Communities = append(out.Communities, bgp.Community(v))
	}
	for _, s := range a.LargeCommunities {
		v, err := config.ParseLargeCommunity(string(s))
		if err != nil {
			return bgp.Attributes{}, fmt.Errorf("large community %q: %w", s, err)
		}
		out.LargeCommunities = append(out.LargeCommunities, bgp.LargeCommunity{Global: v[0], Local1: v[1], Local2: v[2]})
	}
	for _, number := range []struct {
		name string
		from *int64
		to   **uint32
	}{{"med", a.MED, &out.MED}, {"localPref", a.LocalPref, &out.LocalPref}} {
		if number.from == nil {
			continue
		}
		v := uint32(*number.from)
		if int64(v) != *number.from {
			return bgp.Attributes{}, fmt.Errorf("%s %d: want 0 to 4294967295", number.name, *number.from)
		}
		*number.to = &v
	}
	return out, nil
}
