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

// lbPool is a pool and its object.
type lbPool struct {
	spec v1alpha1.AddressPoolSpec
	*object
	ranges []pool.Range
	// reserved reports that only some Services may use the pool. MetalLB tries reserved pools first, in
	// the order of their priorities, the lowest first.
	reserved bool
	priority uint32 // MetalLB's; 0 if unset
}

// pool converts an IPAddressPool, or an AddressPool of older versions.
func (m *converter) pool(o *object) {
	p := &lbPool{object: o}
	f := o.fields()
	for _, item := range f.take("addresses").Items {
		p.addRange(item)
	}
	if len(p.ranges) == 0 {
		o.ToDo(o.line, o.about("addresses"), "the pool has none: add them")
	}
	if !f.boolean("autoAssign", true) {
		p.spec.AutoAssign = new(bool)
	}
	p.spec.AvoidBuggyIPs = f.boolean("avoidBuggyIPs", false)
	allocation := f.within("serviceAllocation")
	p.reserved = len(allocation.left) > 0
	p.priority = allocation.number("priority", 1<<31-1, 0)
	for _, name := range allocation.texts("namespaces") {
		p.spec.Namespaces = append(p.spec.Namespaces, v1alpha1.Namespace(name))
	}
	p.spec.NamespaceSelectors = allocation.selectors("namespaceSelectors")
	p.spec.ServiceSelectors = allocation.selectors("serviceSelectors")
	allocation.done()
	if o.kind == kindOldPool {
		m.advertisedWithin(f)
	}
	f.done()
	if slices.ContainsFunc(m.pools, func(other *lbPool) bool { return other.name == p.name }) {
		o.ToDo(o.line, o.about(""), "another pool has this name: rename one of them, as Herald's pools have no namespace")
	}
	m.pools = append(m.pools, p)
}

// addRange parses a network, given by any address in it, or a range.
func (p *lbPool) addRange(item *migrate.Tree) {
	s := item.Text()
	if network, err := netip.ParsePrefix(s); err == nil && network != network.Masked() {
		s = network.Masked().String() // in MetalLB too this is the whole network
	}
	r, err := pool.ParseRange(s)
	if err != nil {
		p.ToDo(item.Line, p.about("addresses"), "%s", sentence(err))
		return
	}
	p.ranges = append(p.ranges, r)
	p.spec.Addresses = append(p.spec.Addresses, v1alpha1.AddressRange(r.String()))
}

// advertisedWithin converts the advertisements within an old pool.
func (m *converter) advertisedWithin(f *fields) {
	newAdvertisement := func(kind string, line int) *advertisement {
		o := *f.object
		o.kind, o.line = kind, line
		return &advertisement{object: &o, pools: []string{f.name}, PoolBGP: v1alpha1.PoolBGP{AggregationLength: 32, AggregationLengthV6: 128}}
	}
	protocol := f.take("protocol")
	advertisements := f.take("bgpAdvertisements").Items
	switch {
	case protocol.Scalar == "layer2":
		m.onLink = append(m.onLink, newAdvertisement(kindL2, protocol.Line))
	case protocol.Scalar != "bgp":
		f.ToDo(f.line, f.about("protocol"), "is neither layer2 nor bgp: choose how to announce its addresses")
	case len(advertisements) == 0:
		m.routed = append(m.routed, newAdvertisement(kindBGP, protocol.Line))
	}
	for _, item := range advertisements {
		a := newAdvertisement(kindBGP, item.Line)
		in := &fields{object: f.object, in: kindBGP, left: item.Fields}
		m.attributes(a, in)
		in.done()
		m.routed = append(m.routed, a)
	}
}

// prioritise reverses MetalLB's order: in Herald the highest number is first.
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

// validatePools notes the pools that Herald would refuse.
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
				p.ToDo(p.line, p.about("addresses"), "routes of length %d reach beyond %s: each address gets its own route; for fewer routes give the pool whole networks", *length, r)
				*length = least
			}
		}
	}
}

// advertisement is a BGPAdvertisement or L2Advertisement: how the addresses of some pools are announced.
type advertisement struct {
	*object
	pools     []string
	selectors []v1alpha1.LabelSelector // of pools
	// For an L2Advertisement, Peers are the links, and only they and NodeSelectors are set.
	v1alpha1.PoolBGP
}

// advertisement converts a BGPAdvertisement or L2Advertisement.
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

// attributes converts path attributes. resolve looks up names of communities later.
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

// pendingCommunity is a community of an advertisement, by value or name.
type pendingCommunity struct {
	dst   *advertisement
	about string
	value *migrate.Tree
}

// community records the names of communities.
func (m *converter) community(o *object) {
	f := o.fields()
	for _, item := range f.take("communities").Items {
		in := f.nested("communities[].", item)
		name, value := in.text("name"), in.text("value")
		in.done()
		if name != "" {
			m.aliases[name] = value
		}
	}
	f.done()
}

// resolve sets the communities of advertisements.
func (m *converter) resolve() {
	for _, p := range m.pending {
		s := p.value.Text()
		if value, ok := m.aliases[s]; ok {
			s = value
		}
		if rest, isLarge := strings.CutPrefix(s, "large:"); isLarge {
			if c, err := v1alpha1.ParseLargeCommunity(rest); err == nil {
				p.dst.LargeCommunities = union(p.dst.LargeCommunities, []v1alpha1.LargeCommunity{c})
				continue
			}
		} else if c, err := v1alpha1.ParseCommunity(s); err == nil {
			p.dst.Communities = union(p.dst.Communities, []v1alpha1.Community{c})
			continue
		}
		p.dst.ToDo(p.value.Line, p.about, "%s is neither a community nor the name of one in these files", migrate.Quoted(p.value.Scalar))
	}
}

// union appends the items of b that a lacks to a.
func union[T comparable](a, b []T) []T {
	out := slices.Clone(a)
	for _, x := range b {
		if !slices.Contains(out, x) {
			out = append(out, x)
		}
	}
	return out
}

// selects reports whether a applies to p. Without names and selectors it applies to all pools.
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
			p.Note(p.line, p.about(""), "has no advertisement in these files: the addresses of its Services are not announced")
		}
	}
	for _, a := range slices.Concat(m.routed, m.onLink) {
		for _, name := range a.pools {
			if !known[name] {
				a.Note(a.line, a.about("ipAddressPools"), "these files have no pool %s", migrate.Quoted(name))
			}
		}
	}
}

// merge combines the advertisements that select p, since Herald announces a pool in one way. It notes those
// that cannot be combined, and returns nil if none selects p.
func (p *lbPool) merge(all []*advertisement) *advertisement {
	var merged *advertisement
	for _, a := range all {
		switch {
		case !a.selects(p):
		case merged == nil:
			first := *a
			merged = &first
		case !merged.absorb(a):
			file, line := a.Locate(merged.line)
			a.ToDo(a.line, a.about(""), "Herald announces a pool in one way, %s as in %s:%d: this advertisement is not carried over; divide the pool if both are needed", p.about(""), file, line)
		}
	}
	return merged
}

// absorb adds b to a. It reports false, and changes nothing, if they differ in more than one respect.
func (a *advertisement) absorb(b *advertisement) bool {
	sameNodes := reflect.DeepEqual(a.NodeSelectors, b.NodeSelectors)
	samePeers := slices.Equal(a.Peers, b.Peers)
	sameWay := reflect.DeepEqual(a.Attributes, b.Attributes)
	switch {
	case a.AggregationLength != b.AggregationLength || a.AggregationLengthV6 != b.AggregationLengthV6:
		return false
	case sameNodes && samePeers && reflect.DeepEqual(a.LocalPref, b.LocalPref):
		a.Communities = union(a.Communities, b.Communities)
		a.LargeCommunities = union(a.LargeCommunities, b.LargeCommunities)
	case sameWay && samePeers && (len(a.NodeSelectors) == 0 || len(b.NodeSelectors) == 0):
		a.NodeSelectors = nil
	case sameWay && samePeers:
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
