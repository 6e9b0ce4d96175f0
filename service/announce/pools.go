package announce

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/bgp"
	"github.com/herald-vip/herald/bgp/community"
	"github.com/herald-vip/herald/config/convert"
	"github.com/herald-vip/herald/service"
	"github.com/herald-vip/herald/service/pool"
)

// addressPool is an AddressPool as this node uses it.
type addressPool struct {
	name    string
	created time.Time
	spec    *v1alpha1.AddressPoolSpec
	err     error // why its latest change cannot be used
	ranges  []pool.Range

	bgp        *poolBGP
	exceptions []*poolBGP
	arp        *poolARP
	// flat is whether this node may hold the addresses, unrouted why it announces none of them by BGP if that is not
	// for a poolBGP to say.
	flat, unrouted service.Verdict
}

// poolBGP is how addresses of a pool are announced by BGP: all, or those of the Services for which there is an exception.
type poolBGP struct {
	services   service.Selectors // of an exception
	lengths    [2]int            // of routes, by family
	verdict    [2]service.Verdict
	selectors  service.Selectors
	peers      []string // as the pool names them; nil is all
	attributes bgp.Attributes
	terms      *terms
}

type poolARP struct {
	interfaces []string
	selectors  service.Selectors
	// preferences are for nodes that are to hold an address rather than others; with preempt these take it from others.
	preferences []preference
	preempt     bool
	nodes       []string // that may hold its addresses, in order; shared, so never changed in place
}

type preference struct {
	weight    int
	selectors service.Selectors
	endpoints bool
}

// SetPool takes in a pool that is new or has changed. One that makes no sense is
// refused, and what was known of it stays.
func (a *Announcer) SetPool(o *v1alpha1.AddressPool) {
	if o == nil {
		return
	}
	a.event(func() {
		p := a.pools[o.Name]
		if p != nil && p.spec != nil && p.created.Equal(o.CreationTimestamp.Time) && reflect.DeepEqual(*p.spec, o.Spec) {
			p.err = nil
			return // only its status changed
		}
		if p == nil {
			p = &addressPool{name: o.Name}
			a.pools[o.Name] = p
		}
		next, err := parsePool(o)
		if err != nil {
			if known := p.err; known == nil || known.Error() != err.Error() {
				a.moves = append(a.moves, move{pool: o.Name, err: err})
			}
			p.err = err
			return
		}
		before := p.ranges
		*p = *next
		a.appraise(p)
		a.rearrange(slices.Concat(before, p.ranges))
	})
}

// DeletePool takes in that a pool is no more.
func (a *Announcer) DeletePool(name string) {
	a.event(func() {
		if p := a.pools[name]; p != nil {
			delete(a.pools, name)
			a.rearrange(p.ranges)
		}
	})
}

func parsePool(o *v1alpha1.AddressPool) (*addressPool, error) {
	p := &addressPool{name: o.Name, created: o.CreationTimestamp.Time, spec: &o.Spec}
	for _, text := range o.Spec.Addresses {
		r, err := pool.ParseRange(string(text))
		if err != nil {
			return nil, err
		}
		p.ranges = append(p.ranges, r)
	}
	var err error
	if b := o.Spec.BGP; b != nil {
		all := v1alpha1.PoolBGPException{Peers: b.Peers, NodeSelectors: b.NodeSelectors, Attributes: b.Attributes}
		if p.bgp, err = parseBGP(all); err != nil {
			return nil, err
		}
		p.bgp.lengths = [2]int{pool.IPv4: int(b.AggregationLength), pool.IPv6: int(b.AggregationLengthV6)}
		for _, e := range b.Exceptions {
			exception, err := parseBGP(e)
			if err != nil {
				return nil, err
			}
			p.exceptions = append(p.exceptions, exception)
		}
	}
	if arp := o.Spec.ARP; arp != nil {
		p.arp = &poolARP{}
		if p.arp.selectors, err = service.SelectorsOf(arp.NodeSelectors); err != nil {
			return nil, fmt.Errorf("arp: label selector: %w", err)
		}
		p.arp.preempt = arp.Preempt
		for _, o := range arp.Preferences {
			selectors, err := service.SelectorsOf(o.NodeSelectors)
			if err != nil {
				return nil, fmt.Errorf("arp: preferences: label selector: %w", err)
			}
			p.arp.preferences = append(p.arp.preferences, preference{weight: int(o.Weight), selectors: selectors, endpoints: o.Endpoints})
		}
		for _, link := range arp.Interfaces {
			p.arp.interfaces = append(p.arp.interfaces, string(link))
		}
	}
	return p, nil
}

func parseBGP(e v1alpha1.PoolBGPException) (*poolBGP, error) {
	b := &poolBGP{peers: e.Peers}
	var err error
	if b.services, err = service.SelectorsOf(e.ServiceSelectors); err != nil {
		return nil, fmt.Errorf("bgp: label selector: %w", err)
	}
	if b.selectors, err = service.SelectorsOf(e.NodeSelectors); err != nil {
		return nil, fmt.Errorf("bgp: label selector: %w", err)
	}
	if _, _, err := community.ParseLists(e.Communities, e.LargeCommunities); err != nil {
		return nil, fmt.Errorf("bgp: %w", err)
	}
	b.attributes = convert.Attributes(convert.FileAttributes(e.Attributes))
	return b, nil
}

// routed are the ways in which addresses of the pool are announced by BGP.
func (p *addressPool) routed() []*poolBGP {
	if p.bgp == nil {
		return nil
	}
	return append([]*poolBGP{p.bgp}, p.exceptions...)
}

// verdicts are what this node may do for the addresses of the pool.
func (p *addressPool) verdicts() []service.Verdict {
	out := []service.Verdict{p.flat, p.unrouted}
	for _, b := range p.routed() {
		out = append(out, b.verdict[:]...)
	}
	return out
}

// rearrange decides for the addresses in ranges, whose pools may have changed, and for
// those of the pools that have any of them: they may be in one aggregate.
func (a *Announcer) rearrange(ranges []pool.Range) {
	a.byAge = slices.SortedFunc(maps.Values(a.pools), func(x, y *addressPool) int {
		return cmp.Or(x.created.Compare(y.created), cmp.Compare(x.name, y.name))
	})
	all := slices.Clone(ranges)
	for _, p := range a.byAge {
		if slices.ContainsFunc(p.ranges, func(r pool.Range) bool { return slices.ContainsFunc(ranges, r.Overlaps) }) {
			all = append(all, p.ranges...)
		}
	}
	a.within(all, func(x *address) {
		x.pool = a.poolOf(x.addr)
		a.affected = append(a.affected, x)
	})
	a.decideAffected()
}

// within calls f for the addresses in ranges.
func (a *Announcer) within(ranges []pool.Range, f func(*address)) {
	for _, r := range ranges {
		a.addresses.AscendGreaterOrEqual(&address{addr: r.First}, func(x *address) bool {
			if r.Last.Less(x.addr) {
				return false
			}
			f(x)
			return true
		})
	}
}

// appraise finds out what this node may do for a pool, and on which terms.
func (a *Announcer) appraise(p *addressPool) {
	node := a.nodes[a.config.Node]
	self := service.Planned("the cluster has no node %s: set nodeName", a.config.Node)
	if node != nil {
		self = a.config.Fitness.Fit(node)
	}
	selects := func(s service.Selectors) service.Verdict {
		if node != nil && s.Match(node.Labels) {
			return service.Verdict{}
		}
		return service.Planned("pool %s does not select this node", p.name)
	}
	if p.bgp == nil {
		p.unrouted = service.Planned("pool %s is not announced by BGP", p.name).And(self)
	}
	for _, b := range p.routed() {
		a.agree(b)
		for _, family := range []pool.Family{pool.IPv4, pool.IPv6} {
			b.verdict[family] = self.And(selects(b.selectors)).And(a.heard(p, b, family))
		}
	}
	if p.arp == nil {
		p.flat = service.Planned("pool %s is not announced on a flat layer 2", p.name).And(self)
	} else {
		p.flat = self.And(selects(p.arp.selectors))
		p.arp.nodes = a.qualified(p.arp)
	}
}

// appraiseAll finds out all anew.
func (a *Announcer) appraiseAll() {
	for _, p := range a.pools {
		a.appraise(p)
	}
	a.decideAll()
}

// heard says whether any peer of this node takes routes of a family from a pool.
func (a *Announcer) heard(p *addressPool, b *poolBGP, family pool.Family) service.Verdict {
	peers := b.terms.peers
	if peers == nil {
		peers = a.peers
	}
	switch {
	case len(a.config.Peers) == 0:
		return service.Planned("this node has no BGP peer")
	case len(peers) == 0:
		return service.Planned("this node has none of the peers of pool %s", p.name)
	case !slices.ContainsFunc(peers, func(peer string) bool { return a.carries(peer, family) }):
		return service.Planned("none of this node's peers that pool %s is for carries %s: add it to their families", p.name, family)
	}
	return service.Verdict{}
}

// carries says whether the session with a peer carries routes of a family.
func (a *Announcer) carries(peer string, family pool.Family) bool {
	only, limited := a.config.Only[peer]
	return !limited || only == family
}

// agree brings the terms of a pool's routes up to date.
func (a *Announcer) agree(b *poolBGP) {
	next := &terms{attributes: a.config.Attributes.Merge(b.attributes)}
	if b.peers != nil {
		next.peers = []string{}
		for _, name := range b.peers {
			next.peers = append(next.peers, a.config.Peers[name]...)
		}
		slices.Sort(next.peers)
		next.peers = slices.Compact(next.peers)
	}
	if !reflect.DeepEqual(b.terms, next) {
		b.terms = next
	}
}

// SetNode takes in a node that is new or has changed, this one or another. Of it are
// needed: its name and labels, whether it is unschedulable, and its conditions.
func (a *Announcer) SetNode(n *corev1.Node) {
	if n == nil {
		return
	}
	a.event(func() {
		known := a.nodes[n.Name]
		a.nodes[n.Name] = n
		a.nodeChanged(n.Name, known == nil || !maps.Equal(known.Labels, n.Labels))
	})
}

// DeleteNode takes in that a node is no more.
func (a *Announcer) DeleteNode(name string) {
	a.event(func() {
		if _, ok := a.nodes[name]; ok {
			delete(a.nodes, name)
			a.nodeChanged(name, true)
		}
	})
}

// nodeChanged decides for what a node bears on: the addresses of pools that it may announce by now, or may not any
// more, and if its labels are others, of those that prefer nodes by them.
func (a *Announcer) nodeChanged(name string, labels bool) {
	for _, p := range a.pools {
		before := p.verdicts()
		if name == a.config.Node {
			a.appraise(p)
		}
		preferred := labels && p.arp != nil && len(p.arp.preferences) > 0
		if a.enlist(p, name) || preferred || !slices.Equal(p.verdicts(), before) {
			a.within(p.ranges, func(x *address) { a.affected = append(a.affected, x) })
		}
	}
	a.decideAffected()
}

// enlist brings a node's place among those that may hold the addresses of a pool up to
// date, and reports whether that changed.
func (a *Announcer) enlist(p *addressPool, name string) bool {
	if p.arp == nil {
		return false
	}
	n, known := a.nodes[name]
	i, listed := slices.BinarySearch(p.arp.nodes, name)
	switch fit := known && a.mayHold(p.arp, n); {
	case fit && !listed:
		p.arp.nodes = slices.Insert(slices.Clone(p.arp.nodes), i, name)
	case !fit && listed:
		p.arp.nodes = slices.Delete(slices.Clone(p.arp.nodes), i, i+1)
	default:
		return false
	}
	return true
}

// qualified are the nodes that may hold the addresses of a pool.
func (a *Announcer) qualified(p *poolARP) []string {
	var out []string
	for name, n := range a.nodes {
		if a.mayHold(p, n) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

func (a *Announcer) mayHold(p *poolARP, n *corev1.Node) bool {
	return a.config.Fitness.Fit(n).OK() && p.selectors.Match(n.Labels)
}

// poolOf is the pool that an address is in, or nil. What is in two of them, which nothing
// can rule out, is the older one's.
func (a *Announcer) poolOf(addr netip.Addr) *addressPool {
	for _, p := range a.byAge {
		if slices.ContainsFunc(p.ranges, func(r pool.Range) bool { return r.Contains(addr) }) {
			return p
		}
	}
	return nil
}

// holds says whether all addresses of a network are in one pool.
func (a *Announcer) holds(p *addressPool, network netip.Prefix) bool {
	next := network.Addr()
	for _, older := range a.byAge[:slices.Index(a.byAge, p)] {
		if slices.ContainsFunc(older.ranges, func(r pool.Range) bool { return r.Contains(next) || network.Contains(r.First) }) {
			return false
		}
	}
	for network.Contains(next) {
		i := slices.IndexFunc(p.ranges, func(r pool.Range) bool { return r.Contains(next) })
		if i < 0 {
			return false
		}
		next = p.ranges[i].Last.Next()
	}
	return true
}
