package tenant

import (
	"fmt"
	"iter"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/service/pool"
)

// Reserved are addresses of the load-balancing cluster itself, to which no tenant may have connections sent.
type Reserved []reservation

type reservation struct {
	pool.Range
	what string
}

// ReservedBy are the addresses of nodes and of their pods, and those of pools.
func ReservedBy(nodes iter.Seq[*corev1.Node], pools iter.Seq[*v1alpha1.AddressPool]) Reserved {
	var out Reserved
	for n := range nodes {
		for _, a := range n.Status.Addresses {
			if addr, err := netip.ParseAddr(a.Address); err == nil { // others are names
				out = append(out, reservation{pool.Range{First: addr, Last: addr}, "an address of the node " + n.Name})
			}
		}
		for _, block := range n.Spec.PodCIDRs {
			out = out.add(block, "of the pods on node "+n.Name)
		}
	}
	for p := range pools {
		for _, text := range p.Spec.Addresses {
			out = out.add(string(text), "of the pool "+p.Name)
		}
	}
	return out
}

// add reserves a range. A text that is no range reserves nothing: the object that has it tells of it.
func (r Reserved) add(text, what string) Reserved {
	if parsed, err := pool.ParseRange(text); err == nil {
		r = append(r, reservation{parsed, what})
	}
	return r
}

// refuse is why no connections may be sent to an address, empty if they may.
func (r Reserved) refuse(addr netip.Addr) string {
	if !addr.IsGlobalUnicast() {
		return "not an address that others can reach"
	}
	for _, taken := range r {
		if taken.Contains(addr) {
			return taken.what
		}
	}
	return ""
}

// Limits are what a tenant may ask for.
type Limits struct {
	nodes, endpoints []netip.Prefix
	first, last      int32 // node ports
	mostNodes        int
	reserved         Reserved
}

// LimitsOf are those of a Tenant. The API server has checked its form.
func LimitsOf(t *v1alpha1.Tenant, reserved Reserved) Limits {
	l := Limits{nodes: prefixes(t.Spec.Nodes.CIDRs), endpoints: prefixes(t.Spec.Endpoints.CIDRs), reserved: reserved, mostNodes: int(t.Spec.Quota.Nodes)}
	_, _ = fmt.Sscanf(t.Spec.Nodes.Ports, "%d-%d", &l.first, &l.last) // what is no range allows no port
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

// Conflict is why a Tenant cannot be served beside others: an earlier one has some of its addresses. Empty if it can.
func Conflict(t *v1alpha1.Tenant, others iter.Seq[*v1alpha1.Tenant]) string {
	for o := range others {
		if o.Name == t.Name || !earlier(o, t) {
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

// ConflictOfDomains is why it cannot be served by names: an earlier one has some of its domains, or the load-balancing cluster has that domain.
func ConflictOfDomains(t *v1alpha1.Tenant, others iter.Seq[*v1alpha1.Tenant], domain string) string {
	for _, a := range t.Spec.Domains {
		if domain != "" && overlap(string(a), domain) {
			return fmt.Sprintf("it has the domain %s, which overlaps %s, of which each tenant has a part already: leave it out", a, domain)
		}
		for o := range others {
			for _, b := range o.Spec.Domains {
				if o.Name != t.Name && earlier(o, t) && overlap(string(a), string(b)) {
					return fmt.Sprintf("it has the domain %s, which overlaps %s of the tenant %s: give each tenant domains of its own", a, b, o.Name)
				}
			}
		}
	}
	return ""
}

func overlap(a, b string) bool { return within(a, b) || within(b, a) }

func earlier(a, b *v1alpha1.Tenant) bool {
	if !a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return a.CreationTimestamp.Before(&b.CreationTimestamp)
	}
	return a.Name < b.Name
}

// allowed reads an address, which has to be in one of the blocks.
func (l Limits) allowed(text string, blocks []netip.Prefix, field string) (netip.Addr, error) {
	addr, err := netip.ParseAddr(text)
	if err != nil || addr.Zone() != "" {
		return addr, fmt.Errorf("%q is no address", text)
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

// Check says why a TCPLoadBalancer is not served: what of it the Tenant does not allow.
func (l Limits) Check(lb *v1alpha1.TCPLoadBalancer) error {
	spec := &lb.Spec
	origin := spec.Origin.Namespace + "/" + spec.Origin.Name
	if want := LoadBalancerName(origin); lb.Name != want {
		return fmt.Errorf("its name is not that of %s: want %s", origin, want)
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
