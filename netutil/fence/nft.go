package fence

import (
	"cmp"
	"fmt"
	"math"
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

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
	for kind, addrs := range map[Set][]netip.Addr{vips: filtered, services: ofServices} {
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

func (k *nft) Locks() (locks []Change, err error) {
	err = k.Do(func(c *nftables.Conn) error {
		for _, family := range families {
			for _, s := range k.opts.sets(family) {
				if !s.HasTimeout {
					continue
				}
				elements, err := c.GetSetElements(s)
				if err != nil {
					return fmt.Errorf("read set %s: %w", s.Name, err)
				}
				for _, e := range elements {
					addr, _ := netip.AddrFromSlice(e.Key)
					if e.Timeout == 0 && e.Expires == 0 { // another program's
						e.Expires = math.MaxInt64
					}
					locks = append(locks, Change{Set(s.Name[:len(s.Name)-1]), addr, e.Expires})
				}
			}
		}
		return nil
	})
	return locks, err
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

// Probe returns nil if this host can have a fence, else an ErrUnsupported with the reason. It makes
// the tables in a temporary network namespace, and does not touch the host's.
func Probe() error {
	return explainUnsupported(ruleset.Try(func() error {
		k := &nft{}
		defer k.Close()
		return k.Rebuild([]netip.Addr{netip.AddrFrom4([4]byte{192, 0, 2, 1})}, nil) // TEST-NET-1 (RFC 5737)
	}))
}

// Left reports whether the tables exist: a Herald is running, or was killed.
func Left() (bool, error) {
	k := &nft{}
	defer k.Close()
	left, err := k.Exist(bothTables()...)
	return left, failed("look for a left-over kernel fence", err)
}

// families are the families of the fence's tables, which have the same name.
var families = []nftables.TableFamily{nftables.TableFamilyARP, nftables.TableFamilyINet}

const tableName = "herald"

func table(family nftables.TableFamily) *nftables.Table {
	return &nftables.Table{Name: tableName, Family: family}
}

// sets returns the sets of a table. A rule can use only sets of its own table.
func (o Options) sets(family nftables.TableFamily) []*nftables.Set {
	described := func(s Set, version, comment string) *nftables.Set {
		key := nftables.TypeIPAddr
		if version == "6" {
			key = nftables.TypeIP6Addr
		}
		return &nftables.Set{
			Table: table(family), Name: string(s) + version, KeyType: key, HasTimeout: s != vips && s != services, Comment: comment,
		}
	}
	var out []*nftables.Set
	for _, version := range []string{"4", "6"} {
		if version == "6" && family == nftables.TableFamilyARP {
			break
		}
		out = append(out, described(vips, version, "closed unless in both other sets"))
		if family == nftables.TableFamilyARP || version == "6" {
			out = append(out, described(answer, version, "answers are permitted"))
		}
		if family == nftables.TableFamilyINet {
			out = append(out, described(accept, version, "incoming packets are permitted"))
		}
		out = append(out, described(until, version, "until the end of the lease"))
		if family == nftables.TableFamilyINet && o.Services {
			out = append(out, described(services, version, "VIPs of Services"))
		}
	}
	return out
}

// Hooks of the family arp: NF_ARP_IN and NF_ARP_OUT in Linux's netfilter_arp.h.
const (
	arpIn  = 0
	arpOut = 1
)

// nameOf returns the name of the set of kind s for addr's family, in both tables.
func nameOf(s Set, addr netip.Addr) string {
	if addr.Is4() {
		return string(s) + "4"
	}
	return string(s) + "6"
}

// chains returns the chains of a table. They filter ARP where the host itself receives and sends it. They filter
// packets to this host before any other processing; packets to other hosts may be forwarded to the holder of the
// address. Linux sends an advertisement from the advertised address. Rules match that source, as the program nft of Debian 12
// lists the target in a form that it cannot load.
func (o Options) chains(family nftables.TableFamily) []ruleset.Chain {
	asked := ruleset.Join(ruleset.Load(ruleset.Network, 6, 2), ruleset.Equal(0, 1), ruleset.Load(ruleset.Network, 14, 4), ruleset.NotIn("vips4")) // a request, not an announcement
	ipv4 := ruleset.Join(ruleset.Meta(expr.MetaKeyNFPROTO), ruleset.Equal(unix.NFPROTO_IPV4))
	ipv6 := ruleset.Join(ruleset.Meta(expr.MetaKeyNFPROTO), ruleset.Equal(unix.NFPROTO_IPV6))
	local := ruleset.Local()
	const solicitation, advertisement = 135, 136 // RFC 4861, section 4
	icmpv6 := func(typ byte) []expr.Any {
		return ruleset.Join(ruleset.Meta(expr.MetaKeyL4PROTO), ruleset.Equal(unix.IPPROTO_ICMPV6), ruleset.Load(ruleset.Transport, 0, 1), ruleset.Equal(typ))
	}
	mine := func(field []expr.Any, version string) []expr.Any { // for this host, and not for a Service
		if o.Services {
			return ruleset.Join(field, ruleset.NotIn(string(services)+version), local)
		}
		return local
	}
	to4, to6, from6 := ruleset.Load(ruleset.Network, 16, 4), ruleset.Load(ruleset.Network, 24, 16), ruleset.Load(ruleset.Network, 8, 16)

	if family == nftables.TableFamilyARP {
		return []ruleset.Chain{{
			Name: "input", Hook: nftables.ChainHookRef(arpIn), Priority: *nftables.ChainPriorityFilter,
			Rules: dropClosed("asked for", asked, ruleset.Load(ruleset.Network, 24, 4), "4", answer, nil),
		}, {
			Name: "output", Hook: nftables.ChainHookRef(arpOut), Priority: *nftables.ChainPriorityFilter,
			Rules: dropClosed("the sender", nil, ruleset.Load(ruleset.Network, 14, 4), "4", answer, nil),
		}}
	}
	out := []ruleset.Chain{
		{
			Name: "prerouting", Hook: nftables.ChainHookPrerouting, Priority: *nftables.ChainPriorityRaw,
			Rules: append(
				dropClosed("the destination", ipv4, to4, "4", accept, mine(to4, "4")),
				dropClosed("the destination", ipv6, to6, "6", accept, mine(to6, "6"))...,
			),
		}, {
			Name: "output", Hook: nftables.ChainHookOutput, Priority: *nftables.ChainPriorityRaw,
			Rules: append(
				dropClosed("advertised", ruleset.Join(ipv6, icmpv6(advertisement)), from6, "6", answer, nil),
				dropClosed("soliciting", ruleset.Join(ipv6, icmpv6(solicitation)), from6, "6", answer, nil)...,
			),
		},
	}
	const port4, port6 = 3, 4 // port unreachable: RFC 792, RFC 4443 section 3.1
	if o.Services && !o.HostPorts {
		out = append(out, ruleset.Chain{
			Name: "services", Hook: nftables.ChainHookInput, Priority: unclaimedPriority,
			Rules: append(
				refuseUnclaimed(ruleset.Join(ipv4, to4, ruleset.In(string(services)+"4")), "4", unix.IPPROTO_ICMP, port4),
				refuseUnclaimed(ruleset.Join(ipv6, to6, ruleset.In(string(services)+"6")), "6", unix.IPPROTO_ICMPV6, port6)...,
			),
		})
	}
	return out
}

// unclaimedPriority comes after IPVS, which takes its packets in the input hook at priority 99 (NF_IP_PRI_NAT_SRC - 1).
// Packets taken in kube-proxy's other modes never reach the hook: their destination is translated before routing.
const unclaimedPriority = 110

// refuseUnclaimed returns rules that reject matching packets, except ICMP and answers to packets
// that this host sent from a Service's address.
func refuseUnclaimed(matching []expr.Any, version string, icmp, port byte) []ruleset.Rule {
	const name = "to " + string(services)
	other := []expr.Any{&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1}, &expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: []byte{icmp}}}
	const ctReply = 1 // IP_CT_DIR_REPLY
	return []ruleset.Rule{
		ruleset.NewRule(name+version+": answers", matching, []expr.Any{
			&expr.Ct{Register: 1, Key: expr.CtKeyDIRECTION}, &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{ctReply}},
			&expr.Verdict{Kind: expr.VerdictAccept},
		}),
		ruleset.NewRule(name+version+": TCP that no Service claims", matching, ruleset.TCP(), []expr.Any{
			&expr.Counter{}, &expr.Reject{Type: unix.NFT_REJECT_TCP_RST},
		}),
		ruleset.NewRule(name+version+": what no Service claims", matching, other, []expr.Any{
			&expr.Counter{}, &expr.Reject{Type: unix.NFT_REJECT_ICMP_UNREACH, Code: port},
		}),
	}
}

// dropClosed returns rules that drop packets with a filtered address in the field and a lock of it
// closed. The expressions before and after must match too.
func dropClosed(name string, before, field []expr.Any, version string, first Set, after []expr.Any) []ruleset.Rule {
	var rules []ruleset.Rule
	for _, lock := range []Set{first, until} {
		rules = append(rules, ruleset.NewRule(name+": "+string(vips)+version+" without "+string(lock)+version,
			before, field, ruleset.In(string(vips)+version), field, ruleset.NotIn(string(lock)+version), after,
			[]expr.Any{&expr.Counter{}, &expr.Verdict{Kind: expr.VerdictDrop}},
		))
	}
	return rules
}
