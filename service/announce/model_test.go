package announce_test

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/bgp"
	"github.com/herald-vip/herald/service"
	"github.com/herald-vip/herald/service/announce"
	"github.com/herald-vip/herald/service/pool"
	"github.com/herald-vip/herald/speaker/flat"
)

// model is the set of all objects. It computes the desired routes from scratch.
type model struct {
	services map[string]*corev1.Service
	slices   map[string]*discoveryv1.EndpointSlice
	nodes    map[string]*corev1.Node
	pools    map[string]*v1alpha1.AddressPool
	config   announce.Config
	draining bool
}

// claims returns the Services of each address, oldest first, without Services that may not share it.
func (m *model) claims() map[netip.Addr][]*corev1.Service {
	out := make(map[netip.Addr][]*corev1.Service)
	for _, s := range m.services {
		if s.Spec.Type != corev1.ServiceTypeLoadBalancer || s.DeletionTimestamp != nil {
			continue
		}
		for _, ingress := range s.Status.LoadBalancer.Ingress {
			addr := netip.MustParseAddr(ingress.IP)
			out[addr] = append(out[addr], s)
		}
	}
	for addr, all := range out {
		slices.SortFunc(all, func(x, y *corev1.Service) int {
			return cmp.Or(x.CreationTimestamp.Compare(y.CreationTimestamp.Time), cmp.Compare(x.Name, y.Name))
		})
		key := all[0].Annotations["herald.dev/share"]
		out[addr] = slices.DeleteFunc(all, func(s *corev1.Service) bool {
			return s != all[0] && (key == "" || s.Annotations["herald.dev/share"] != key ||
				s.Spec.ExternalTrafficPolicy != all[0].Spec.ExternalTrafficPolicy ||
				isLocal(s) && s.Spec.Selector["app"] != all[0].Spec.Selector["app"])
		})
	}
	return out
}

func isLocal(s *corev1.Service) bool {
	return s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
}

// onNode reports whether a Service needs an endpoint on the announcing node.
func (m *model) onNode(s *corev1.Service) bool {
	return isLocal(s) || m.config.RequireEndpoints == service.OnNode
}

// backed reports whether the endpoints let a node serve an address of a Service.
func (m *model) backed(s *corev1.Service, addr netip.Addr, node string) bool {
	if !m.onNode(s) && m.config.RequireEndpoints != service.Any {
		return true
	}
	var ready, ending []string // nodes
	for _, slice := range m.slices {
		if slice.Labels[discoveryv1.LabelServiceName] != s.Name || string(slice.AddressType) != pool.FamilyOf(addr).String() {
			continue
		}
		for _, e := range slice.Endpoints {
			yes := func(b *bool, unknown bool) bool { return b == nil && unknown || b != nil && *b }
			name := ""
			if e.NodeName != nil {
				name = *e.NodeName
			}
			if yes(e.Conditions.Ready, true) {
				ready = append(ready, name)
			} else if yes(e.Conditions.Serving, true) && yes(e.Conditions.Terminating, false) {
				ending = append(ending, name)
			}
		}
	}
	if len(ready) == 0 {
		ready = ending
	}
	return len(ready) > 0 && !m.onNode(s) || slices.Contains(ready, node)
}

// poolOf returns the oldest pool that contains an address, or nil.
func (m *model) poolOf(addr netip.Addr) *v1alpha1.AddressPool {
	var found *v1alpha1.AddressPool
	for _, p := range m.pools {
		for _, text := range p.Spec.Addresses {
			r, _ := pool.ParseRange(string(text))
			in := r.First.BitLen() == addr.BitLen() && r.First.Compare(addr) <= 0 && addr.Compare(r.Last) <= 0
			if in && (found == nil || cmp.Or(p.CreationTimestamp.Compare(found.CreationTimestamp.Time), cmp.Compare(p.Name, found.Name)) < 0) {
				found = p
			}
		}
	}
	return found
}

func (m *model) fit(node string, selectors []v1alpha1.LabelSelector) bool {
	n, ok := m.nodes[node]
	if !ok || !m.config.Fitness.Fit(n).OK() {
		return false
	}
	list, _ := service.SelectorsOf(selectors)
	return list.Match(n.Labels)
}

// routes returns the desired routes.
func (m *model) routes() map[netip.Prefix]bgp.Route {
	out := make(map[netip.Prefix]bgp.Route)
	if m.draining || len(m.config.Peers) == 0 {
		return out
	}
	for addr, services := range m.claims() {
		p := m.poolOf(addr)
		if p == nil || p.Spec.BGP == nil {
			continue
		}
		how, _ := announcement(p, services[0])
		if slices.Contains(m.config.Reserved, addr) || !m.fit(m.config.Node, how.NodeSelectors) ||
			!slices.ContainsFunc(services, func(s *corev1.Service) bool { return m.backed(s, addr, m.config.Node) }) {
			continue
		}
		r := bgp.Route{Prefix: m.network(addr, p, services[0]), Attributes: m.config.Attributes.Merge(how.Attributes)}
		for _, name := range how.Peers {
			r.Peers = append(r.Peers, m.config.Peers[name]...)
		}
		slices.Sort(r.Peers)
		r.Peers = slices.Compact(r.Peers)
		carriers := r.Peers
		if how.Peers == nil {
			carriers = slices.Concat(slices.Collect(maps.Values(m.config.Peers))...)
		}
		if slices.ContainsFunc(carriers, func(peer string) bool {
			only, limited := m.config.Only[peer]
			return !limited || only == pool.FamilyOf(addr)
		}) {
			out[r.Prefix] = r
		}
	}
	return out
}

// announcement returns how a pool announces the addresses of a Service, and whether that is an exception.
func announcement(p *v1alpha1.AddressPool, s *corev1.Service) (how v1alpha1.PoolBGPException, exception bool) {
	for _, e := range p.Spec.BGP.Exceptions {
		if selectors, _ := service.SelectorsOf(e.ServiceSelectors); selectors.Match(s.Labels) {
			return e, true
		}
	}
	return v1alpha1.PoolBGPException{Peers: p.Spec.BGP.Peers, NodeSelectors: p.Spec.BGP.NodeSelectors, Attributes: p.Spec.BGP.Attributes}, false
}

func (m *model) network(addr netip.Addr, p *v1alpha1.AddressPool, s *corev1.Service) netip.Prefix {
	host := netip.PrefixFrom(addr, addr.BitLen())
	if _, exception := announcement(p, s); exception {
		return host
	}
	length := int(p.Spec.BGP.AggregationLength)
	if addr.Is6() {
		length = int(p.Spec.BGP.AggregationLengthV6)
	}
	network, _ := addr.Prefix(length)
	for a := network.Addr(); network.Contains(a) && length < addr.BitLen(); a = a.Next() {
		if m.poolOf(a) != p || slices.Contains(m.config.Reserved, a) {
			return host
		}
	}
	return network
}

// flat returns the addresses that this node may hold.
func (m *model) flat() []flat.Address {
	var out []flat.Address
	for addr, services := range m.claims() {
		p := m.poolOf(addr)
		if p == nil || p.Spec.ARP == nil || slices.Contains(m.config.Reserved, addr) {
			continue
		}
		a := flat.Address{Addr: addr, Pool: p.Name, Service: "default/" + services[0].Name}
		for name := range m.nodes {
			if m.fit(name, p.Spec.ARP.NodeSelectors) &&
				slices.ContainsFunc(services, func(s *corev1.Service) bool { return m.backed(s, addr, name) }) {
				a.Nodes = append(a.Nodes, name)
			}
		}
		if slices.Contains(a.Nodes, m.config.Node) {
			slices.Sort(a.Nodes)
			a.Preempt, a.Preferred = p.Spec.ARP.Preempt, m.preferred(addr, p.Spec.ARP.Preferences, services[0], a.Nodes)
			if own := slices.Compact(slices.SortedFunc(slices.Values(service.StatusAddresses(services[0])), netip.Addr.Compare)); len(own) > 1 {
				a.Apart = apart(own, addr)
			}
			out = append(out, a)
		}
	}
	slices.SortFunc(out, func(x, y flat.Address) int { return x.Addr.Compare(y.Addr) })
	return out
}

// apart returns the other address of a pair, which another node should hold.
func apart(own []netip.Addr, addr netip.Addr) netip.Addr {
	for pair := range slices.Chunk(own, 2) {
		if i := slices.Index(pair, addr); i >= 0 && len(pair) == 2 {
			return pair[1-i]
		}
	}
	return netip.Addr{}
}

// preferred returns the preference of each node as the holder of an address.
func (m *model) preferred(addr netip.Addr, preferences []v1alpha1.Preference, s *corev1.Service, nodes []string) map[string]int {
	named := strings.FieldsFunc(s.Annotations["herald.dev/prefer-nodes"], func(r rune) bool { return r == ',' })
	if len(preferences)+len(named) == 0 {
		return nil
	}
	strict := *m
	strict.config.RequireEndpoints = service.OnNode
	out := make(map[string]int)
	for _, node := range nodes {
		if i := slices.Index(named, node); i >= 0 {
			out[node] = 2047 - i
			continue
		}
		for _, p := range preferences {
			selectors, _ := service.SelectorsOf(p.NodeSelectors)
			if selectors.Match(m.nodes[node].Labels) && (!p.Endpoints || strict.backed(s, addr, node)) {
				out[node] += int(p.Weight)
			}
		}
	}
	return out
}

// counts counts the addresses of Services with and without a route to this node.
func (m *model) counts() (announced, withdrawn int) {
	routes := m.routes()
	for addr, services := range m.claims() {
		p := m.poolOf(addr)
		if p != nil && p.Spec.BGP != nil {
			if _, ok := routes[m.network(addr, p, services[0])]; ok && m.announces(addr) {
				announced++
				continue
			}
		}
		withdrawn++
	}
	return announced, withdrawn
}

// announces reports whether an address itself is announced, regardless of others in
// its aggregate.
func (m *model) announces(addr netip.Addr) bool {
	alone := *m
	alone.services = make(map[string]*corev1.Service)
	for name, s := range m.services {
		s = s.DeepCopy()
		s.Status.LoadBalancer.Ingress = slices.DeleteFunc(s.Status.LoadBalancer.Ingress, func(i corev1.LoadBalancerIngress) bool {
			return netip.MustParseAddr(i.IP) != addr
		})
		alone.services[name] = s
	}
	return len(alone.routes()) > 0
}
