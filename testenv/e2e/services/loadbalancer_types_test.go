//go:build e2e

package services

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/herald-vip/herald/testenv/e2e/site"
	"github.com/herald-vip/herald/testenv/services"
)

// TestLoadBalancer repeats Kubernetes' own tests of Services of type LoadBalancer,
// except kube-proxy's part: testenv/e2e/README.md has the list.
func TestLoadBalancer(t *testing.T) {
	b := startBalancers(t, nil)
	for _, protocol := range []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP} {
		t.Run("type and ports change, "+string(protocol), func(t *testing.T) { b.testLifecycle(t, protocol) })
	}
	t.Run("classes", b.testClasses)
	t.Run("another class has written status", b.testForeignStatus)
	t.Run("no node ports, then some", b.testNodePorts)
	t.Run("same port, different protocols", b.testMixedProtocols)
	t.Run("fields for kube-proxy", b.testProxyFields)
	t.Run("deleted", b.testDeleted)
	t.Run("held by a finalizer", b.testFinalizer)
	t.Run("status is kept and put back", b.testStatus)
	t.Run("deleted by the collection", b.testCollection)
	t.Run("families", b.testFamilies)
	t.Run("families change", b.testFamiliesChange)
	t.Run("Local leads to nodes with endpoints", b.testLocal)
	t.Run("traffic policy changes", b.testPolicyChanges)
	t.Run("terminating endpoints", b.testTerminating)
	t.Run("source address", b.testSource)
	t.Run("nodes that are left out", b.testNodes)
}

// testLifecycle makes a Service a load balancer, changes its ports, removes its
// endpoints, and makes it an internal one again.
func (b *balancers) testLifecycle(t *testing.T, protocol corev1.Protocol) {
	ports := func(number, node int32) func(*corev1.Service) {
		return func(s *corev1.Service) {
			s.Spec.Ports[0].Protocol, s.Spec.Ports[0].Port = protocol, number
			if node != 0 {
				s.Spec.Ports[0].NodePort = node
			}
		}
	}
	b.create(t, balancer("changes", ports(services.Port, 0), ofType(corev1.ServiceTypeClusterIP)), "n1")
	s := b.update(t, "changes", ofType(corev1.ServiceTypeNodePort))
	nodePort := s.Spec.Ports[0].NodePort

	b.update(t, "changes", ofType(corev1.ServiceTypeLoadBalancer))
	vip := b.address(t, "changes")
	if got := b.get(t, "changes").Spec.Ports[0].NodePort; got != nodePort {
		t.Errorf("the node port has become %d, was %d", got, nodePort)
	}
	b.leads(t, vip, b.Members()...)
	if protocol == corev1.ProtocolTCP {
		b.connects(t, vip, services.Port)
	}

	b.routes.Mark()
	another := nodePort + 1
	if another > 32767 {
		another = nodePort - 1
	}
	b.update(t, "changes", ports(services.Port, another))
	b.keeps(t, "changes", vip)
	b.update(t, "changes", ports(services.Port+1, another))
	b.keeps(t, "changes", vip)
	site.Must(t, b.RemoveEndpoint(t.Context(), "changes", "n1"))
	site.Must(t, b.SetEndpoint(t.Context(), "changes", "n2", services.Ready()))
	before := b.settled(t)
	b.unmoved(t, vip)

	b.update(t, "changes", ofType(corev1.ServiceTypeClusterIP))
	b.left(t, "changes")
	b.leads(t, vip)
	if after := b.settled(t); after["patch services"]+after["update services"] > before["patch services"]+before["update services"]+1 {
		t.Errorf("more than one write to clear the status: %v, before %v", after, before)
	}
}

// testClasses: Services of Herald's class and without a class are Herald's, Services
// of another class are not.
func (b *balancers) testClasses(t *testing.T) {
	ours := b.led(t, balancer("ours", ofClass(myClass)), "n1")
	b.led(t, balancer("classless"), "n1")
	b.create(t, balancer("foreign", ofClass("example.com/internal-vip")), "n1")
	b.settled(t)
	b.left(t, "foreign")

	// A class cannot change, but a Service may have another when it becomes a load balancer again.
	s := b.get(t, "ours")
	ofClass("example.com/internal-vip")(s)
	s.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}
	if err := b.API.Replace(t.Context(), services.Services+"/ours", s); err == nil {
		t.Error("the API server has taken another class")
	}
	b.update(t, "ours", ofType(corev1.ServiceTypeClusterIP))
	b.left(t, "ours")
	b.leads(t, ours)
	b.update(t, "ours", ofType(corev1.ServiceTypeLoadBalancer), ofClass("example.com/internal-vip"))
	b.settled(t)
	b.left(t, "ours")
	b.update(t, "ours", ofType(corev1.ServiceTypeClusterIP))
	b.update(t, "ours", ofType(corev1.ServiceTypeLoadBalancer), ofClass(myClass))
	b.leads(t, b.address(t, "ours"), b.Members()...)
}

// testForeignStatus: the status of a Service of another class belongs to that class's
// implementation, and no other Service gets its address.
func (b *balancers) testForeignStatus(t *testing.T) {
	b.create(t, balancer("foreign", ofClass("example.com/internal-vip")), "n1")
	b.patch(t, services.Services+"/foreign/status", `{"metadata": {"annotations": {"patched": "true"}},
		"status": {"loadBalancer": {"ingress": [{"ip": "10.99.7.7"}]}, "conditions": [
			{"type": "StatusUpdate", "status": "True", "reason": "E2E", "message": "by hand", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}}`)
	b.create(t, balancer("late", annotated("addresses", "10.99.7.7")), "n1")
	b.awaits(t, "late", "AddressConflict")
	b.settled(t)
	s := b.get(t, "foreign")
	if got := fmt.Sprint(addressesOf(s)); got != "[10.99.7.7]" || len(s.Status.Conditions) != 1 {
		t.Errorf("the status has become %+v", s.Status)
	}
	site.Must(t, b.check(netip.MustParseAddr("10.99.7.7")))

	b.update(t, "foreign", ofType(corev1.ServiceTypeClusterIP))
	b.keeps(t, "late", netip.MustParseAddr("10.99.7.7"))
}

// testNodePorts: a load balancer needs no node ports.
func (b *balancers) testNodePorts(t *testing.T) {
	allocate := func(yes bool) func(*corev1.Service) {
		return func(s *corev1.Service) { s.Spec.AllocateLoadBalancerNodePorts = &yes }
	}
	b.create(t, balancer("portless", ofType(corev1.ServiceTypeClusterIP)), "n1")
	b.update(t, "portless", ofType(corev1.ServiceTypeLoadBalancer), allocate(false))
	vip := b.address(t, "portless")
	if port := b.get(t, "portless").Spec.Ports[0].NodePort; port != 0 {
		t.Errorf("it has the node port %d", port)
	}
	b.leads(t, vip, b.Members()...)
	b.connects(t, vip, services.Port)
	b.routes.Mark()
	if s := b.update(t, "portless", allocate(true)); s.Spec.Ports[0].NodePort == 0 {
		t.Error("it has got no node port")
	}
	b.settled(t)
	b.keeps(t, "portless", vip)
	b.unmoved(t, vip)
}

// testMixedProtocols: one port number may have several protocols, in one Service or in
// several that share an address.
func (b *balancers) testMixedProtocols(t *testing.T) {
	portsOf := func(protocols ...corev1.Protocol) func(*corev1.Service) {
		return func(s *corev1.Service) {
			s.Spec.Ports = nil
			for _, p := range protocols {
				s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: strings.ToLower(string(p)), Protocol: p, Port: 53})
			}
		}
	}
	b.led(t, balancer("mixed", portsOf(corev1.ProtocolTCP, corev1.ProtocolUDP)), "n1")

	b.create(t, balancer("tcp", portsOf(corev1.ProtocolTCP), annotated("share", "dns")), "n1")
	vip := b.address(t, "tcp")
	b.create(t, balancer("udp", portsOf(corev1.ProtocolUDP), annotated("share", "dns"), annotated("addresses", vip.String())), "n1")
	b.keeps(t, "udp", vip)
	b.create(t, balancer("tcp2", portsOf(corev1.ProtocolTCP), annotated("share", "dns"), annotated("addresses", vip.String())), "n1")
	b.awaits(t, "tcp2", "AddressConflict")
	// A shared address stays until its last owner is gone.
	b.leads(t, vip, b.Members()...)
	b.routes.Mark()
	site.Must(t, b.Remove(t.Context(), "tcp"))
	b.keeps(t, "tcp2", vip)
	site.Must(t, b.Remove(t.Context(), "tcp2"))
	b.settled(t)
	b.unmoved(t, vip)
}

// testProxyFields: session affinity and source ranges are for kube-proxy, and move nothing.
func (b *balancers) testProxyFields(t *testing.T) {
	vip := b.led(t, balancer("affinity", local), "n1", "n2")
	b.settled(t)
	b.routes.Mark()
	before := b.writes(t)
	for _, edit := range []func(*corev1.Service){
		func(s *corev1.Service) { s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP },
		func(s *corev1.Service) { s.Spec.LoadBalancerSourceRanges = []string{"10.5.9.1/32"} },
		func(s *corev1.Service) { s.Spec.LoadBalancerSourceRanges = nil },
		func(s *corev1.Service) {
			s.Spec.SessionAffinity, s.Spec.SessionAffinityConfig = corev1.ServiceAffinityNone, nil
		},
		func(s *corev1.Service) { s.Spec.PublishNotReadyAddresses = true },
		func(s *corev1.Service) { s.Labels = map[string]string{"test-service": "patched"} },
	} {
		b.update(t, "affinity", edit)
	}
	if after := b.settled(t); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("needless writes: %v, before %v", after, before)
	}
	b.keeps(t, "affinity", vip)
	b.unmoved(t, vip)
}

// testDeleted: a deleted Service leaves no route, and its address is free.
func (b *balancers) testDeleted(t *testing.T) {
	vip := b.led(t, balancer("goes", annotated("addresses", "10.99.8.8")), "n1", "n2")
	site.Must(t, b.Remove(t.Context(), "goes"))
	b.leads(t, vip)
	b.led(t, balancer("heir", annotated("addresses", "10.99.8.8")), "n1")
}

// testFinalizer: Herald adds no finalizer, since it has nothing to clean up outside
// the cluster. A deleted Service with a foreign finalizer is announced no more, but
// keeps its address until it is gone.
func (b *balancers) testFinalizer(t *testing.T) {
	const cleanup = "service.kubernetes.io/load-balancer-cleanup"
	b.create(t, balancer("plain"), "n1")
	vip := b.address(t, "plain")
	if f := b.get(t, "plain").Finalizers; len(f) > 0 {
		t.Errorf("it has the finalizers %q", f)
	}
	b.update(t, "plain", func(s *corev1.Service) { s.Finalizers = []string{cleanup} })
	release := func() error {
		ctx, cancel := context.WithTimeout(context.Background(), site.Soon)
		defer cancel()
		return b.API.Patch(ctx, services.Services+"/plain", map[string]any{"metadata": map[string]any{"finalizers": nil}})
	}
	defer func() { _ = release() }() // the test may have done so
	b.leads(t, vip, b.Members()...)
	site.Must(t, b.API.Delete(t.Context(), services.Services+"/plain"))
	b.leads(t, vip)
	b.create(t, balancer("heir", annotated("addresses", vip.String())), "n1")
	b.awaits(t, "heir", "AddressConflict")
	b.keepsStatus(t, "plain", vip)
	site.Must(t, release())
	b.keeps(t, "heir", vip)
	b.leads(t, vip, b.Members()...)
}

// testStatus: foreign conditions are kept, and a spoilt status is restored, with the same address.
func (b *balancers) testStatus(t *testing.T) {
	const (
		vip    = "10.99.8.1"
		theirs = `{"type": "Example", "status": "True", "reason": "Because", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}`
	)
	for name, ingress := range map[string]string{
		"nothing else":        `[{"ip": "` + vip + `", "ipMode": "VIP"}]`,
		"no address":          `null`,
		"another address":     `[{"ip": "10.99.9.9", "ipMode": "VIP"}]`,
		"one too many":        `[{"ip": "` + vip + `"}, {"ip": "203.0.113.1"}]`,
		"a name":              `[{"hostname": "lb.example.com"}]`,
		"another way to it":   `[{"ip": "` + vip + `", "ipMode": "Proxy"}]`,
		"ports of an address": `[{"ip": "` + vip + `", "ports": [{"port": 80, "protocol": "TCP"}]}]`,
	} {
		t.Run(name, func(t *testing.T) {
			b.led(t, balancer("spoilt", annotated("addresses", vip)), "n1")
			b.patch(t, services.Services+"/spoilt/status", `{"status": {"conditions": [`+theirs+`], "loadBalancer": {"ingress": `+ingress+`}}}`)
			site.Eventually(t, site.Soon, func() error {
				s := b.get(t, "spoilt")
				if got := s.Status.LoadBalancer.Ingress; len(got) != 1 || got[0].IP != vip || got[0].IPMode == nil || *got[0].IPMode != corev1.LoadBalancerIPModeVIP {
					return fmt.Errorf("it has %+v, want %s", got, vip)
				}
				theirs := slices.ContainsFunc(s.Status.Conditions, func(c metav1.Condition) bool { return c.Type == "Example" })
				return site.ErrorIf(!theirs || conditionOf(s) == nil, "the conditions are %+v, want the foreign one and Herald's", s.Status.Conditions)
			})
			b.leads(t, netip.MustParseAddr(vip), b.Members()...)
			b.leads(t, netip.MustParseAddr("10.99.9.9"))
		})
	}
	b.settled(t)
}

// testCollection: Services are deleted together, and the remaining ones are not touched.
func (b *balancers) testCollection(t *testing.T) {
	doomed := func(s *corev1.Service) { s.Labels = map[string]string{"doomed": "yes"} }
	first, two := b.led(t, balancer("doomed-1", doomed), "n1"), b.led(t, balancer("doomed-2", doomed), "n1")
	stays := b.led(t, balancer("stays"), "n1")
	b.routes.Mark()
	site.Must(t, b.API.Delete(t.Context(), services.Services+"?labelSelector=doomed%3Dyes"))
	b.leads(t, first)
	b.leads(t, two)
	b.unmoved(t, stays)
}
