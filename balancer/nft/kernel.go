package nft

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/balancer"
	"github.com/herald-vip/herald/netutil/ruleset"
)

// kernel calls nftables. Only one call may run at a time.
type kernel struct{ ruleset.Socket }

// openingTime is the conntrack timeout of half-open connections. It is longer than four SYN retries, and a sixth of
// the default, so that a SYN flood frees ports sooner.
const openingTime = 10 * time.Second

func ours() *nftables.Table {
	return &nftables.Table{Name: tableName, Family: nftables.TableFamilyINet}
}

// read reads the table; it is empty if it does not exist.
func (k *kernel) read() (t table, err error) {
	err = k.Do(func(c *nftables.Conn) error {
		exists, inForce, err := ruleset.FindTable(c, ours())
		if err != nil || !exists {
			return err
		}
		if t, err = readTable(c); err != nil {
			return err
		}
		t.dormant = !inForce
		return k.rules(t.chains)
	})
	return t, err
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
			ch.hook = hook{found.Type, *found.Hooknum, *found.Priority}
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

// rules adds their rules to chains.
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

// chainOf returns the target chain of an element of a verdict map. It reads the nested attributes of
// linux/netfilter/nf_tables.h, enum nft_verdict_attributes.
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

// replace makes the table anew. The new hooks exist before the old ones go, so established connections stay.
func (k *kernel) replace(want table) error { return k.carryOut(change(table{}, want), want, true) }

// carryOut carries out a plan for want in one batch. With anew it replaces the existing table. Base chains come first, in
// batches of their own: the nftables library cannot write some of their rules, and no listener may exist without them.
func (k *kernel) carryOut(p plan, want table, anew bool) error {
	if slices.Contains(p.fill, postrouting) {
		byLibrary := func(chains []string) []string {
			return slices.DeleteFunc(chains, func(name string) bool { return name == postrouting })
		}
		foundation := base()
		first := change(table{}, foundation)
		first.fill, p.fill = byLibrary(first.fill), byLibrary(p.fill)
		for name := range foundation.chains {
			if i := slices.Index(p.dropChains, name); i >= 0 { // the chain gets another hook
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
		_ = k.addOpening() // without it the rules that need it fail below
	}
	var err error
	p.addSets = slices.DeleteFunc(p.addSets, func(name string) bool {
		numbers := strings.HasPrefix(name, bucketMap)
		if numbers && err == nil {
			err = k.AddNumbers(ours(), name, balancer.Buckets)
		}
		return numbers
	})
	if err != nil {
		return err
	}
	return k.flush(p, want, anew)
}

// addOpening adds the conntrack timeout for half-open connections, and the table if needed.
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
		c.FlushSet(&nftables.Set{Table: ours(), Name: name}) // a chain cannot be deleted while elements refer to it
	}
	if err := queueElements(c, p.remove, want, ruleset.DeleteElements); err != nil {
		return err
	}
	for i, name := range p.addSets {
		if err := c.AddSet(want.sets[name].define(name, uint32(i+1)), nil); err != nil {
			return err
		}
	}
	// A chain that is replaced is deleted first, as names are unique.
	for _, name := range p.dropChains {
		if _, ok := want.chains[name]; ok {
			c.DelChain(&nftables.Chain{Table: ours(), Name: name})
		}
	}
	for _, name := range p.addChains {
		add := &nftables.Chain{Table: ours(), Name: name}
		if h := want.chains[name].hook; h != (hook{}) {
			add = ruleset.BaseChain(ours(), name, h.kind, &h.at, h.priority)
		}
		c.AddChain(add)
	}
	for _, name := range p.fill {
		in := &nftables.Chain{Table: ours(), Name: name}
		c.FlushChain(in)
		ruleset.AddRules(c, in, want.chains[name].rules)
	}
	if err := queueElements(c, p.put, want, ruleset.AddElements); err != nil {
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

func queueElements(c *nftables.Conn, edits []edit, want table, change func(*nftables.Conn, *nftables.Set, []nftables.SetElement) error) error {
	elements := make(map[string][]nftables.SetElement)
	for _, e := range edits {
		elements[e.set] = append(elements[e.set], e.encode(want.sets[e.set].kind))
	}
	for name, some := range sorted(elements) {
		k := want.sets[name].kind
		if err := change(c, &nftables.Set{Table: ours(), Name: name, HasTimeout: k.expires, IsMap: k.verdict}, some); err != nil {
			return err
		}
	}
	return nil
}

func (e edit) encode(k kind) nftables.SetElement {
	out := nftables.SetElement{Key: []byte(e.key), Comment: e.element.comment, Timeout: e.element.lasts}
	if k.verdict {
		kind := expr.VerdictGoto
		if k.expires {
			kind = expr.VerdictJump // returns if the chain has no backend
		}
		out.VerdictData = &expr.Verdict{Kind: kind, Chain: e.element.chain}
	}
	return out
}

// define returns the set for the kernel. The id is unique in the batch.
func (s set) define(name string, id uint32) *nftables.Set {
	out := &nftables.Set{
		Table: ours(), Name: name, ID: id, IsMap: s.kind.verdict, HasTimeout: s.kind.expires, KeyType: s.kind.key[0],
	}
	if len(s.kind.key) > 1 {
		out.Concatenation = true
		out.KeyType, _ = nftables.ConcatSetType(s.kind.key...) // fails only for more than five
	}
	if out.KeyType == nftables.TypeMark || out.KeyType == nftables.TypeIFName {
		out.KeyByteOrder = binaryutil.NativeEndian // for the nft program
	}
	if s.kind.verdict {
		out.DataType = nftables.TypeVerdict
	}
	return out
}

// unsupported wraps err in ErrUnsupported if it means that the kernel cannot balance.
func unsupported(err error) error {
	const lacks = "NAT in inet, numgen, hash or masquerade (CONFIG_NF_TABLES_INET, CONFIG_NFT_NAT, _MASQ, _NUMGEN, _HASH, _CT)"
	return ruleset.Unsupported(err, ErrUnsupported, lacks, "set up balancing in the kernel")
}
