//go:build e2e

package tenants

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/herald-vip/herald/testenv/e2e/site"
	"github.com/herald-vip/herald/testenv/lab"
	"github.com/herald-vip/herald/testenv/services"
	"github.com/herald-vip/herald/testenv/tenants"
)

// served is a Tenant that may have everything served by name.
const served = `{nodes: {cidrs: [10.20.0.0/24, "fd00:20::/64"]}, domains: [acme.example.com], ingress: {className: traefik}, gateway: {namespace: gateways, name: shared}}`

// asked holds the tenant's objects to serve by name.
const asked = `apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: herald}
spec: {controllerName: herald.dev/agent}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: front, namespace: default}
spec:
  gatewayClassName: herald
  listeners:
  - {name: http, port: 80, protocol: HTTP}
  - {name: tls, port: 9443, protocol: TLS, tls: {mode: Passthrough}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: route, namespace: default}
spec:
  parentRefs: [{name: front}]
  rules: [{backendRefs: [{name: web, port: 80}]}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: GRPCRoute
metadata: {name: grpc, namespace: default}
spec:
  parentRefs: [{name: front}]
  hostnames: [grpc.acme.lb.example.test]
  rules: [{backendRefs: [{name: web, port: 81}]}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: TLSRoute
metadata: {name: tls, namespace: default}
spec:
  parentRefs: [{name: front}]
  hostnames: [tls.acme.lb.example.test]
  rules: [{backendRefs: [{name: web, port: 443}]}]
`

const ingress = `apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: web, namespace: default}
spec:
  ingressClassName: herald
  rules: [{http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {name: http}}}}]}}]
`

// startGateway starts the lab with its gateway, which serves nothing yet, and with more parts.
func startGateway(t *testing.T, more map[string]string) *tenants.Lab {
	t.Helper()
	l := startLab(t, true, more)
	site.Must(t, l.BootGateway(site.Context(t)))
	return l
}

// apply applies objects in a cluster with kubectl.
func apply(t *testing.T, c *tenants.Cluster, objects string) {
	t.Helper()
	site.Must(t, c.Run(site.Context(t), "kubectl apply -f - <<'EOF'\n"+objects+"EOF\n"))
}

// backend puts acme's servers behind a Service without node ports.
func backend(s *corev1.Service) {
	s.Spec.Type, s.Spec.Selector = corev1.ServiceTypeClusterIP, map[string]string{"app": "web"}
	s.Spec.Ports = []corev1.ServicePort{
		{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80},
		{Name: "grpc", Protocol: corev1.ProtocolTCP, Port: 81, AppProtocol: new("kubernetes.io/h2c")},
		{Name: "tls", Protocol: corev1.ProtocolTCP, Port: 443, TargetPort: intstr.FromInt32(tenants.ServerTLSPort)},
	}
}

// conditioned returns an error unless a route of the tenant has a current condition of
// this status and reason.
func conditioned(t *testing.T, api *services.API, path, condition, status, reason string) error {
	t.Helper()
	var r struct {
		Metadata struct{ Generation int64 }
		Status   struct {
			Parents []struct {
				Conditions []struct {
					Type, Status, Reason, Message string
					ObservedGeneration            int64
				}
			}
		}
	}
	if err := api.Get(t.Context(), path, &r); err != nil {
		return err
	}
	for _, p := range r.Status.Parents {
		for _, c := range p.Conditions {
			if c.Type == condition && c.Status == status && c.Reason == reason && c.ObservedGeneration == r.Metadata.Generation {
				return nil
			}
		}
	}
	return fmt.Errorf("%s has the status %+v, want %s to be %s for %s", path, r.Status, condition, status, reason)
}

// TestRoutes has Traefik in the load-balancing cluster serve a tenant's Ingress and
// routes of all kinds to clients of all sorts. external-dns writes their names to a
// name server. Then the test changes and breaks one thing after the other.
func TestRoutes(t *testing.T) {
	t.Parallel()
	l := startGateway(t, nil)
	acme := l.Tenants[0]
	site.Must(t, l.Serve(site.Context(t)))
	site.Must(t, l.Admit(site.Context(t), acme, served))
	site.Must(t, acme.Expose(t.Context(), "web", backend))
	v := newVisitor(t, l, l.Balancing)
	const routes = "/apis/gateway.networking.k8s.io/v1/namespaces/default/httproutes"
	h := hosts{ingress: "web.acme.lb.example.test", http: "front.acme.lb.example.test", grpc: "grpc.acme.lb.example.test", tls: "tls.acme.lb.example.test"}

	site.Eventually(t, site.Soon, func() error { // a new cluster's controllers look for kinds to count every 30 s
		var quota corev1.ResourceQuota
		err := l.Balancing.API.Get(t.Context(), "/api/v1/namespaces/tenant-acme/resourcequotas/herald-agent", &quota)
		_, counted := quota.Status.Used["count/httploadbalancers.herald.dev"]
		return errors.Join(err, site.ErrorIf(!counted, "the quota is used %v", quota.Status.Used))
	})
	apply(t, acme, ingress)
	site.Eventually(t, site.Soon, func() error { return ingressNamed(t, acme, h.ingress) })
	site.Eventually(t, site.Soon, func() error { return v.named(t.Context(), h.ingress) })
	site.Eventually(t, site.Soon, func() error {
		_, _, err := v.get(t.Context(), http1, "http://"+h.ingress+"/", http.Header{})
		return err
	})

	apply(t, acme, asked)
	v.reaches(t, acme, h)
	site.Eventually(t, site.Soon, func() error { return conditioned(t, acme.API, routes+"/route", "Accepted", "True", "Accepted") })

	for name, want := range map[string]struct{ spec, condition, reason string }{
		"a refused hostname":  {"hostnames: [www.example.com], rules: [{backendRefs: [{name: web, port: 80}]}]", "Accepted", "Refused"},
		"a missing Service":   {"rules: [{matches: [{path: {value: /missing}}], backendRefs: [{name: missing, port: 80}]}]", "ResolvedRefs", "BackendNotFound"},
		"a missing listener":  {"rules: [{backendRefs: [{name: web, port: 80}]}]", "Accepted", "NoMatchingParent"},
		"another's namespace": {"rules: [{backendRefs: [{name: web, namespace: kube-system, port: 80}]}]", "ResolvedRefs", "RefNotPermitted"},
	} {
		t.Run(name, func(t *testing.T) {
			id := strings.ToLower(strings.NewReplacer(" ", "-", "'", "").Replace(name))
			parent := "{name: front}"
			if name == "a missing listener" {
				parent = "{name: front, sectionName: other}"
			}
			apply(t, acme, fmt.Sprintf("{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, metadata: {name: %s, namespace: default}, spec: {parentRefs: [%s], %s}}\n", id, parent, want.spec))
			site.Eventually(t, site.Soon, func() error { return conditioned(t, acme.API, routes+"/"+id, want.condition, "False", want.reason) })
			site.Must(t, acme.API.Delete(t.Context(), routes+"/"+id))
		})
	}

	visits := v.visit(t, h.ingress)
	away := func(n *lab.Node, ready func(*testing.T)) func(*testing.T) {
		return func(t *testing.T) {
			site.Kill(t, n)
			visits.goesOn(t, 200)
			site.Start(t, n)
			ready(t)
			visits.goesOn(t, 200)
		}
	}
	none := func(*testing.T) {}
	for _, step := range []struct {
		name string
		do   func(*testing.T)
	}{
		{"the agent is away", away(acme.Node("agent"), none)},
		{"the manager is away", away(l.Balancing.Node("manager"), none)},
		{"the load-balancing API server is away", away(l.Balancing.Node("apiserver"), func(t *testing.T) { follows(t, l, l.Balancing) })},
		{"the tenant's API server is away", away(acme.Node("apiserver"), func(t *testing.T) { follows(t, l, acme) })},
		{"another host comes and goes", func(t *testing.T) {
			site.Must(t, acme.Expose(t.Context(), "more", backend))
			more := strings.Replace(ingress, "rules: [", "rules: [{host: more.acme.lb.example.test, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: more, port: {name: http}}}}]}}, ", 1)
			apply(t, acme, more)
			// After an outage a Traefik that has not connected to the API server again knows no new Service.
			site.Eventually(t, site.Soon, func() error {
				for range 30 { // by both of them
					if _, _, err := v.get(t.Context(), http1, "http://more.acme.lb.example.test/", http.Header{}); err != nil {
						return err
					}
				}
				return nil
			})
			apply(t, acme, ingress)
			visits.goesOn(t, 100)
		}},
		{"the backend is another Service", func(t *testing.T) {
			site.Must(t, acme.Expose(t.Context(), "other", backend))
			apply(t, acme, strings.Replace(ingress, "service: {name: web", "service: {name: other", 1))
			visits.goesOn(t, 200)
			apply(t, acme, ingress)
			visits.goesOn(t, 200)
		}},
	} {
		t.Run(step.name, func(t *testing.T) {
			began := time.Now()
			step.do(t)
			all, failed := visits.since(began)
			t.Logf("failed: %d of %d requests", len(failed), all)
			if len(failed) > 0 {
				t.Errorf("%v", errors.Join(failed...))
			}
		})
	}

	t.Run("no pod", func(t *testing.T) {
		visits.stop()
		site.Must(t, errors.Join(acme.SetEndpoints(site.Context(t), "web"), acme.SetEndpoints(t.Context(), "herald-web")))
		site.Eventually(t, site.Soon, func() error {
			return conditioned(t, acme.API, routes+"/route", "herald.dev/Served", "False", "NoNodes")
		})
		site.Must(t, errors.Join(acme.SetEndpoints(site.Context(t), "web", acme.Nodes()...), acme.SetEndpoints(t.Context(), "herald-web", acme.Nodes()...)))
		site.Eventually(t, site.Soon, func() error { return conditioned(t, acme.API, routes+"/route", "herald.dev/Served", "True", "Served") })
	})
	t.Run("all goes", func(t *testing.T) {
		site.Must(t, acme.Run(site.Context(t), "kubectl delete --wait=false ingress/web httproute/route grpcroute/grpc tlsroute/tls gateway/front"))
		site.Eventually(t, site.Soon, func() error {
			var list struct{ Items []any }
			err := acme.API.Get(t.Context(), "/api/v1/services?labelSelector=herald.dev/copy", &list)
			var there struct{ Items []any }
			err = errors.Join(err, l.Balancing.API.Get(t.Context(), "/api/v1/namespaces/tenant-acme/services", &there))
			return errors.Join(err, v.nameless(t.Context(), h.ingress), site.ErrorIf(len(list.Items)+len(there.Items) > 0, "%v and %v are left", list.Items, there.Items))
		})
	})
}

// ingressNamed returns an error unless the Ingress web has that name of its own.
func ingressNamed(t *testing.T, c *tenants.Cluster, want string) error {
	t.Helper()
	var in struct {
		Status struct {
			LoadBalancer struct{ Ingress []struct{ Hostname string } }
		}
	}
	if err := c.API.Get(t.Context(), "/apis/networking.k8s.io/v1/namespaces/default/ingresses/web", &in); err != nil {
		return err
	}
	ingress := in.Status.LoadBalancer.Ingress
	return site.ErrorIf(len(ingress) != 1 || ingress[0].Hostname != want, "the Ingress has %+v, want %s, and its events say %q", ingress, want, events(t, c))
}

// events returns the events about Ingresses.
func events(t *testing.T, c *tenants.Cluster) (out []string) {
	t.Helper()
	var list corev1.EventList
	site.Must(t, c.API.Get(t.Context(), "/api/v1/namespaces/default/events", &list))
	for _, e := range list.Items {
		if e.InvolvedObject.Kind == "Ingress" {
			out = append(out, e.Reason+": "+e.Message)
		}
	}
	return out
}
