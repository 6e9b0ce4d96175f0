package newconns

import (
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"

	"github.com/herald-vip/herald/netutil/link"
	"github.com/herald-vip/herald/netutil/ruleset"
)

const (
	prerouting = "prerouting"
	arrivals   = "arrivals" // only first packets of connections go through its rule for each address
)

func table() *nftables.Table {
	return &nftables.Table{Name: "herald_arrivals", Family: nftables.TableFamilyINet}
}

// wanted returns the table that counts for addrs. The comment of a counting rule is its address.
func wanted(addrs []netip.Addr) ruleset.Table {
	counting := ruleset.Chain{Name: arrivals}
	for _, addr := range addrs {
		counting.Rules = append(counting.Rules, ruleset.NewRule(addr.String(), ruleset.To(addr), []expr.Any{&expr.Counter{}}))
	}
	// Behind the fence: packets that it drops are not counted.
	hooked := ruleset.Chain{Name: prerouting, Hook: nftables.ChainHookPrerouting, Priority: *nftables.ChainPriorityRaw + 1, Rules: []ruleset.Rule{
		ruleset.NewRule("SYN from another host", ruleset.TCP(), ruleset.SYN(), ruleset.Meta(expr.MetaKeyIIFTYPE), ruleset.NotEqual(ruleset.Loopback()...),
			ruleset.Meta(expr.MetaKeyIIFNAME), ruleset.NotEqual(ruleset.LinkName(link.TunnelName)...), ruleset.Local(),
			[]expr.Any{&expr.Verdict{Kind: expr.VerdictJump, Chain: arrivals}}),
	}}
	return ruleset.Table{Table: table(), Chains: []ruleset.Chain{counting, hooked}}
}

// remove removes the table if it may exist. One that is left changes no packet.
func (c *Counter) remove() {
	if c.made {
		c.made = false
		_ = c.socket.RemoveTables(table())
	}
}
