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

// toBeDeleted is a taint that cluster autoscalers put on nodes that they are about to delete.
const toBeDeleted = "ToBeDeletedByClusterAutoscaler"

// NodesOf tells of nodes: the first address of each family that is of the type, and whether new connections may be sent
// there. Nodes without an address are left out.
func NodesOf(nodes iter.Seq[*corev1.Node], addressType corev1.NodeAddressType) []v1alpha1.TenantNode {
	var out []v1alpha1.TenantNode
	for n := range nodes {
		told := v1alpha1.TenantNode{Name: n.Name, Zone: n.Labels[corev1.LabelTopologyZone], Ready: takesConnections(n)}
		has := make(map[bool]bool) // an address of IPv4, or of IPv6
		for _, a := range n.Status.Addresses {
			addr, err := netip.ParseAddr(a.Address)
			if err == nil && addr.Zone() == "" && a.Type == addressType && !has[addr.Is4()] {
				has[addr.Is4()] = true
				told.Addresses = append(told.Addresses, addr.String())
			}
		}
		if len(told.Addresses) > 0 {
			out = append(out, told)
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

// Node is a node of a tenant that connections may be sent to.
type Node struct {
	Name, Zone string
	Addrs      []netip.Addr // of each family one at most
	Ready      bool
}

// Nodes are those of a tenant within its limits, by name, and a sentence about each address that is beyond them.
func (l Limits) Nodes(told []v1alpha1.TenantNode) (nodes []Node, refused []string) {
	if len(told) > l.mostNodes {
		refused = append(refused, fmt.Sprintf("it has %d nodes, of which quota.nodes of the Tenant allows %d", len(told), l.mostNodes))
		told = told[:l.mostNodes]
	}
	taken := make(map[netip.Addr]bool)
	for _, n := range told {
		node := Node{Name: n.Name, Zone: n.Zone, Ready: n.Ready}
		for _, text := range n.Addresses {
			addr, err := l.allowed(text, l.nodes, "nodes.cidrs")
			if err == nil && taken[addr] {
				err = fmt.Errorf("%s is another node's, too", addr)
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
