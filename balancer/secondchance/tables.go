package secondchance

import (
	"net/netip"
	"slices"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"

	"github.com/herald-vip/herald/netutil/conntrack"
	"github.com/herald-vip/herald/netutil/ruleset"
)

const tableName = "herald_second_chance"

// lasts is the lifetime of the elements of the map of VIPs without renewal.
const lasts = 10 * time.Second

// tables writes the kernel's nftables, one of each family because dup needs one. Only one call may run at a time.
type tables struct {
	ruleset.Socket
	limits limits
	lasts  time.Duration
}

func (f family) in() *nftables.Table { return &nftables.Table{Name: tableName, Family: f.table} }

// write changes the tables in place, as they remember connections. It makes them anew if they are not as wanted then: missing,
// changed by other programs, or made for another member or link.
func (k *tables) write(w Wanted, tunnel uint32) error {
	var want []ruleset.Table
	for _, f := range families() {
		want = append(want, k.wanted(f, w, tunnel))
	}
	err := k.Batch(func(c *nftables.Conn) error { return renew(c, want) })
	differs := func(t ruleset.Table) bool { _, ok, err := k.Intact(t); return !ok || err != nil }
	if err == nil && !slices.ContainsFunc(want, differs) {
		return nil
	}
	return k.Make(want...)
}

// renew replaces the rules of the chain "on", and all elements except connections.
func renew(c *nftables.Conn, want []ruleset.Table) error {
	for _, t := range want {
		for _, ch := range t.Chains {
			if ch.Name == onward {
				in := &nftables.Chain{Table: t.Table, Name: ch.Name}
				c.FlushChain(in)
				ruleset.AddRules(c, in, ch.Rules)
			}
		}
		for _, s := range t.Sets {
			if s.Dynamic {
				continue
			}
			c.FlushSet(s.Set)
			if err := ruleset.AddElements(c, s.Set, s.Elements); err != nil {
				return err
			}
		}
	}
	return nil
}

func (k *tables) wanted(f family, w Wanted, tunnel uint32) ruleset.Table {
	elements := make(map[string][]nftables.SetElement)
	for vip, leaves := range w.VIPs {
		target := &expr.Verdict{Kind: expr.VerdictJump, Chain: serving}
		if leaves {
			target.Chain = leaving
		}
		if f.has(vip) {
			elements[vips] = append(elements[vips], nftables.SetElement{Key: vip.AsSlice(), Timeout: k.lasts, VerdictData: target})
		}
	}
	for _, m := range w.Others {
		if f.has(m.Addr) {
			elements[members] = append(elements[members], nftables.SetElement{Key: m.Addr.AsSlice()})
		}
	}
	for _, name := range w.Links {
		elements[links] = append(elements[links], nftables.SetElement{Key: ruleset.LinkName(name)})
	}
	chains := slices.Concat(f.ends(tunnel, k.limits), []ruleset.Chain{{Name: onward, Rules: f.on(w, tunnel)}}, f.owned(), f.hooked(w.Self, tunnel))
	t := ruleset.Table{Table: f.in(), Counters: []string{passed, answered, refused}, Chains: chains}
	for _, s := range f.sets(k.limits.memory) {
		t.Sets = append(t.Sets, ruleset.Set{Set: s, Elements: elements[s.Name]})
	}
	return t
}

func (f family) sets(memory uint32) []*nftables.Set {
	connection, _ := nftables.ConcatSetType(f.address, f.address, nftables.TypeInetService, nftables.TypeInetService) // fails only for more than five
	remembers := func(name string, key nftables.SetDatatype) *nftables.Set {
		return &nftables.Set{
			Table: f.in(), Name: name, KeyType: key, Concatenation: key.Name == connection.Name, Dynamic: true, HasTimeout: true, Size: memory,
		}
	}
	return []*nftables.Set{
		{Table: f.in(), Name: vips, KeyType: f.address, DataType: nftables.TypeVerdict, IsMap: true, HasTimeout: true},
		{Table: f.in(), Name: members, KeyType: f.address},
		{Table: f.in(), Name: links, KeyType: nftables.TypeIFName, KeyByteOrder: binaryutil.NativeEndian},
		remembers(opening, connection), remembers(moved, connection), remembers(sources, f.address), remembers(full, f.address),
	}
}

// counts reads the counters of both families.
func (k *tables) counts() (Counts, error) {
	all := make(map[string]uint64)
	err := k.Do(func(c *nftables.Conn) error {
		for _, f := range families() {
			found, err := c.GetObjects(f.in())
			if err != nil {
				return err
			}
			for _, o := range found {
				if counter, ok := o.(*nftables.CounterObj); ok {
					all[counter.Name] += counter.Packets
				}
			}
		}
		return nil
	})
	return Counts{all[passed], all[answered], all[refused]}, err
}

func (k *tables) listener(vips map[netip.Addr]bool) (netip.AddrPort, error) {
	listening, err := conntrack.Listening()
	for _, addr := range listening {
		if _, ok := vips[addr.Addr()]; ok {
			return addr, nil
		}
	}
	return netip.AddrPort{}, err
}

func (k *tables) watch(changed chan<- struct{}) (stop func(), err error) {
	return k.Watch(changed, tableName)
}

// remove removes the tables if they exist.
func (k *tables) remove() error {
	defer k.Close()
	return k.RemoveTables(families()[0].in(), families()[1].in())
}
