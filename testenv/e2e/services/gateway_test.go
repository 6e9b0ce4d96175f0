//go:build e2e

package services

import (
	"context"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/herald-vip/herald/testenv/clab"
	"github.com/herald-vip/herald/testenv/e2e/site"
	"github.com/herald-vip/herald/testenv/lab"
	"github.com/herald-vip/herald/testenv/services"
)

const (
	gateways       = "/apis/gateway.networking.k8s.io/v1/namespaces/default/gateways"
	gatewayService = "envoy-web" // Contour's name for the Service of the Gateway web
)

// contour is Herald with Contour beside the API server, in two processes. The first
// makes a Service of each Gateway of the class contour. The second serves the Gateway
// web, as in a pod of the Deployment that the first makes, and reports its status.
// There is no Envoy.
type contour struct {
	services.Herald
	binary   string
	gateways []string // the definitions of Gateway API
	own      string   // Contour's
}

// Controller returns both of Contour's processes. The second omits the kinds of routes
// that its version knows from other versions of Gateway API.
func (c *contour) Controller(*services.Lab) lab.Image {
	return func(n clab.Node) (lab.Program, error) {
		p, err := lab.Binary(c.binary, "gateway-provisioner", "--no-incluster", "--kubeconfig=/etc/herald/kubeconfig")(n)
		if err != nil {
			return p, err
		}
		p.Prepare = [][]string{{"sh", "-c", "echo 'gateway: {gatewayRef: {namespace: default, name: web}}' >/etc/contour.yaml"}}
		p.Daemons = append(p.Daemons, lab.Daemon{Name: "serve", Argv: []string{
			p.Daemons[0].Argv[0], "serve", "--kubeconfig=/etc/herald/kubeconfig", "--config-path=/etc/contour.yaml",
			"--envoy-service-namespace=default", "--envoy-service-name=" + gatewayService, "--insecure", "--disable-leader-election",
			"--disable-feature=tlsroutes", "--disable-feature=tcproutes", "--disable-feature=grpcroutes", "--disable-feature=backendtlspolicies",
		}})
		return p, nil
	}
}

// Install also creates the kinds of Gateway API and of Contour.
func (c *contour) Install(ctx context.Context, l *services.Lab) error {
	for document := range strings.SplitSeq(strings.TrimPrefix(c.own, "---\n"), "\n---\n") {
		if err := l.API.Create(ctx, services.Definitions, []byte(document)); err != nil {
			return err
		}
	}
	if err := l.API.Define(ctx, c.gateways...); err != nil {
		return err
	}
	return c.Herald.Install(ctx, l)
}

// gateway holds the fields of a Gateway that the tests here read.
type gateway struct {
	Status struct {
		Addresses  []struct{ Type, Value string }
		Conditions []metav1.Condition
	}
}

// gatewayHas waits until the Gateway web has just this address in its status, and is
// programmed, or is not for that reason. An empty reason accepts both.
func (b *balancers) gatewayHas(t *testing.T, address netip.Addr, reason string) {
	t.Helper()
	site.Eventually(t, site.Soon, func() error {
		var g gateway
		if err := b.API.Get(t.Context(), gateways+"/web", &g); err != nil {
			return err
		}
		condition := meta.FindStatusCondition(g.Status.Conditions, "Programmed")
		return site.ErrorIf(fmt.Sprint(g.Status.Addresses) != fmt.Sprintf("[{IPAddress %s}]", address) || reason != "" && (condition == nil || condition.Reason != reason),
			"the Gateway has %+v, want %s and %s", g.Status, address, reason)
	})
}

// TestGateway lets Contour make the Service of a Gateway, which receives the addresses
// that the Gateway requests. docs/gateway-api.md describes the objects of other
// controllers.
func TestGateway(t *testing.T) {
	part := site.Part(t, "CONTOUR")
	c := &contour{binary: filepath.Join(part, "contour"), own: site.ReadFile(t, filepath.Join(part, "crds.yaml"))}
	c.gateways = site.Get[[]string](t)(filepath.Glob(filepath.Join(site.Part(t, "GATEWAY_API"), "standard", "*.yaml")))
	b := startBalancers(t, c)
	site.Must(t, b.API.Create(t.Context(), "/apis/gateway.networking.k8s.io/v1/gatewayclasses",
		[]byte("{apiVersion: gateway.networking.k8s.io/v1, kind: GatewayClass, metadata: {name: contour}, spec: {controllerName: projectcontour.io/gateway-controller}}")))
	site.Must(t, b.API.Create(t.Context(), gateways, []byte(
		`{apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, metadata: {name: web, namespace: default}, spec: {gatewayClassName: contour, listeners: [{name: http, port: 80, protocol: HTTP}]}}`)))
	site.Must(t, b.API.Create(t.Context(), services.Slices, []byte(`{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: web, labels: {kubernetes.io/service-name: `+gatewayService+`}},
		addressType: IPv4, endpoints: [{addresses: [10.5.0.1], nodeName: n1, conditions: {ready: true, serving: true}}], ports: [{name: http-80, port: 8080}]}`)))

	var given netip.Addr
	t.Run("an address of a pool", func(t *testing.T) {
		site.Eventually(t, site.Soon, func() error { return b.API.Get(t.Context(), services.Services+"/"+gatewayService, nil) })
		given = b.address(t, gatewayService)
		b.gatewayHas(t, given, "Programmed")
		b.leads(t, given, "n1") // the policy of the Service is Local
		b.connects(t, given, services.Port)
	})
	asked := netip.MustParseAddr("10.99.7.7")
	t.Run("by spec.addresses", func(t *testing.T) {
		b.patch(t, gateways+"/web", `{"spec": {"addresses": [{"type": "IPAddress", "value": "`+asked.String()+`"}]}}`)
		b.hasAddresses(t, gatewayService, asked)
		if got := b.get(t, gatewayService).Spec.LoadBalancerIP; got != asked.String() {
			t.Errorf("Contour has written the loadBalancerIP %q", got)
		}
		b.gatewayHas(t, asked, "")
		// Contour notices that this is the requested address only when the Gateway is changed again.
		b.patch(t, gateways+"/web", `{"spec": {"infrastructure": {"labels": {"again": "yes"}}}}`)
		b.gatewayHas(t, asked, "Programmed")
		b.leads(t, given)
		b.leads(t, asked, "n1")
		b.connects(t, asked, services.Port)
	})
	t.Run("an address outside all pools", func(t *testing.T) {
		b.patch(t, gateways+"/web", `{"spec": {"addresses": [{"type": "IPAddress", "value": "192.0.2.1"}]}}`)
		b.awaits(t, gatewayService, "AddressNotInPool")
		b.gatewayHas(t, asked, "AddressNotAssigned") // it had this one
		b.leads(t, asked, "n1")
	})
	t.Run("by an annotation of its infrastructure", func(t *testing.T) {
		annotated := netip.MustParseAddr("10.99.7.8")
		b.patch(t, gateways+"/web", `{"spec": {"addresses": null, "infrastructure": {"annotations": {"herald.dev/addresses": "`+annotated.String()+`"}}}}`)
		b.hasAddresses(t, gatewayService, annotated)
		b.gatewayHas(t, annotated, "Programmed")
		b.leads(t, asked)
		b.leads(t, annotated, "n1")
	})
	t.Run("by both, which differ", func(t *testing.T) {
		b.patch(t, gateways+"/web", `{"spec": {"addresses": [{"type": "IPAddress", "value": "`+asked.String()+`"}]}}`)
		b.awaits(t, gatewayService, "InvalidClaim")
		b.leads(t, netip.MustParseAddr("10.99.7.8"), "n1")
	})
	t.Run("deleted", func(t *testing.T) {
		site.Must(t, b.API.Delete(t.Context(), gateways+"/web"))
		b.leads(t, netip.MustParseAddr("10.99.7.8"))
	})
	t.Run("Services of other controllers", func(t *testing.T) { b.testGatewayServices(t) })
}

// testGatewayServices: Services as other controllers make them of a Gateway with spec.addresses.
func (b *balancers) testGatewayServices(t *testing.T) {
	dual := func(s *corev1.Service) {
		prefer := corev1.IPFamilyPolicyPreferDualStack
		s.Spec.IPFamilyPolicy = &prefer
	}
	b.create(t, balancer("istio", dual, func(s *corev1.Service) { s.Spec.LoadBalancerIP = "10.99.7.9" }), "n1")
	if got := b.assigned(t, "istio", 2); got[0] != netip.MustParseAddr("10.99.7.9") || !got[1].Is6() {
		t.Errorf("istio has %v, want the requested address and another of the other family", got)
	}
	// Envoy Gateway and NGINX Gateway Fabric make them external IPs, without requesting any from
	// Herald.
	external := netip.MustParseAddr("10.99.7.10")
	b.create(t, balancer("external", local, func(s *corev1.Service) { s.Spec.ExternalIPs = []string{external.String()} }), "n1")
	if got := b.address(t, "external"); got == external {
		t.Errorf("external has %s", got)
	}
	b.leads(t, external)
	b.update(t, "external", annotated("addresses", external.String()), func(s *corev1.Service) { s.Spec.ExternalIPs = nil })
	b.hasAddresses(t, "external", external)
	b.leads(t, external, "n1")
}
