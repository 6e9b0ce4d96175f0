package ruleset

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/google/nftables"
)

// Chain is a chain of nftables, or of iptables where that is made of nftables.
type Chain struct {
	Family string // ip, ip6, or inet, which is both
	Table  string
	Name   string
}

// Sees reports whether packets of the address's family come to the chain.
func (c Chain) Sees(addr netip.Addr) bool {
	return c.Family == "inet" || addr.Is4() == (c.Family == "ip")
}

// String names the chain as commands of nft do, such as "ip filter FORWARD".
func (c Chain) String() string { return c.Family + " " + c.Table + " " + c.Name }

// ForwardDrops returns the chains of this network namespace whose policy is to drop forwarded packets,
// whether or not a rule of theirs accepts some. It needs CAP_NET_ADMIN.
func ForwardDrops() ([]Chain, error) {
	var all []*nftables.Chain
	s := Socket{}
	defer s.Close()
	err := s.Do(func(c *nftables.Conn) (err error) { all, err = c.ListChains(); return err })
	if err != nil {
		return nil, fmt.Errorf("list chains of nftables: %w", err)
	}
	return forwardDrops(all), nil
}

func forwardDrops(all []*nftables.Chain) []Chain {
	families := map[nftables.TableFamily]string{ // a bridge's packets are others
		nftables.TableFamilyIPv4: "ip", nftables.TableFamilyIPv6: "ip6", nftables.TableFamilyINet: "inet",
	}
	var out []Chain
	for _, c := range all {
		family, routed := families[c.Table.Family]
		if routed && c.Hooknum != nil && *c.Hooknum == *nftables.ChainHookForward && c.Policy != nil && *c.Policy == nftables.ChainPolicyDrop {
			out = append(out, Chain{family, c.Table.Name, c.Name})
		}
	}
	slices.SortFunc(out, func(x, y Chain) int { return cmp.Compare(x.String(), y.String()) })
	return out
}
