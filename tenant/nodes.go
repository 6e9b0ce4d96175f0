package tenant

import (
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/herald-vip/herald/api/v1alpha1"
)

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
