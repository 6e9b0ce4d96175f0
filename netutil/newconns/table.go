package newconns

import (
	"fmt"
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

// chains returns the table's chains that count for addrs. The comment of a counting rule is its address.
func chains(addrs []netip.Addr) []ruleset.Chain {
	counting := ruleset.Chain{Name: arrivals}
	for _, addr := range addrs {
		counting.Rules = append(counting.Rules, ruleset.NewRule(addr.String(), ruleset.To(addr), []expr.Any{&expr.Counter{}}))
	}
	// Behind the fence: packets that it drops are not counted.
	hooked := ruleset.Chain{Name: prerouting, Hook: nftables.ChainHookPrerouting, Priority: *nftables.ChainPriorityRaw + 1, Rules: []ruleset.Rule{
		ruleset.NewRule("from elsewhere", ruleset.TCP(), ruleset.SYN(), ruleset.Meta(expr.MetaKeyIIFTYPE), ruleset.NotEqual(ruleset.Loopback()...),
			ruleset.Meta(expr.MetaKeyIIFNAME), ruleset.NotEqual(ruleset.LinkName(link.TunnelName)...), ruleset.Local(),
			[]expr.Any{&expr.Verdict{Kind: expr.VerdictJump, Chain: arrivals}}),
	}}
	return []ruleset.Chain{counting, hooked}
}

// read returns the table's rules; none if the table is missing or dormant.
func (c *Counter) read() (rules []ruleset.Rule, err error) {
	var inForce bool
	err = c.socket.Do(func(conn *nftables.Conn) error {
		_, inForce, err = ruleset.FindTable(conn, table())
		return err
	})
	if err != nil || !inForce {
		return nil, err
	}
	return c.socket.Rules(table())
}

// replace makes the table anew.
func (c *Counter) replace(chains []ruleset.Chain) error {
	err := c.socket.Batch(func(conn *nftables.Conn) error {
		ruleset.Replace(conn, table())
		ruleset.AddChains(conn, table(), chains)
		return nil
	})
	if err != nil {
		return fmt.Errorf("make nftables table %s: %w", table().Name, err)
	}
	return nil
}

// remove removes the table if it may exist.
func (c *Counter) remove() error {
	if !c.made {
		return nil
	}
	c.made = false
	if err := c.socket.RemoveTables(table()); err != nil {
		return fmt.Errorf("remove nftables table %s: %w", table().Name, err)
	}
	return nil
}
