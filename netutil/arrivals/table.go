package arrivals

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"

	"github.com/herald-vip/herald/netutil/link"
	"github.com/herald-vip/herald/netutil/ruleset"
)

// The first packet of a connection, of which there are few, goes through a rule for each address.
const (
	prerouting = "prerouting"
	arrivals   = "arrivals"
)

func table() *nftables.Table {
	return &nftables.Table{Name: "herald_arrivals", Family: nftables.TableFamilyINet}
}

func chains() []*nftables.Chain {
	return []*nftables.Chain{
		{Name: arrivals, Table: table()},
		// What the fence drops has not arrived.
		ruleset.BaseChain(table(), prerouting, nftables.ChainTypeFilter, nftables.ChainHookPrerouting, *nftables.ChainPriorityRaw+1),
	}
}

// rules are those of the table that counts for addrs. The comment of one that counts is its address.
func rules(addrs []netip.Addr) (out []ruleset.Rule) {
	add := func(chain, comment string, exprs ...[]expr.Any) {
		r := ruleset.NewRule(comment, exprs...)
		r.Chain = chain
		out = append(out, r)
	}
	for _, addr := range addrs {
		add(arrivals, addr.String(), ruleset.To(addr), []expr.Any{&expr.Counter{}})
	}
	add(prerouting, "from elsewhere", ruleset.TCP(), ruleset.SYN(), ruleset.Meta(expr.MetaKeyIIFTYPE), ruleset.NotEqual(ruleset.Loopback()...),
		ruleset.Meta(expr.MetaKeyIIFNAME), ruleset.NotEqual(ruleset.LinkName(link.TunnelName)...), ruleset.Local(), // nor from a member
		[]expr.Any{&expr.Verdict{Kind: expr.VerdictJump, Chain: arrivals}})
	return out
}

// read reads the rules; there are none if the table is not in force.
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
func (c *Counter) replace(rules []ruleset.Rule) error {
	err := c.socket.Batch(func(conn *nftables.Conn) error {
		ruleset.Replace(conn, table())
		for _, chain := range chains() {
			conn.AddChain(chain)
			ruleset.AddRules(conn, chain, slices.DeleteFunc(slices.Clone(rules), func(r ruleset.Rule) bool { return r.Chain != chain.Name }))
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("make the table of nftables %s: %w", table().Name, err)
	}
	return nil
}

// remove takes the table away, if there may be one.
func (c *Counter) remove() error {
	if !c.made {
		return nil
	}
	c.made = false
	if err := c.socket.RemoveTables(table()); err != nil {
		return fmt.Errorf("remove the table of nftables %s: %w", table().Name, err)
	}
	return nil
}
