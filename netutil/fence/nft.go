package fence

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/google/nftables"

	"github.com/herald-vip/herald/netutil/ruleset"
)

// nft is the Kernel of nftables. Only one call may run at a time.
type nft struct {
	ruleset.Socket
	opts Options
}

var _ Kernel = (*nft)(nil)

const (
	// elementsInARow is the number of elements that fit a netlink attribute: its length has 16 bits.
	elementsInARow = 1000

	// stopgap is the timeout of elements that the same batch removes again.
	stopgap = time.Minute
)

func (k *nft) Filtered() (addrs []netip.Addr, err error) {
	err = k.Do(func(c *nftables.Conn) error {
		addrs, err = readFiltered(c)
		return err
	})
	return addrs, err
}

func readFiltered(c *nftables.Conn) ([]netip.Addr, error) {
	if exists, _, err := ruleset.FindTable(c, table(nftables.TableFamilyINet)); err != nil || !exists {
		return nil, err
	}
	sets, err := c.GetSets(table(nftables.TableFamilyINet))
	if err != nil {
		return nil, fmt.Errorf("list sets: %w", err)
	}
	var out []netip.Addr
	for _, s := range sets {
		if s.Name != string(vips)+"4" && s.Name != string(vips)+"6" {
			continue
		}
		elements, err := c.GetSetElements(s)
		if err != nil {
			return nil, fmt.Errorf("read set %s: %w", s.Name, err)
		}
		for _, e := range elements {
			if addr, ok := netip.AddrFromSlice(e.Key); ok {
				out = append(out, addr)
			}
		}
	}
	return out, nil
}

func (k *nft) Rebuild(filtered, ofServices []netip.Addr) error {
	return k.Batch(func(c *nftables.Conn) error { return k.opts.queueTables(c, filtered, ofServices) })
}

// queueTables queues new tables in place of any existing ones.
func (o Options) queueTables(c *nftables.Conn, filtered, ofServices []netip.Addr) error {
	for _, family := range families {
		ruleset.Replace(c, table(family))
		for _, s := range o.sets(family) {
			if err := c.AddSet(s, nil); err != nil {
				return err
			}
		}
	}
	if err := o.queueChanges(c, append(insertions(forever, filtered, vips), insertions(forever, ofServices, services)...)); err != nil {
		return err
	}
	for _, family := range families {
		ruleset.AddChains(c, table(family), o.chains(family))
	}
	return nil
}

func (k *nft) Intact(filtered, ofServices []netip.Addr) (ok bool, err error) {
	err = k.Do(func(c *nftables.Conn) error {
		if ok, err = k.opts.complete(c); err == nil && ok {
			ok, err = k.opts.filters(c, filtered, ofServices)
		}
		return err
	})
	return ok, err
}

// complete reports whether all tables, chains and rules exist and are in force.
func (o Options) complete(c *nftables.Conn) (bool, error) {
	for _, family := range families {
		if _, inForce, err := ruleset.FindTable(c, table(family)); err != nil || !inForce {
			return false, err
		}
	}
	for _, family := range families {
		for _, ch := range o.chains(family) {
			rules, err := c.GetRules(table(family), &nftables.Chain{Name: ch.Name})
			if err != nil {
				return false, fmt.Errorf("read rules: %w", err)
			}
			if !slices.EqualFunc(rules, ch.Rules, func(got *nftables.Rule, want ruleset.Rule) bool {
				return ruleset.ReadComment(got.UserData) == want.Comment && len(got.Exprs) == want.Size
			}) {
				return false, nil
			}
		}
	}
	return true, nil
}

// filters reports whether the tables' sets contain exactly these addresses.
func (o Options) filters(c *nftables.Conn, filtered, ofServices []netip.Addr) (bool, error) {
	all := map[set][]netip.Addr{vips: filtered, services: ofServices}
	for _, family := range families {
		for _, s := range o.sets(family) {
			if s.HasTimeout {
				continue
			}
			want := make(map[string]bool, len(filtered))
			for kind, addrs := range all {
				for _, addr := range addrs {
					if nameOf(kind, addr) == s.Name {
						want[string(addr.AsSlice())] = true
					}
				}
			}
			elements, err := c.GetSetElements(s)
			if err != nil {
				return false, fmt.Errorf("read set %s: %w", s.Name, err)
			}
			for _, e := range elements {
				if !want[string(e.Key)] {
					return false, nil
				}
				delete(want, string(e.Key))
			}
			if len(want) != 0 {
				return false, nil
			}
		}
	}
	return true, nil
}

func (k *nft) Apply(changes []Change) error {
	return k.Batch(func(c *nftables.Conn) error { return k.opts.queueChanges(c, changes) })
}

// queueChanges queues changes. Deleting an element that is missing or has just expired would fail, and
// adding an existing one would not extend it. So queueChanges adds each element, deletes it, and
// adds it again unless the change removes it.
func (o Options) queueChanges(c *nftables.Conn, changes []Change) error {
	type edit struct{ stopgaps, lasting []nftables.SetElement }
	edits := make(map[string]*edit)
	for _, ch := range changes {
		name := nameOf(ch.Set, ch.Addr)
		e := edits[name]
		if e == nil {
			e = new(edit)
			edits[name] = e
		}
		key := ch.Addr.AsSlice()
		e.stopgaps = append(e.stopgaps, nftables.SetElement{Key: key, Timeout: stopgap})
		switch {
		case ch.Lasts == forever:
			e.lasting = append(e.lasting, nftables.SetElement{Key: key})
		case ch.Lasts > 0:
			e.lasting = append(e.lasting, nftables.SetElement{Key: key, Timeout: ch.Lasts})
		}
	}
	for _, family := range families {
		for _, s := range o.sets(family) {
			e := edits[s.Name]
			if e == nil {
				continue
			}
			for _, step := range []struct {
				do       func(*nftables.Set, []nftables.SetElement) error
				elements []nftables.SetElement
			}{{c.SetAddElements, e.stopgaps}, {c.SetDeleteElements, e.stopgaps}, {c.SetAddElements, e.lasting}} {
				for some := range slices.Chunk(step.elements, elementsInARow) {
					if err := step.do(s, some); err != nil {
						return err
					}
				}
			}
		}
	}
	return nil
}

// hasTables reports whether any of the fence's tables exists.
func (k *nft) hasTables() (yes bool, err error) {
	err = k.Do(func(c *nftables.Conn) error {
		for _, family := range families {
			if yes, _, err = ruleset.FindTable(c, table(family)); err != nil || yes {
				return err
			}
		}
		return nil
	})
	return yes, err
}

func (k *nft) Remove() error {
	defer k.Close()
	return k.RemoveTables(table(nftables.TableFamilyARP), table(nftables.TableFamilyINet))
}
