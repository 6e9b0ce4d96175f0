package nft

import (
	"fmt"
	"slices"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/netutil/ruleset"
)

// kernel is nftables, for one call at a time.
type kernel struct{ ruleset.Socket }

const (
	// elementsInARow fit a netlink attribute, which has a 16 bit length.
	elementsInARow = 200

	// openingTime is after which time a connection that is not open is forgotten. It is longer than
	// clients and servers wait between one of their first four attempts and the next, of which all but
	// the first few are made anew, and a sixth of what it is otherwise: forged SYNs have their ports for so long.
	openingTime = 10 * time.Second

	// stopgap is the timeout of elements that their own batch removes again.
	stopgap = time.Minute
)

func ours() *nftables.Table {
	return &nftables.Table{Name: tableName, Family: nftables.TableFamilyINet}
}

// read finds out what is in the table; ok is false if there is none.
func (k *kernel) read() (t table, ok bool, err error) {
	err = k.Do(func(c *nftables.Conn) error {
		var inForce bool
		if ok, inForce, err = ruleset.FindTable(c, ours()); err != nil || !ok {
			return err
		}
		t, err = readTable(c)
		t.dormant = !inForce
		return err
	})
	if err == nil && ok {
		err = k.rules(t.chains)
	}
	return t, ok, err
}

func readTable(c *nftables.Conn) (table, error) {
	out := table{chains: make(map[string]chain), sets: make(map[string]set)}
	chains, err := c.ListChainsOfTableFamily(nftables.TableFamilyINet)
	if err != nil {
		return table{}, fmt.Errorf("list chains: %w", err)
	}
	for _, found := range chains {
		if found.Table.Name != tableName {
			continue
		}
		var ch chain
		if found.Hooknum != nil && found.Priority != nil {
			ch.hook = &hook{found.Type, *found.Hooknum, *found.Priority}
		}
		out.chains[found.Name] = ch
	}
	sets, err := c.GetSets(ours())
	if err != nil {
		return table{}, fmt.Errorf("list sets: %w", err)
	}
	for _, found := range sets {
		elements, err := c.GetSetElements(&nftables.Set{Table: ours(), Name: found.Name})
		if err != nil {
			return table{}, fmt.Errorf("read set %s: %w", found.Name, err)
		}
		s := set{kind{verdict: found.IsMap, expires: found.HasTimeout}, make(map[string]element)}
		for _, e := range elements {
			s.elements[string(e.Key)] = element{chain: chainOf(e.Val), comment: e.Comment, lasts: e.Expires}
		}
		out.sets[found.Name] = s
	}
	return out, nil
}

// rules adds to chains the rules that they have.
func (k *kernel) rules(chains map[string]chain) error {
	rules, err := k.Rules(ours())
	if err != nil {
		return err
	}
	for _, r := range rules {
		c := chains[r.Chain]
		c.rules = append(c.rules, r)
		chains[r.Chain] = c
	}
	return nil
}

// chainOf is where an element of a verdict map leads: the nested attributes of struct
// nft_verdict, by their numbers in linux/netfilter/nf_tables.h.
func chainOf(verdict []byte) string {
	attrs, err := netlink.NewAttributeDecoder(verdict)
	if err != nil {
		return ""
	}
	for attrs.Next() {
		if attrs.Type() == unix.NFTA_VERDICT_CHAIN {
			return attrs.String()
		}
	}
	return ""
}

// apply carries out a plan for want, all or nothing.
func (k *kernel) apply(p plan, want table) error { return k.carryOut(p, want, false) }

// replace makes the table anew. Its hooks are there before those of the old one go, so what
// is established stays.
func (k *kernel) replace(want table) error { return k.carryOut(change(table{}, want), want, true) }

// carryOut carries out a plan in one batch; if that is to be, in place of the table that is there.
// If it is about the base chains they come first, in batches of their own: of the library only the
// socket can write some of their rules, and nothing may be listened at without them.
func (k *kernel) carryOut(p plan, want table, anew bool) error {
	if slices.Contains(p.fill, postrouting) {
		byLibrary := func(chains []string) []string {
			return slices.DeleteFunc(chains, func(name string) bool { return name == postrouting })
		}
		foundation := base()
		first := change(table{}, foundation)
		first.fill, p.fill = byLibrary(first.fill), byLibrary(p.fill)
		for name := range foundation.chains {
			if i := slices.Index(p.dropChains, name); i >= 0 { // it is made anew, with another hook
				first.dropChains, p.dropChains = append(first.dropChains, name), slices.Delete(p.dropChains, i, i+1)
			}
		}
		if err := k.flush(first, foundation, anew); err != nil {
			return err
		}
		anew = false
		if err := k.Fill(ours(), postrouting, foundation.chains[postrouting].rules); err != nil {
			return err
		}
		_ = k.addOpening() // if it is needed and not there, neither will be the rules
	}
	return k.flush(p, want, anew)
}

// addOpening makes the object by which half-open connections are forgotten, and with it the table.
func (k *kernel) addOpening() error { return k.AddTimeout(ours(), opening, openingTime) }

func (k *kernel) flush(p plan, want table, anew bool) error {
	return k.Batch(func(c *nftables.Conn) error {
		c.AddTable(ours())
		if anew {
			ruleset.Replace(c, ours())
		}
		return queue(c, p, want)
	})
}

// queue adds a plan for want to the batch.
func queue(c *nftables.Conn, p plan, want table) error {
	for _, name := range p.dropSets {
		c.FlushSet(&nftables.Set{Table: ours(), Name: name}) // chains cannot go while elements lead there
	}
	if err := queueElements(c, p.remove, want, true); err != nil {
		return err
	}
	for i, name := range p.addSets {
		if err := c.AddSet(want.sets[name].define(name, uint32(i+1)), nil); err != nil {
			return err
		}
	}
	// A chain that is made anew goes first, since names are unique.
	for _, name := range p.dropChains {
		if _, ok := want.chains[name]; ok {
			c.DelChain(&nftables.Chain{Table: ours(), Name: name})
		}
	}
	for _, name := range p.addChains {
		add := &nftables.Chain{Table: ours(), Name: name}
		if h := want.chains[name].hook; h != nil {
			add = ruleset.BaseChain(ours(), name, h.kind, &h.at, h.priority)
		}
		c.AddChain(add)
	}
	for _, name := range p.fill {
		in := &nftables.Chain{Table: ours(), Name: name}
		c.FlushChain(in)
		ruleset.AddRules(c, in, want.chains[name].rules)
	}
	if err := queueElements(c, p.put, want, false); err != nil {
		return err
	}
	for _, name := range p.dropChains {
		if _, ok := want.chains[name]; !ok {
			c.DelChain(&nftables.Chain{Table: ours(), Name: name})
		}
	}
	for _, name := range p.dropSets {
		c.DelSet(&nftables.Set{Table: ours(), Name: name})
	}
	return nil
}

// queueElements adds or removes elements. To remove one that has just expired would
// fail; so those of sets that expire are added before, which changes nothing of one that is
// there. (To give it more time in place is possible since Linux 6.12 only.)
func queueElements(c *nftables.Conn, edits []edit, want table, remove bool) error {
	for len(edits) > 0 {
		name := edits[0].set
		n := slices.IndexFunc(edits, func(e edit) bool { return e.set != name })
		if n < 0 {
			n = len(edits)
		}
		k := want.sets[name].kind
		in := &nftables.Set{Table: ours(), Name: name, HasTimeout: k.expires, IsMap: k.verdict}
		for some := range slices.Chunk(edits[:n], elementsInARow) {
			elements := make([]nftables.SetElement, 0, len(some))
			for _, e := range some {
				elements = append(elements, e.encode(k, remove))
			}
			if !remove || k.expires {
				if err := c.SetAddElements(in, elements); err != nil {
					return err
				}
			}
			if remove {
				if err := c.SetDeleteElements(in, elements); err != nil {
					return err
				}
			}
		}
		edits = edits[n:]
	}
	return nil
}

func (e edit) encode(k kind, remove bool) nftables.SetElement {
	out := nftables.SetElement{Key: []byte(e.key), Comment: e.element.comment, Timeout: e.element.lasts}
	if remove && k.expires {
		out.Timeout = stopgap
	}
	if k.verdict {
		goes := expr.VerdictGoto
		if k.expires {
			goes = expr.VerdictJump // and comes back, if nobody takes the connection there
		}
		out.VerdictData = &expr.Verdict{Kind: goes, Chain: e.element.chain}
	}
	return out
}

// define is the set as it is told to the kernel, with a number that is its own in the batch.
func (s set) define(name string, id uint32) *nftables.Set {
	out := &nftables.Set{
		Table: ours(), Name: name, ID: id, IsMap: s.kind.verdict, HasTimeout: s.kind.expires, KeyType: s.kind.key[0],
	}
	if len(s.kind.key) > 1 {
		out.Concatenation = true
		out.KeyType, _ = nftables.ConcatSetType(s.kind.key...) // an error only of more than five
	}
	if out.KeyType == nftables.TypeMark || out.KeyType == nftables.TypeIFName {
		out.KeyByteOrder = binaryutil.NativeEndian // nft needs to know
	}
	if s.kind.verdict {
		out.DataType = nftables.TypeVerdict
	}
	return out
}

// watch sends to told whenever the table may not be as it was.
func (k *kernel) watch(told chan<- struct{}) (stop func(), err error) {
	return ruleset.Watch(k.NetNS, told, func(m netlink.Message) bool {
		c, ok := ruleset.Read(m)
		return ok && c.Table == tableName
	})
}

// unsupported says why there is no balancing to be had, if err is such a reason.
func unsupported(err error) error {
	const lacks = "NAT in inet, numgen, hash or masquerade (CONFIG_NF_TABLES_INET, CONFIG_NFT_NAT, _MASQ, _NUMGEN, _HASH, _CT)"
	return ruleset.Unsupported(err, ErrUnsupported, lacks, "set up balancing in the kernel")
}
