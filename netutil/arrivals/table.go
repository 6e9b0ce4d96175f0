package arrivals

import (
	"fmt"
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"

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
	accept := nftables.ChainPolicyAccept
	return []*nftables.Chain{
		{Name: arrivals, Table: table()},
		{
			Name: prerouting, Table: table(), Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookPrerouting,
			Priority: nftables.ChainPriorityRef(*nftables.ChainPriorityRaw + 1), Policy: &accept, // what the fence drops has not arrived
		},
	}
}

// rules are those of the table that counts for addrs. The comment of one that counts is its address.
func rules(addrs []netip.Addr) (out []ruleset.Rule) {
	for _, addr := range addrs {
		exprs := ruleset.Join(ruleset.To(addr), []expr.Any{&expr.Counter{}})
		out = append(out, ruleset.Rule{Chain: arrivals, Comment: addr.String(), Exprs: exprs, Size: len(exprs)})
	}
	begins := ruleset.Join(ruleset.TCP(), ruleset.SYN(), ruleset.Meta(expr.MetaKeyIIFTYPE), ruleset.NotEqual(ruleset.Loopback()...), ruleset.Local(),
		[]expr.Any{&expr.Verdict{Kind: expr.VerdictJump, Chain: arrivals}})
	return append(out, ruleset.Rule{Chain: prerouting, Comment: "from elsewhere", Exprs: begins, Size: len(begins)})
}

// same is whether two rules are the same as far as can be told.
func same(a, b ruleset.Rule) bool {
	return a.Chain == b.Chain && a.Comment == b.Comment && a.Size == b.Size
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
			for _, r := range rules {
				if r.Chain == chain.Name {
					conn.AddRule(&nftables.Rule{Table: table(), Chain: chain, Exprs: r.Exprs, UserData: userdata.AppendString(nil, userdata.TypeComment, r.Comment)})
				}
			}
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
	err := c.socket.Batch(func(conn *nftables.Conn) error { ruleset.Delete(conn, table()); return nil })
	if err != nil {
		return fmt.Errorf("remove the table of nftables %s: %w", table().Name, err)
	}
	return nil
}
