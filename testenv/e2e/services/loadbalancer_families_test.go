//go:build e2e

package services

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/herald-vip/herald/testenv/e2e/site"
	"github.com/herald-vip/herald/testenv/services"
)

// families returns an edit that sets these families and this policy.
func families(policy corev1.IPFamilyPolicy, list ...corev1.IPFamily) func(*corev1.Service) {
	return func(s *corev1.Service) { s.Spec.IPFamilyPolicy, s.Spec.IPFamilies = &policy, list }
}

// familiesOf returns the families of addresses, in order.
func familiesOf(list []netip.Addr) (out []corev1.IPFamily) {
	for _, a := range list {
		if a.Is4() {
			out = append(out, corev1.IPv4Protocol)
		} else {
			out = append(out, corev1.IPv6Protocol)
		}
	}
	return out
}

// testFamilies: a Service has an address of each of its families, in their order.
func (b *balancers) testFamilies(t *testing.T) {
	const v4, v6 = corev1.IPv4Protocol, corev1.IPv6Protocol
	b.slice(t, "stack-ipv6", "stack", discoveryv1.AddressTypeIPv6, discoveryv1.Endpoint{Addresses: []string{"fd00:5::1"}})
	for _, c := range []struct {
		name string
		edit func(*corev1.Service)
		want []corev1.IPFamily
	}{
		{"none given", func(*corev1.Service) {}, []corev1.IPFamily{v4}},
		{"ipv4", families(corev1.IPFamilyPolicySingleStack, v4), []corev1.IPFamily{v4}},
		{"ipv6", families(corev1.IPFamilyPolicySingleStack, v6), []corev1.IPFamily{v6}},
		{"both preferred", families(corev1.IPFamilyPolicyPreferDualStack), []corev1.IPFamily{v4, v6}},
		{"ipv4, then ipv6", families(corev1.IPFamilyPolicyRequireDualStack, v4, v6), []corev1.IPFamily{v4, v6}},
		{"ipv6, then ipv4", families(corev1.IPFamilyPolicyRequireDualStack, v6, v4), []corev1.IPFamily{v6, v4}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b.create(t, balancer("stack", c.edit), "n1")
			got := b.assigned(t, "stack", len(c.want))
			if !slices.Equal(familiesOf(got), c.want) {
				t.Errorf("it has %v, want %v", got, c.want)
			}
			for _, vip := range got {
				b.announced(t, vip, b.Members()...)
			}
			site.Must(t, b.Remove(t.Context(), "stack"))
			for _, vip := range got {
				b.announced(t, vip)
			}
		})
	}
	// With a pool of one family only, one address is enough for a Service that prefers
	// both families, but not for one requiring them.
	b.create(t, balancer("preferring", families(corev1.IPFamilyPolicyPreferDualStack), annotated("pool", services.PoolARP)), "n1")
	b.assigned(t, "preferring", 1)
	b.create(t, balancer("requiring", families(corev1.IPFamilyPolicyRequireDualStack), annotated("pool", services.PoolARP)), "n1")
	if got := addressesOf(b.awaits(t, "requiring", "NoPool")); len(got) > 0 {
		t.Errorf("it has the addresses %v, want both families", got)
	}
}

// testFamiliesChange: the first address of a Service stays when a second one comes and goes.
func (b *balancers) testFamiliesChange(t *testing.T) {
	const v4, v6 = corev1.IPv4Protocol, corev1.IPv6Protocol
	b.slice(t, "grows-ipv6", "grows", discoveryv1.AddressTypeIPv6, discoveryv1.Endpoint{Addresses: []string{"fd00:5::1"}})
	b.create(t, balancer("grows", families(corev1.IPFamilyPolicySingleStack, v4)), "n1")
	first := b.address(t, "grows")
	b.settled(t) // the earlier Service with this address is withdrawn
	b.leads(t, first, b.Members()...)
	b.routes.Mark()
	for range 2 {
		b.update(t, "grows", families(corev1.IPFamilyPolicyRequireDualStack, v4, v6))
		var second netip.Addr
		site.Eventually(t, site.Soon, func() error {
			got := addressesOf(b.get(t, "grows"))
			if len(got) != 2 || got[0] != first {
				return fmt.Errorf("it has %v, want %s and another", got, first)
			}
			second = got[1]
			return nil
		})
		b.announced(t, second, b.Members()...)
		b.update(t, "grows", func(s *corev1.Service) {
			single := corev1.IPFamilyPolicySingleStack
			s.Spec.IPFamilyPolicy, s.Spec.IPFamilies = &single, []corev1.IPFamily{v4}
			s.Spec.ClusterIPs = s.Spec.ClusterIPs[:1]
		})
		b.hasAddresses(t, "grows", first)
		b.announced(t, second)
	}
	b.unmoved(t, first)
}

// announced waits until exactly these nodes announce an address, by their speakers'
// status: the router of this cluster has no IPv6.
func (b *balancers) announced(t *testing.T, address netip.Addr, nodes ...string) {
	t.Helper()
	site.Eventually(t, site.Soon, func() error {
		for _, node := range b.Members() {
			got, err := b.announcedBy(t, node)
			if err != nil {
				return err
			}
			if announces := slices.Contains(got, address); announces != slices.Contains(nodes, node) {
				return fmt.Errorf("%s announces %s: %t", node, address, announces)
			}
		}
		return nil
	})
}

// announcedBy returns the Services' addresses that a node announces by BGP, from its status.
func (b *balancers) announcedBy(t *testing.T, node string) (list []netip.Addr, err error) {
	t.Helper()
	all, err := b.admin(node).Services(t.Context())
	if err != nil {
		return nil, err
	}
	for _, s := range all {
		for _, a := range s.Addresses {
			if a.Stage != "withdrawn" {
				list = append(list, a.Address)
			}
		}
	}
	return list, nil
}
