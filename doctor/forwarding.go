package doctor

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/doctor/facts"
	"github.com/herald-vip/herald/netutil/ruleset"
)

// examineFilters looks for filters that drop what nobody has told them to accept, as Docker's does. Their
// rules are not examined.
func examineFilters(c *config.Config, f *facts.Facts, out *findings) {
	for _, chain := range f.ForwardDrops {
		var addrs, cures []string
		for _, addr := range facts.Passed(c) {
			if chain.Sees(addr) {
				addrs, cures = append(addrs, addr.String()), append(cures, accept(chain, addr))
			}
		}
		if len(addrs) > 0 {
			out.warning("forwarding", "the policy of chain "+chain.String()+" is drop",
				"Connections of others to "+strings.Join(addrs, ", ")+" that Herald passes on to another node may be dropped, unless a rule accepts them; those of this node's own clients are not.",
				"nft list chain "+chain.String()+"; if no rule accepts them: "+strings.Join(cures, "; "))
		}
	}
}

// accept is the command that has a chain accept what was opened to addr, and the answers.
func accept(chain ruleset.ChainID, addr netip.Addr) string {
	family, iptables := "ip", "iptables"
	if addr.Is6() {
		family, iptables = "ip6", "ip6tables"
	}
	if chain == (ruleset.ChainID{Family: family, Table: "filter", Name: "FORWARD"}) { // which could not show rules of nft
		return fmt.Sprintf("%s -I FORWARD -m conntrack --ctorigdst %s -j ACCEPT", iptables, addr)
	}
	return fmt.Sprintf("nft insert rule %s ct original %s daddr %s accept", chain, family, addr)
}
