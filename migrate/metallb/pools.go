package metallb

import (
	"net/netip"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/migrate"
	"github.com/herald-vip/herald/service/pool"
)

// lbPool is a pool, and what is known of it besides what is written.
type lbPool struct {
	spec v1alpha1.AddressPoolSpec
	*object
	ranges []pool.Range
	// reserved is whether only some Services may have its addresses: MetalLB tries
	// those pools before the others, and lower priorities before higher ones.
	reserved bool
	priority uint32 // MetalLB's, 0 if there is none
}

// pool converts an IPAddressPool, or what was one before there were any.
func (m *converter) pool(o *object) {
	p := &lbPool{object: o}
	f := o.fields()
	for _, item := range f.take("addresses").Items {
		p.addRange(item)
	}
	if len(p.ranges) == 0 {
		o.ToDo(o.line, o.about("addresses"), "there are none: add them")
	}
	if !f.boolean("autoAssign", true) {
		p.spec.AutoAssign = new(bool)
	}
	p.spec.AvoidBuggyIPs = f.boolean("avoidBuggyIPs", false)
	to := f.within("serviceAllocation")
	p.reserved = len(to.left) > 0
	p.priority = to.number("priority", 1<<31-1, 0)
	for _, name := range to.texts("namespaces") {
		p.spec.Namespaces = append(p.spec.Namespaces, v1alpha1.Namespace(name))
	}
	p.spec.NamespaceSelectors = to.selectors("namespaceSelectors")
	p.spec.ServiceSelectors = to.selectors("serviceSelectors")
	to.done()
	if o.kind == kindOldPool {
		m.advertisedWithin(f)
	}
	f.done()
	if slices.ContainsFunc(m.pools, func(other *lbPool) bool { return other.name == p.name }) {
		o.ToDo(o.line, o.about(""), "there is a pool of this name already: give one of them another, for Herald's are of the whole cluster")
	}
	m.pools = append(m.pools, p)
}

// addRange reads addresses as MetalLB does: networks by any address in them, and ranges.
func (p *lbPool) addRange(item *migrate.Tree) {
	s := item.Text()
	if network, err := netip.ParsePrefix(s); err == nil && network != network.Masked() {
		s = network.Masked().String() // MetalLB takes it for the whole network, too
	}
	r, err := pool.ParseRange(s)
	if err != nil {
		p.ToDo(item.Line, p.about("addresses"), "%s", sentence(err))
		return
	}
	p.ranges = append(p.ranges, r)
	p.spec.Addresses = append(p.spec.Addresses, v1alpha1.AddressRange(r.String()))
}

// advertisedWithin reads how an old pool says that it is announced.
func (m *converter) advertisedWithin(f *fields) {
	to := func(kind string, line int) *advertisement {
		o := *f.object
		o.kind, o.line = kind, line
		return &advertisement{object: &o, pools: []string{f.name}, PoolBGP: v1alpha1.PoolBGP{AggregationLength: 32, AggregationLengthV6: 128}}
	}
	protocol := f.take("protocol")
	advertisements := f.take("bgpAdvertisements").Items
	switch {
	case protocol.Scalar == "layer2":
		m.onLink = append(m.onLink, to(kindL2, protocol.Line))
	case protocol.Scalar != "bgp":
		f.ToDo(f.line, f.about("protocol"), "is neither layer2 nor bgp: how are its addresses announced?")
	case len(advertisements) == 0:
		m.routed = append(m.routed, to(kindBGP, protocol.Line))
	}
	for _, item := range advertisements {
		a := to(kindBGP, item.Line)
		in := &fields{object: f.object, in: kindBGP, left: item.Fields}
		m.attributes(a, in)
		in.done()
		m.routed = append(m.routed, a)
	}
}

// prioritise turns MetalLB's order round: Herald's highest number is first.
func (m *converter) prioritise() {
	var given []uint32
	for _, p := range m.pools {
		if p.priority > 0 {
			given = append(given, p.priority)
		}
	}
	slices.Sort(given)
	given = slices.Compact(given)
	slices.Reverse(given)
	for _, p := range m.pools {
		switch {
		case p.priority > 0:
			p.spec.Priority = int32(min(2+slices.Index(given, p.priority), 1000))
		case p.reserved:
			p.spec.Priority = 1
		}
	}
}

// validatePools says what Herald would refuse of the pools as they are.
func (m *converter) validatePools() {
	var all []pool.Pool
	for _, p := range m.pools {
		all = append(all, pool.Pool{Name: p.name, Ranges: p.ranges})
		if err := pool.New().Replace(all); err != nil {
			p.ToDo(p.line, p.about("addresses"), "%s", sentence(err))
			all = all[:len(all)-1]
		}
	}
	for _, p := range m.pools {
		if p.spec.BGP == nil {
			continue
		}
		for _, r := range p.ranges {
			length := &p.spec.BGP.AggregationLength
			if r.First.Is6() {
				length = &p.spec.BGP.AggregationLengthV6
			}
			network, err := netip.ParsePrefix(r.String())
			if least := int32(r.First.BitLen()); *length < least && (err != nil || *length < int32(network.Bits())) {
				p.ToDo(p.line, p.about("addresses"), "routes of length %d reach beyond %s: each address gets a route of its own; give the pool whole networks to have fewer", *length, r)
				*length = least
			}
		}
	}
}

// allows reports whether the pools have an address.
func (m *converter) allows(addr netip.Addr) bool {
	return slices.ContainsFunc(m.pools, func(p *lbPool) bool {
		return slices.ContainsFunc(p.ranges, func(r pool.Range) bool { return r.Contains(addr) })
	})
}

// advertisement is one of either kind: how the addresses of some pools are announced.
type advertisement struct {
	*object
	pools     []string
	selectors []v1alpha1.LabelSelector // of pools
	// Of one on a flat layer 2, Peers are the links, and there is nothing besides them and NodeSelectors.
	v1alpha1.PoolBGP
}

// advertisement converts one.
func (m *converter) advertisement(o *object) {
	a := &advertisement{object: o}
	f := o.fields()
	a.pools = f.texts("ipAddressPools")
	a.selectors = f.selectors("ipAddressPoolSelectors")
	a.NodeSelectors = f.selectors("nodeSelectors")
	if o.kind == kindBGP {
		a.Peers = f.texts("peers")
		m.attributes(a, f)
		m.routed = append(m.routed, a)
	} else {
		a.Peers = f.texts("interfaces")
		m.onLink = append(m.onLink, a)
	}
	f.done()
}

// attributes reads those of routes. Names of communities are looked up when all of them are known.
func (m *converter) attributes(a *advertisement, f *fields) {
	a.AggregationLength = int32(f.number("aggregationLength", 32, 32))
	a.AggregationLengthV6 = int32(f.number("aggregationLengthV6", 128, 128))
	if n := f.number("localPref", 1<<32-1, 0); n > 0 {
		a.LocalPref = &n
	}
	for _, item := range f.take("communities").Items {
		m.pending = append(m.pending, pendingCommunity{a, f.about("communities"), item})
	}
}

// pendingCommunity is one of an advertisement, by its value or its name.
type pendingCommunity struct {
	to    *advertisement
	about string
	value *migrate.Tree
}

// community remembers the names that communities are given.
func (m *converter) community(o *object) {
	f := o.fields()
	for _, item := range f.take("communities").Items {
		in := f.of("communities[].", item)
		name, value := in.text("name"), in.text("value")
		in.done()
		if name != "" {
			m.aliases[name] = value
		}
	}
	f.done()
}

// resolve gives advertisements their communities.
func (m *converter) resolve() {
	for _, p := range m.pending {
		s := p.value.Text()
		if value, ok := m.aliases[s]; ok {
			s = value
		}
		if rest, isLarge := strings.CutPrefix(s, "large:"); isLarge {
			if c, err := v1alpha1.ParseLargeCommunity(rest); err == nil {
				p.to.LargeCommunities = union(p.to.LargeCommunities, []v1alpha1.LargeCommunity{c})
				continue
			}
		} else if c, err := v1alpha1.ParseCommunity(s); err == nil {
			p.to.Communities = union(p.to.Communities, []v1alpha1.Community{c})
			continue
		}
		p.to.ToDo(p.value.Line, p.about, "%s is no community, nor the name of one in these files", migrate.Quoted(p.value.Scalar))
	}
}

// union is all of two lists, in order, each once.
func union[T comparable](a, b []T) []T {
	out := slices.Clone(a)
	for _, x := range b {
		if !slices.Contains(out, x) {
			out = append(out, x)
		}
	}
	return out
}

// selects reports whether an advertisement is about a pool; without names and selectors it is about all.
func (a *advertisement) selects(p *lbPool) bool {
	if len(a.pools) == 0 && len(a.selectors) == 0 {
		return true
	}
	return slices.Contains(a.pools, p.name) || slices.ContainsFunc(a.selectors, func(s v1alpha1.LabelSelector) bool {
		selector, err := s.Selector()
		return err == nil && selector.Matches(labels.Set(p.labels))
	})
}

// announce gives each pool the advertisements that select it.
func (m *converter) announce() {
	known := map[string]bool{}
	for _, p := range m.pools {
		known[p.name] = true
		routed, onLink := p.merge(m.routed), p.merge(m.onLink)
		if routed != nil {
			p.spec.BGP = &routed.PoolBGP
		}
		if onLink != nil {
			p.spec.ARP = &v1alpha1.PoolARP{NodeSelectors: onLink.NodeSelectors}
			for _, link := range onLink.Peers {
				p.spec.ARP.Interfaces = append(p.spec.ARP.Interfaces, v1alpha1.Link(link))
			}
		}
		if routed == nil && onLink == nil {
			p.Note(p.line, p.about(""), "nothing here announces it: its Services get addresses that no one hears of")
		}
	}
	for _, a := range slices.Concat(m.routed, m.onLink) {
		for _, name := range a.pools {
			if !known[name] {
				a.Note(a.line, a.about("ipAddressPools"), "there is no pool %s in these files", migrate.Quoted(name))
			}
		}
	}
}

// merge is the one advertisement that does what all that select p do, as far as
// one can: Herald announces a pool in one way. Nil if none does.
func (p *lbPool) merge(all []*advertisement) *advertisement {
	var merged *advertisement
	for _, a := range all {
		switch {
		case !a.selects(p):
		case merged == nil:
			one := *a
			merged = &one
		case !merged.absorb(a):
			a.ToDo(a.line, a.about(""), "Herald announces a pool in one way, and %s as %s:%d says: this other way is not carried over; divide the pool if both are needed", p.about(""), merged.File, merged.line)
		}
	}
	return merged
}

// absorb has a do what b does, too. It reports whether that can be, which it can
// if they differ in one thing only.
func (a *advertisement) absorb(b *advertisement) bool {
	sameNodes := reflect.DeepEqual(a.NodeSelectors, b.NodeSelectors)
	sameTo := slices.Equal(a.Peers, b.Peers)
	sameWay := reflect.DeepEqual(a.Attributes, b.Attributes)
	switch {
	case a.AggregationLength != b.AggregationLength || a.AggregationLengthV6 != b.AggregationLengthV6:
		return false
	case sameNodes && sameTo && reflect.DeepEqual(a.LocalPref, b.LocalPref):
		a.Communities = union(a.Communities, b.Communities)
		a.LargeCommunities = union(a.LargeCommunities, b.LargeCommunities)
	case sameWay && sameTo && (len(a.NodeSelectors) == 0 || len(b.NodeSelectors) == 0):
		a.NodeSelectors = nil
	case sameWay && sameTo:
		a.NodeSelectors = slices.Concat(a.NodeSelectors, b.NodeSelectors)
	case sameWay && sameNodes && (len(a.Peers) == 0 || len(b.Peers) == 0):
		a.Peers = nil
	case sameWay && sameNodes:
		a.Peers = union(a.Peers, b.Peers)
	default:
		return false
	}
	return true
}
