package tenant

import (
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/service"
	"github.com/herald-vip/herald/service/pool"
)

// Reserved are addresses of the load-balancing cluster itself. No tenant may direct connections to them.
type Reserved []reservation

type reservation struct {
	pool.Range
	owner string
}

// ReservedBy returns the addresses of nodes, pods and pools.
func ReservedBy(nodes iter.Seq[*corev1.Node], pools iter.Seq[*v1alpha1.AddressPool]) Reserved {
	var out Reserved
	for n := range nodes {
		for _, a := range n.Status.Addresses {
			if addr, err := netip.ParseAddr(a.Address); err == nil { // else it is a name
				out = append(out, reservation{pool.Range{First: addr, Last: addr}, "an address of the node " + n.Name})
			}
		}
		for _, block := range n.Spec.PodCIDRs {
			out = out.add(block, "in the pod range of node "+n.Name)
		}
	}
	for p := range pools {
		for _, text := range p.Spec.Addresses {
			out = out.add(string(text), "in the pool "+p.Name)
		}
	}
	return out
}

// add reserves a range. It ignores invalid text, which the status of its object reports.
func (r Reserved) add(text, owner string) Reserved {
	if parsed, err := pool.ParseRange(text); err == nil {
		r = append(r, reservation{parsed, owner})
	}
	return r
}

// refuse returns why an address may not receive connections; empty if it may.
func (r Reserved) refuse(addr netip.Addr) string {
	if !addr.IsGlobalUnicast() {
		return "not a global unicast address"
	}
	for _, taken := range r {
		if taken.Contains(addr) {
			return taken.owner
		}
	}
	return ""
}

// Limits are the limits of a tenant's requests.
type Limits struct {
	nodes, endpoints []netip.Prefix
	first, last      int32 // node ports
	mostNodes        int
	reserved         Reserved
}

// LimitsOf returns the limits of a Tenant. The API server has validated the Tenant.
func LimitsOf(t *v1alpha1.Tenant, reserved Reserved) Limits {
	l := Limits{nodes: prefixes(t.Spec.Nodes.CIDRs), endpoints: prefixes(t.Spec.Endpoints.CIDRs), reserved: reserved, mostNodes: int(t.Spec.Quota.Nodes)}
	_, _ = fmt.Sscanf(t.Spec.Nodes.Ports, "%d-%d", &l.first, &l.last) // an invalid range allows no port
	return l
}

func prefixes(texts []v1alpha1.CIDR) []netip.Prefix {
	var out []netip.Prefix
	for _, text := range texts {
		if p, err := netip.ParsePrefix(string(text)); err == nil {
			out = append(out, p)
		}
	}
	return out
}

// Conflict returns why a Tenant cannot be served: an earlier Tenant has some of its addresses. Empty if it can.
func Conflict(t *v1alpha1.Tenant, others iter.Seq[*v1alpha1.Tenant]) string {
	for o := range others {
		if o.Name == t.Name || service.Older(o, t) > 0 {
			continue
		}
		for _, pair := range [][2][]v1alpha1.CIDR{
			{t.Spec.Nodes.CIDRs, o.Spec.Nodes.CIDRs}, {t.Spec.Nodes.CIDRs, o.Spec.Endpoints.CIDRs}, {t.Spec.Endpoints.CIDRs, o.Spec.Nodes.CIDRs},
		} {
			for _, a := range prefixes(pair[0]) {
				for _, b := range prefixes(pair[1]) {
					if a.Overlaps(b) {
						return fmt.Sprintf("it has %s, which overlaps %s of the tenant %s: give the nodes of each tenant addresses of their own", a, b, o.Name)
					}
				}
			}
		}
	}
	return ""
}

// ConflictOfDomains returns why a Tenant's routes cannot be served: an earlier Tenant, or the load-balancing cluster
// itself, has one of its domains. Empty if they can.
func ConflictOfDomains(t *v1alpha1.Tenant, others iter.Seq[*v1alpha1.Tenant], domain string) string {
	for _, a := range t.Spec.Domains {
		if domain != "" && overlap(string(a), domain) {
			return fmt.Sprintf("it has the domain %s, which overlaps %s, the domain of the load-balancing cluster: remove it", a, domain)
		}
		for o := range others {
			for _, b := range o.Spec.Domains {
				if o.Name != t.Name && service.Older(o, t) < 0 && overlap(string(a), string(b)) {
					return fmt.Sprintf("it has the domain %s, which overlaps %s of the tenant %s: give each tenant domains of its own", a, b, o.Name)
				}
			}
		}
	}
	return ""
}

func overlap(a, b string) bool { return within(a, b) || within(b, a) }

// allowed parses an address and checks that one of the blocks contains it.
func (l Limits) allowed(text string, blocks []netip.Prefix, field string) (netip.Addr, error) {
	addr, err := netip.ParseAddr(text)
	if err != nil || addr.Zone() != "" {
		return addr, fmt.Errorf("%q is not an address", text)
	}
	addr = addr.Unmap()
	if !slices.ContainsFunc(blocks, func(p netip.Prefix) bool { return p.Contains(addr) }) {
		return addr, fmt.Errorf("%s is not in the %s of the Tenant", addr, field)
	}
	if why := l.reserved.refuse(addr); why != "" {
		return addr, fmt.Errorf("%s is %s", addr, why)
	}
	return addr, nil
}

// Check returns the first part of a TCPLoadBalancer that the Tenant does not allow; nil if it allows all.
func (l Limits) Check(lb *v1alpha1.TCPLoadBalancer) error {
	spec := &lb.Spec
	origin := spec.Origin.Namespace + "/" + spec.Origin.Name
	if want := v1alpha1.LoadBalancerName(origin); lb.Name != want {
		return fmt.Errorf("its name does not match its origin %s: want %s", origin, want)
	}
	for _, text := range spec.Endpoints {
		if _, err := l.allowed(text, l.endpoints, "endpoints.cidrs"); err != nil {
			return fmt.Errorf("an endpoint is refused: %w", err)
		}
	}
	if len(spec.Endpoints) > 0 {
		return nil
	}
	for _, p := range spec.Ports {
		if p.TargetPort < l.first || p.TargetPort > l.last {
			return fmt.Errorf("node port %d is not in the nodes.ports of the Tenant, %d-%d", p.TargetPort, l.first, l.last)
		}
	}
	return nil
}

// toBeDeleted is the taint of nodes that a cluster autoscaler is about to delete.
const toBeDeleted = "ToBeDeletedByClusterAutoscaler"

// NodesOf reports nodes: the first address of the type of each family, and whether the node accepts new connections. It
// omits nodes without an address.
func NodesOf(nodes iter.Seq[*corev1.Node], addressType corev1.NodeAddressType) []v1alpha1.TenantNode {
	var out []v1alpha1.TenantNode
	for n := range nodes {
		node := v1alpha1.TenantNode{Name: n.Name, Zone: n.Labels[corev1.LabelTopologyZone], Ready: takesConnections(n)}
		found := make(map[bool]bool) // by whether the family is IPv4
		for _, a := range n.Status.Addresses {
			addr, err := netip.ParseAddr(a.Address)
			if err == nil && addr.Zone() == "" && a.Type == addressType && !found[addr.Is4()] {
				found[addr.Is4()] = true
				node.Addresses = append(node.Addresses, addr.String())
			}
		}
		if len(node.Addresses) > 0 {
			out = append(out, node)
		}
	}
	slices.SortFunc(out, func(a, b v1alpha1.TenantNode) int { return strings.Compare(a.Name, b.Name) })
	return out
}

func takesConnections(n *corev1.Node) bool {
	if _, excluded := n.Labels[corev1.LabelNodeExcludeBalancers]; excluded || n.DeletionTimestamp != nil {
		return false
	}
	if slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == toBeDeleted }) {
		return false
	}
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// Node is a node of a tenant that may receive connections.
type Node struct {
	Name, Zone string
	Addrs      []netip.Addr // at most one per family
	Ready      bool
}

// Nodes returns the nodes of a tenant within its limits, sorted by name, and a sentence about each refused address.
func (l Limits) Nodes(reported []v1alpha1.TenantNode) (nodes []Node, refused []string) {
	if len(reported) > l.mostNodes {
		refused = append(refused, fmt.Sprintf("it has %d nodes, but quota.nodes of the Tenant allows %d", len(reported), l.mostNodes))
		reported = reported[:l.mostNodes]
	}
	taken := make(map[netip.Addr]bool)
	for _, n := range reported {
		node := Node{Name: n.Name, Zone: n.Zone, Ready: n.Ready}
		for _, text := range n.Addresses {
			addr, err := l.allowed(text, l.nodes, "nodes.cidrs")
			if err == nil && taken[addr] {
				err = fmt.Errorf("%s also belongs to another node", addr)
			}
			if err != nil {
				refused = append(refused, fmt.Sprintf("node %s: %v", n.Name, err))
				continue
			}
			taken[addr] = true
			node.Addrs = append(node.Addrs, addr)
		}
		if len(node.Addrs) > 0 {
			nodes = append(nodes, node)
		}
	}
	slices.SortFunc(nodes, func(a, b Node) int { return strings.Compare(a.Name, b.Name) })
	return nodes, refused
}
