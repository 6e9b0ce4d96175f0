package ruleset

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/google/nftables"
)

// ChainID names an existing chain of nftables or iptables-nft.
type ChainID struct {
	Family string // ip, ip6, or inet, which is both
	Table  string
	Name   string
}

// Sees reports whether the chain sees packets of the address's family.
func (c ChainID) Sees(addr netip.Addr) bool {
	return c.Family == "inet" || addr.Is4() == (c.Family == "ip")
}

// String returns the name as nft commands take it, such as "ip filter FORWARD".
func (c ChainID) String() string { return c.Family + " " + c.Table + " " + c.Name }

// ForwardDrops returns the chains of this network namespace that drop forwarded packets by policy. Their rules may still
// accept some. It needs CAP_NET_ADMIN.
func ForwardDrops() ([]ChainID, error) {
	var all []*nftables.Chain
	s := Socket{}
	defer s.Close()
	err := s.Do(func(c *nftables.Conn) (err error) { all, err = c.ListChains(); return err })
	if err != nil {
		return nil, fmt.Errorf("list nftables chains: %w", err)
	}
	return forwardDrops(all), nil
}

func forwardDrops(all []*nftables.Chain) []ChainID {
	families := map[nftables.TableFamily]string{ // the bridge family sees no routed packets
		nftables.TableFamilyIPv4: "ip", nftables.TableFamilyIPv6: "ip6", nftables.TableFamilyINet: "inet",
	}
	var out []ChainID
	for _, c := range all {
		family, routed := families[c.Table.Family]
		if routed && c.Hooknum != nil && *c.Hooknum == *nftables.ChainHookForward && c.Policy != nil && *c.Policy == nftables.ChainPolicyDrop {
			out = append(out, ChainID{family, c.Table.Name, c.Name})
		}
	}
	slices.SortFunc(out, func(x, y ChainID) int { return cmp.Compare(x.String(), y.String()) })
	return out
}
