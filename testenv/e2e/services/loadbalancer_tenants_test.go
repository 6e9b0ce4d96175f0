//go:build e2e

package services

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/herald-vip/herald/testenv/e2e/site"
	"github.com/herald-vip/herald/testenv/services"
)

// TestLoadBalancerTenants has clumsy or hostile tenants write everything that the API
// server lets them write. The others keep their routes: one of their Services is
// reachable throughout.
func TestLoadBalancerTenants(t *testing.T) {
	b := startBalancers(t, nil)
	vip := b.led(t, balancer("bystander", local), "n1", "n3")
	b.routes.Mark()
	for _, sub := range []struct {
		name string
		test func(*testing.T)
	}{
		{"absurd wishes", b.testAbsurd},
		{"thousands of ports", b.testManyPorts},
		{"one address wanted by many", b.testWanted},
		{"another Service's address", b.testThief},
		{"slices without a Service", b.testSlices},
		{"a Service that changes all the time", b.testRestless},
	} {
		t.Run(sub.name, sub.test)
		b.unmoved(t, vip)
		b.healthy(t)
	}
}

// testAbsurd: impossible requests are refused in a condition, once, in a sentence of limited
// length.
func (b *balancers) testAbsurd(t *testing.T) {
	const most = 1024
	legacy := func(address string) func(*corev1.Service) {
		return func(s *corev1.Service) { s.Spec.LoadBalancerIP = address }
	}
	cases := []struct {
		name, reason string
		edit         func(*corev1.Service)
	}{
		{"words", "InvalidClaim", annotated("addresses", "a few, please")},
		{"commas", "InvalidClaim", annotated("addresses", strings.Repeat(",", 200_000))},
		{"digits", "InvalidClaim", annotated("addresses", strings.Repeat("1", 200_000))},
		{"three addresses", "InvalidClaim", annotated("addresses", "10.99.1.1,10.99.1.2,10.99.1.3")},
		{"two of a family", "InvalidClaim", annotated("addresses", "10.99.1.1,10.99.1.2")},
		{"of the other family", "InvalidClaim", annotated("addresses", "fd00:99::1")},
		{"a zone", "InvalidClaim", annotated("addresses", "fe80::1%eth1")},
		{"a prefix", "InvalidClaim", annotated("addresses", "10.99.0.0/16")},
		{"zero bytes", "InvalidClaim", annotated("addresses", "10.99.1.1\x00")},
		{"nowhere", "AddressNotInPool", annotated("addresses", "0.0.0.0")},
		{"everywhere", "AddressNotInPool", annotated("addresses", "255.255.255.255")},
		{"themselves", "AddressNotInPool", annotated("addresses", "127.0.0.1")},
		{"multicast", "AddressNotInPool", annotated("addresses", "224.0.0.1")},
		{"the router", "AddressNotInPool", annotated("addresses", "10.5.0.254")},
		{"the API server", "AddressNotInPool", annotated("addresses", "10.5.0.250")},
		{"two wishes", "InvalidClaim", func(s *corev1.Service) {
			annotated("addresses", "10.99.1.1")(s)
			legacy("10.99.1.2")(s)
		}},
		{"an old word", "InvalidClaim", legacy("any")},
		{"no pool", "NoPool", annotated("pool", "such")},
		{"a path", "NoPool", annotated("pool", "../../etc/passwd")},
		{"another pool", "AddressNotInPool", func(s *corev1.Service) {
			annotated("addresses", "10.99.1.1")(s)
			annotated("pool", services.PoolARP)(s)
		}},
		{"a long name", "InvalidClaim", annotated("pool", strings.Repeat("x", 200_000))},
		{"a terminal's escapes", "InvalidClaim", annotated("pool", "\x1b[2J")},
		{"a long key", "InvalidClaim", annotated("share", strings.Repeat("x", 200_000))},
		{"a key written backwards", "InvalidClaim", annotated("share", "\u202ekey")},
		{"an unknown annotation", "InvalidClaim", annotated("nonsense", "yes")},
		{"blanks", "Assigned", func(s *corev1.Service) {
			for _, name := range []string{"addresses", "pool", "share"} {
				annotated(name, " \t\n")(s)
			}
		}},
		{"IPv4 in IPv6", "Assigned", annotated("addresses", "::ffff:10.99.1.9")},
	}
	for i, c := range cases {
		b.create(t, balancer(fmt.Sprintf("absurd-%d", i), c.edit))
	}
	for i, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s := b.awaits(t, fmt.Sprintf("absurd-%d", i), c.reason)
			if assigned := len(addressesOf(s)) == 1; assigned != (c.reason == "Assigned") {
				t.Errorf("it has the addresses %v", addressesOf(s))
			}
			if m := conditionOf(s).Message; len(m) > most || strings.ContainsFunc(m, func(r rune) bool { return r < ' ' }) {
				t.Errorf("a message of %d bytes: %.200q", len(m), m)
			}
		})
	}
	b.settled(t)
}

// testManyPorts: Services with thousands of ports share an address if they have no port in common.
func (b *balancers) testManyPorts(t *testing.T) {
	const many = 2000
	ports := func(first, step int32) func(*corev1.Service) {
		return func(s *corev1.Service) {
			no := false
			s.Spec.AllocateLoadBalancerNodePorts, s.Spec.Ports = &no, nil
			for i := range int32(many) {
				s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: fmt.Sprint("p", i), Port: first + i*step})
			}
		}
	}
	shares := []func(*corev1.Service){annotated("share", "many"), annotated("addresses", "10.99.2.2")}
	b.create(t, balancer("even", append(shares, ports(2, 2))...), "n1")
	b.address(t, "even")
	b.create(t, balancer("odd", append(shares, ports(3, 2))...), "n1")
	b.create(t, balancer("all", append(shares, ports(1, 1))...), "n1")
	b.address(t, "odd")
	if m := conditionOf(b.awaits(t, "all", "AddressConflict")).Message; len(m) > 1024 {
		t.Errorf("a message of %d bytes: %.200q", len(m), m)
	}
	b.settled(t)
}

// testWanted: of many Services that request one address one gets it, and after its
// deletion another does; the writes are no more than necessary.
func (b *balancers) testWanted(t *testing.T) {
	const many = 20
	want := netip.MustParseAddr("10.99.4.4")
	label := func(s *corev1.Service) { s.Labels = map[string]string{"wants": "it"} }
	before := b.settled(t)["patch services"]
	var all sync.WaitGroup
	for i := range many {
		s := balancer(fmt.Sprintf("wants-%d", i), annotated("addresses", want.String()), label)
		all.Go(func() {
			service := services.Service{Name: s.Name, Endpoints: []string{"n1"}, Edit: func(o *corev1.Service) { *o = *s }}
			if err := b.Create(t.Context(), service); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	for left := many; left > many-3; left-- {
		var winner string
		site.Eventually(t, site.Soon, func() error {
			winner = ""
			var list corev1.ServiceList
			site.Must(t, b.API.Get(t.Context(), services.Services, &list))
			refused := 0
			for i := range list.Items {
				s := &list.Items[i]
				switch c := conditionOf(s); {
				case !strings.HasPrefix(s.Name, "wants-"):
				case slices.Contains(addressesOf(s), want):
					winner = s.Name
				case c != nil && c.Reason == "AddressConflict":
					refused++
				}
			}
			return site.ErrorIf(winner == "" || refused != left-1, "%q has it, and %d of %d are refused", winner, refused, left-1)
		})
		b.leads(t, want, b.Members()...)
		site.Must(t, b.API.Delete(t.Context(), services.Services+"/"+winner))
	}
	// Four have had it in turn, and each of the others has been told the current owner.
	if wrote := b.settled(t)["patch services"] - before; wrote > 5*many {
		t.Errorf("%d writes about %d Services", wrote, many)
	}
	site.Must(t, b.API.Delete(t.Context(), services.Services+"?labelSelector=wants%3Dit"))
	b.leads(t, want)
}

// testThief: a user who writes another's address into the status of a Service gets no
// traffic with it, and the status is restored.
func (b *balancers) testThief(t *testing.T) {
	vip := b.led(t, balancer("owner", local), "n1")
	own := b.led(t, balancer("thief", local), "n2")
	b.update(t, "thief", func(s *corev1.Service) { metav1.SetMetaDataAnnotation(&s.ObjectMeta, forged, "yes") })
	b.settled(t)
	b.routes.Mark()
	for range 3 {
		b.patch(t, services.Services+"/thief/status", `{"status": {"loadBalancer": {"ingress": [{"ip": "`+vip.String()+`", "ipMode": "VIP"}]}}}`)
		b.hasAddresses(t, "thief", own)
	}
	b.leads(t, own, "n2")
	b.unmoved(t, vip)
}

// slice makes a slice of a Service, for the duration of the test.
func slice(t *testing.T, l *services.Lab, name, service string, kind discoveryv1.AddressType, endpoints ...discoveryv1.Endpoint) {
	t.Helper()
	s := &discoveryv1.EndpointSlice{
		TypeMeta:    metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"},
		ObjectMeta:  metav1.ObjectMeta{Name: name, Namespace: "default", Labels: map[string]string{discoveryv1.LabelServiceName: service}},
		AddressType: kind, Endpoints: endpoints,
	}
	site.Must(t, l.API.Create(t.Context(), services.Slices, s))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), site.Soon)
		defer cancel()
		_ = l.API.Delete(ctx, services.Slices+"/"+name) // the test may have done so
	})
}

// testSlices: nonsensical slices yield no endpoints, and duplicate ones count until both are gone.
func (b *balancers) testSlices(t *testing.T) {
	vip := b.led(t, balancer("sliced", local), "n1")
	b.routes.Mark()
	ctx := t.Context()
	n1, n2, nobody := "n1", "n2", "no-such-node"
	yes := true
	ready := discoveryv1.EndpointConditions{Ready: &yes}
	at := func(address string, node *string) discoveryv1.Endpoint {
		return discoveryv1.Endpoint{Addresses: []string{address}, NodeName: node, Conditions: ready}
	}
	slice(t, b.Lab, "of-nobody", "no-such-service", discoveryv1.AddressTypeIPv4, at("10.5.0.2", &n2))
	slice(t, b.Lab, "of-names", "sliced", discoveryv1.AddressTypeFQDN, at("example.com", &n2))
	slice(t, b.Lab, "of-ipv6", "sliced", discoveryv1.AddressTypeIPv6, at("fd00:5::2", &n2))
	slice(t, b.Lab, "on-no-node", "sliced", discoveryv1.AddressTypeIPv4, at("10.1.0.1", &nobody), at("10.1.0.2", nil))
	slice(t, b.Lab, "empty", "sliced", discoveryv1.AddressTypeIPv4)
	slice(t, b.Lab, "doubled", "sliced", discoveryv1.AddressTypeIPv4, at("10.5.0.1", &n1), at("10.5.0.1", &n1))
	var most []discoveryv1.Endpoint
	for i := range 1000 { // as many as a slice takes
		most = append(most, at(fmt.Sprintf("10.2.%d.%d", i/250, i%250+1), &n1))
	}
	slice(t, b.Lab, "largest", "sliced", discoveryv1.AddressTypeIPv4, most...)
	for i := range 100 {
		slice(t, b.Lab, fmt.Sprintf("piece-%d", i), "sliced", discoveryv1.AddressTypeIPv4, at(fmt.Sprintf("10.3.0.%d", i+1), &n1))
	}
	site.Must(t, b.RemoveEndpoint(ctx, "sliced", "n1"))
	site.Must(t, b.API.Delete(ctx, services.Slices+"/largest"))
	for i := range 100 {
		site.Must(t, b.API.Delete(ctx, services.Slices+fmt.Sprintf("/piece-%d", i)))
	}
	b.settled(t)
	b.unmoved(t, vip)
	b.patch(t, services.Slices+"/doubled", `{"metadata": {"labels": {"kubernetes.io/service-name": "no-such-service"}}}`)
	b.leads(t, vip)
	b.patch(t, services.Slices+"/of-nobody", `{"metadata": {"labels": {"kubernetes.io/service-name": "sliced"}}}`)
	b.leads(t, vip, "n2")
	b.patch(t, services.Slices+"/of-nobody", `{"metadata": {"labels": null}}`)
	b.leads(t, vip)
}

// testRestless: a Service that changes a hundred times ends in its last state, and the
// number of Herald's writes is bounded by the changes.
func (b *balancers) testRestless(t *testing.T) {
	const times = 100
	b.create(t, balancer("restless"), "n1")
	b.address(t, "restless")
	before := b.settled(t)["patch services"]
	for i := range times {
		b.update(t, "restless", annotated("addresses", fmt.Sprintf("10.99.6.%d", i%7+1)))
	}
	b.update(t, "restless", annotated("addresses", "10.99.6.100"))
	want := netip.MustParseAddr("10.99.6.100")
	b.hasAddresses(t, "restless", want)
	b.leads(t, want, b.Members()...)
	for i := range 7 {
		b.leads(t, netip.MustParseAddr(fmt.Sprintf("10.99.6.%d", i+1)))
	}
	if wrote := b.settled(t)["patch services"] - before; wrote > 2*times {
		t.Errorf("%d writes for %d changes", wrote, times)
	}
}
