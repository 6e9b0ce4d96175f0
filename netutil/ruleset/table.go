package ruleset

import (
	"fmt"
	"slices"
	"time"

	"github.com/google/nftables"
)

// Table is what an owner wants a table to contain.
type Table struct {
	*nftables.Table
	Sets     []Set
	Counters []string
	Chains   []Chain
}

// Set is a set or map with the wanted elements.
type Set struct {
	*nftables.Set
	Elements []nftables.SetElement
}

// Chain is a chain with its rules. With a hook it is a base chain of type filter, which accepts by default.
type Chain struct {
	Name     string
	Hook     *nftables.ChainHook    // nil: packets come only by jumps
	Priority nftables.ChainPriority // among the base chains of the hook
	Rules    []Rule                 // may jump to any chain of the table
}

// Make makes tables anew, in one batch.
func (s *Socket) Make(tables ...Table) error {
	return s.Batch(func(c *nftables.Conn) error {
		for _, t := range tables {
			if err := t.queue(c); err != nil {
				return err
			}
		}
		return nil
	})
}

// queue queues the table in place of any existing one.
func (t Table) queue(c *nftables.Conn) error {
	Replace(c, t.Table)
	for i, s := range t.Sets {
		s.ID = uint32(i + 1)
		if err := c.AddSet(s.Set, nil); err != nil {
			return err
		}
	}
	for _, name := range t.Counters {
		c.AddObj(&nftables.CounterObj{Table: t.Table, Name: name})
	}
	for _, ch := range t.Chains {
		add := &nftables.Chain{Table: t.Table, Name: ch.Name}
		if ch.Hook != nil {
			add = BaseChain(t.Table, ch.Name, nftables.ChainTypeFilter, ch.Hook, ch.Priority)
		}
		c.AddChain(add)
	}
	for _, ch := range t.Chains {
		AddRules(c, &nftables.Chain{Table: t.Table, Name: ch.Name}, ch.Rules)
	}
	for _, s := range t.Sets {
		if err := AddElements(c, s.Set, s.Elements); err != nil {
			return err
		}
	}
	return nil
}

// Intact reports whether a table is in force and its chains have the wanted hooks and exactly the wanted rules, as [Rule.Same]
// compares them. Sets that only the owner changes must have exactly the wanted elements. Intact returns the rules of an intact
// table.
func (s *Socket) Intact(want Table) (rules []Rule, ok bool, err error) {
	err = s.Do(func(c *nftables.Conn) error {
		_, inForce, err := FindTable(c, want.Table)
		if err != nil || !inForce {
			return err
		}
		chains, err := c.ListChainsOfTableFamily(want.Family)
		if err != nil {
			return fmt.Errorf("list chains: %w", err)
		}
		all, err := s.Rules(want.Table)
		if err != nil {
			return err
		}
		for _, ch := range want.Chains {
			found := slices.DeleteFunc(slices.Clone(all), func(r Rule) bool { return r.Chain != ch.Name })
			hooked := slices.ContainsFunc(chains, func(c *nftables.Chain) bool { return c.Table.Name == want.Name && ch.matches(c) })
			if !hooked || !slices.EqualFunc(found, ch.Rules, Rule.Same) {
				return nil
			}
			rules = append(rules, found...)
		}
		for _, set := range want.Sets {
			if same, err := set.same(c); err != nil || !same {
				return err
			}
		}
		ok = true
		return nil
	})
	return rules, ok, err
}

// matches reports whether a chain of the kernel has this name and hook.
func (ch Chain) matches(c *nftables.Chain) bool {
	if ch.Hook == nil || c.Hooknum == nil || c.Priority == nil || c.Policy == nil {
		return c.Name == ch.Name && ch.Hook == nil && c.Hooknum == nil
	}
	return c.Name == ch.Name && c.Type == nftables.ChainTypeFilter && *c.Hooknum == *ch.Hook && *c.Priority == ch.Priority &&
		*c.Policy == nftables.ChainPolicyAccept
}

// same reports whether the kernel's set has the wanted elements; always if packets or timeouts change them too.
func (s Set) same(c *nftables.Conn) (bool, error) {
	if s.HasTimeout || s.Dynamic {
		return true, nil
	}
	found, err := c.GetSetElements(s.Set)
	if err != nil {
		return false, fmt.Errorf("read set %s: %w", s.Name, err)
	}
	missing := make(map[string]bool, len(s.Elements))
	for _, e := range s.Elements {
		missing[string(e.Key)] = true
	}
	for _, e := range found {
		if !missing[string(e.Key)] {
			return false, nil
		}
		delete(missing, string(e.Key))
	}
	return len(missing) == 0, nil
}

const (
	// elementsPerMessage fit in a netlink attribute: its length has 16 bits.
	elementsPerMessage = 200

	// stopgap is the timeout of elements that their own batch removes again.
	stopgap = time.Minute
)

// AddElements queues new elements of a set. It does not change existing ones.
func AddElements(c *nftables.Conn, s *nftables.Set, elements []nftables.SetElement) error {
	for some := range slices.Chunk(elements, elementsPerMessage) {
		if err := c.SetAddElements(s, some); err != nil {
			return err
		}
	}
	return nil
}

// DeleteElements queues the end of elements of a set. Deleting a missing or just expired element fails, so they are added
// before. Elements of a map without timeouts must exist.
func DeleteElements(c *nftables.Conn, s *nftables.Set, elements []nftables.SetElement) error {
	if s.HasTimeout || !s.IsMap {
		elements = slices.Clone(elements)
		for i := range elements {
			elements[i].Timeout = stopgap
		}
		if err := AddElements(c, s, elements); err != nil {
			return err
		}
	}
	for some := range slices.Chunk(elements, elementsPerMessage) {
		if err := c.SetDeleteElements(s, some); err != nil {
			return err
		}
	}
	return nil
}

// Exist reports whether any of the tables exists, in force or dormant.
func (s *Socket) Exist(tables ...*nftables.Table) (yes bool, err error) {
	err = s.Do(func(c *nftables.Conn) error {
		for _, t := range tables {
			if yes, _, err = FindTable(c, t); err != nil || yes {
				return err
			}
		}
		return nil
	})
	return yes, err
}
