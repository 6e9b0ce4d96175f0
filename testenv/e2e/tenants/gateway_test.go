//go:build e2e

package tenants

import (
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/herald-vip/herald/testenv/e2e/site"
	"github.com/herald-vip/herald/testenv/tenants"
)

// byHand are objects as the manager is to derive them, to node ports of acme.
const byHand = `apiVersion: v1
kind: Namespace
metadata: {name: tenant-acme, labels: {herald.dev/tenant: acme}}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: tenant-acme}
spec:
  ports:
  - {name: http, port: 80}
  - {name: grpc, port: 81, appProtocol: kubernetes.io/h2c}
  - {name: tls, port: 443}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web, namespace: tenant-acme, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
endpoints:
- {addresses: [10.20.0.1], conditions: {ready: true, serving: true}}
- {addresses: [10.20.0.2], conditions: {ready: true, serving: true}}
- {addresses: [10.20.0.3], conditions: {ready: true, serving: true}}
ports:
- {name: http, port: 30080}
- {name: grpc, port: 30080}
- {name: tls, port: 30443}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: web, namespace: tenant-acme}
spec:
  ingressClassName: traefik
  rules: [{host: web.acme.lb.example.net, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: route, namespace: tenant-acme}
spec:
  parentRefs: [{name: shared, namespace: gateways}]
  hostnames: [route.acme.lb.example.net]
  rules: [{backendRefs: [{name: web, port: 80}]}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: GRPCRoute
metadata: {name: grpc, namespace: tenant-acme}
spec:
  parentRefs: [{name: shared, namespace: gateways}]
  hostnames: [grpc.acme.lb.example.net]
  rules: [{backendRefs: [{name: web, port: 81}]}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: TLSRoute
metadata: {name: tls, namespace: tenant-acme}
spec:
  parentRefs: [{name: shared, namespace: gateways, sectionName: passthrough}]
  hostnames: [tls.acme.lb.example.net]
  rules: [{backendRefs: [{name: web, port: 443}]}]
`

// startGateway starts the lab with its gateway, which serves nothing yet.
func startGateway(t *testing.T) *tenants.Lab {
	t.Helper()
	l := startLab(t, true)
	began := time.Now()
	site.Must(t, l.BootGateway(soon(t)))
	t.Logf("the gateway has taken %v to start", time.Since(began))
	return l
}

// exposeEcho has acme's servers at node ports, 30080 and for TLS 30443.
func exposeEcho(t *testing.T, c *tenants.Cluster, name string) {
	t.Helper()
	site.Must(t, c.Expose(t.Context(), name, func(s *corev1.Service) {
		s.Spec.Type = corev1.ServiceTypeNodePort
		s.Spec.Ports = []corev1.ServicePort{
			{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80, NodePort: 30080},
			{Name: "tls", Protocol: corev1.ProtocolTCP, Port: 443, TargetPort: intstr.FromInt32(tenants.ServerTLSPort), NodePort: 30443},
		}
	}))
}

// TestGatewayParts has the parts of the gateway serve and name what nothing of Herald derived, so that where this fails the lab is
// at fault.
func TestGatewayParts(t *testing.T) {
	t.Parallel()
	l := startGateway(t)
	exposeEcho(t, l.Tenants[0], "web")
	site.Must(t, l.Balancing.Run(soon(t), "kubectl apply -f - <<'EOF'\n"+byHand+"EOF\n"))
	v := newVisitor(t, l)
	h := hosts{ingress: "web.acme.lb.example.net", http: "route.acme.lb.example.net", grpc: "grpc.acme.lb.example.net", tls: "tls.acme.lb.example.net"}
	v.reaches(t, l.Tenants[0], h)

	t.Run("a namespace of no tenant", func(t *testing.T) {
		route := byHand[strings.Index(byHand, "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute"):strings.Index(byHand, "---\napiVersion: gateway.networking.k8s.io/v1\nkind: GRPCRoute")]
		site.Must(t, l.Balancing.Run(soon(t), "kubectl apply -f - <<'EOF'\n"+strings.NewReplacer("tenant-acme", "default", "route.acme", "foreign.acme").Replace(route)+"EOF\n"))
		site.Eventually(t, site.Soon, func() error {
			var r struct {
				Status struct {
					Parents []struct {
						Conditions []struct{ Type, Status, Reason string }
					}
				}
			}
			if err := l.Balancing.API.Get(t.Context(), "/apis/gateway.networking.k8s.io/v1/namespaces/default/httproutes/route", &r); err != nil {
				return err
			}
			for _, p := range r.Status.Parents {
				for _, c := range p.Conditions {
					if c.Type == "Accepted" && c.Status == "False" && c.Reason == "NotAllowedByListeners" {
						return nil
					}
				}
			}
			return site.ErrorIf(true, "the status is %+v, want NotAllowedByListeners", r.Status)
		})
		site.Must(t, v.nameless(t.Context(), "foreign.acme.lb.example.net"))
	})
	t.Run("a route goes", func(t *testing.T) {
		site.Must(t, l.Balancing.API.Delete(t.Context(), "/apis/gateway.networking.k8s.io/v1/namespaces/tenant-acme/httproutes/route"))
		began := time.Now()
		site.Eventually(t, site.Soon, func() error { return v.nameless(t.Context(), h.http) })
		t.Logf("its name is gone after %v", time.Since(began))
		if _, _, err := v.get(t.Context(), http1, "http://"+h.ingress+"/", http.Header{}); err != nil {
			t.Error(err)
		}
	})
}
