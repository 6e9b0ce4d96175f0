package fence

import (
	"cmp"
	"fmt"
	"net/netip"

	"github.com/google/nftables"

	"github.com/herald-vip/herald/netutil/ruleset"
)

// nft is the Kernel of nftables. Only one call may run at a time.
type nft struct {
	ruleset.Socket
	opts Options
}

func (k *nft) Filtered() (addrs []netip.Addr, err error) {
	err = k.Do(func(c *nftables.Conn) error {
		addrs, err = readFiltered(c)
		return err
	})
	return addrs, err
}

func readFiltered(c *nftables.Conn) (out []netip.Addr, err error) {
	exists, _, err := ruleset.FindTable(c, table(nftables.TableFamilyINet))
	if err != nil || !exists {
		return nil, err
	}
	sets, err := c.GetSets(table(nftables.TableFamilyINet))
	if err != nil {
		return nil, fmt.Errorf("list sets: %w", err)
	}
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

// wanted returns the tables that filter addresses, all closed.
func (o Options) wanted(filtered, ofServices []netip.Addr) []ruleset.Table {
	elements := make(map[string][]nftables.SetElement)
	for kind, addrs := range map[set][]netip.Addr{vips: filtered, services: ofServices} {
		for _, addr := range addrs {
			name := nameOf(kind, addr)
			elements[name] = append(elements[name], nftables.SetElement{Key: addr.AsSlice()})
		}
	}
	var out []ruleset.Table
	for _, family := range families {
		t := ruleset.Table{Table: table(family), Chains: o.chains(family)}
		for _, s := range o.sets(family) {
			t.Sets = append(t.Sets, ruleset.Set{Set: s, Elements: elements[s.Name]})
		}
		out = append(out, t)
	}
	return out
}

func (k *nft) Rebuild(filtered, ofServices []netip.Addr) error {
	return k.Make(k.opts.wanted(filtered, ofServices)...)
}

func (k *nft) Intact(filtered, ofServices []netip.Addr) (bool, error) {
	for _, t := range k.opts.wanted(filtered, ofServices) {
		if _, ok, err := k.Socket.Intact(t); err != nil || !ok {
			return false, err
		}
	}
	return true, nil
}

// Apply replaces elements: adding an existing one would not extend it.
func (k *nft) Apply(changes []Change) error {
	type edit struct{ remove, add []nftables.SetElement }
	edits := make(map[string]edit)
	for _, ch := range changes {
		name, element := nameOf(ch.Set, ch.Addr), nftables.SetElement{Key: ch.Addr.AsSlice()}
		e := edits[name]
		e.remove = append(e.remove, element)
		if ch.Lasts != 0 {
			element.Timeout = max(ch.Lasts, 0) // none if forever
			e.add = append(e.add, element)
		}
		edits[name] = e
	}
	return k.Batch(func(c *nftables.Conn) error {
		for _, family := range families {
			for _, s := range k.opts.sets(family) {
				e := edits[s.Name]
				if err := cmp.Or(ruleset.DeleteElements(c, s, e.remove), ruleset.AddElements(c, s, e.add)); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

func (k *nft) Remove() error {
	defer k.Close()
	return k.RemoveTables(bothTables()...)
}

func bothTables() []*nftables.Table {
	return []*nftables.Table{table(nftables.TableFamilyARP), table(nftables.TableFamilyINet)}
}
