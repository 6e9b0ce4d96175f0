package doctor

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/netutil/ruleset"
)

// passed are the addresses whose connections the kernel passes on to other nodes: those of
// balancers that others reach, and of VIPs with a bridge.
func passed(c *config.Config) []netip.Addr {
	var out []netip.Addr
	for _, b := range c.Balancers {
		for _, p := range places(c, b) {
			if b.Mode == config.Kernel && c.LoadBalancer.Type == config.Internal && !p.Addr().IsLoopback() {
				out = append(out, p.Addr())
			}
		}
	}
	for _, v := range c.VIPs {
		if *v.Bridge {
			out = append(out, v.Addresses...)
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return slices.Compact(out)
}

// examineFilters looks for filters that drop what nobody has told them to accept, as Docker's does. Their
// rules are not judged.
func examineFilters(c *config.Config, f *Facts) []Finding {
	var out []Finding
	for _, chain := range f.ForwardDrops {
		var addrs, cures []string
		for _, addr := range passed(c) {
			if chain.Sees(addr) {
				addrs, cures = append(addrs, addr.String()), append(cures, accept(chain, addr))
			}
		}
		if len(addrs) > 0 {
			out = append(out, warning("node", "forwarding", "the policy of chain "+chain.String()+" is drop",
				"Connections of others to "+strings.Join(addrs, ", ")+" that Herald passes on to another node may be dropped, unless a rule accepts them; those of this node's own clients are not.",
				"nft list chain "+chain.String()+"; if no rule accepts them: "+strings.Join(cures, "; ")))
		}
	}
	return out
}

// accept is the command that has a chain accept what was opened to addr, and the answers.
func accept(chain ruleset.Chain, addr netip.Addr) string {
	family, iptables := "ip", "iptables"
	if addr.Is6() {
		family, iptables = "ip6", "ip6tables"
	}
	if chain == (ruleset.Chain{Family: family, Table: "filter", Name: "FORWARD"}) { // which could not show rules of nft
		return fmt.Sprintf("%s -I FORWARD -m conntrack --ctorigdst %s -j ACCEPT", iptables, addr)
	}
	return fmt.Sprintf("nft insert rule %s ct original %s daddr %s accept", chain, family, addr)
}
