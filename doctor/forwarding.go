package doctor

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/doctor/facts"
	"github.com/herald-vip/herald/netutil/ruleset"
)

// examineFilters looks for filters of forwarded packets with the policy drop, such as Docker's. It does
// not examine their rules.
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
				"Connections to "+strings.Join(addrs, ", ")+" that Herald passes on from other hosts to another node may be dropped, unless a rule accepts them.",
				"nft list chain "+chain.String()+"; if no rule accepts them: "+strings.Join(cures, "; "))
		}
	}
}

// accept returns the command that makes a chain accept connections to addr and their answers.
func accept(chain ruleset.ChainID, addr netip.Addr) string {
	family, iptables := "ip", "iptables"
	if addr.Is6() {
		family, iptables = "ip6", "ip6tables"
	}
	if chain == (ruleset.ChainID{Family: family, Table: "filter", Name: "FORWARD"}) { // iptables cannot list a chain that has rules of nft
		return fmt.Sprintf("%s -I FORWARD -m conntrack --ctorigdst %s -j ACCEPT", iptables, addr)
	}
	return fmt.Sprintf("nft insert rule %s ct original %s daddr %s accept", chain, family, addr)
}
