//go:build e2e

package tenants

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/tenant"
	"github.com/herald-vip/herald/testenv/e2e/site"
	"github.com/herald-vip/herald/testenv/services"
)

// as returns a client of a server by a kubeconfig.
func as(t *testing.T, kubeconfig string) *services.API {
	t.Helper()
	c, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	site.Must(t, err)
	api := site.Get[*services.API](t)(services.NewAPI(c))
	t.Cleanup(api.Close)
	return api
}

// TestHostileTenant tries the attacks of a tenant with the kubeconfig of its agent.
func TestHostileTenant(t *testing.T) {
	t.Parallel()
	b := startLBCluster(t)
	b.admit(t, "acme", `{nodes: {cidrs: [10.20.0.0/24], probe: {protocol: None}}, endpoints: {cidrs: [203.0.113.0/24]}, quota: {services: 5}}`)
	b.admit(t, "other", `{nodes: {cidrs: [10.21.0.0/24], probe: {protocol: None}}}`)
	secret := b.secret(t, "acme")
	api := as(t, mount(t, secret))
	const (
		acme   = "/apis/herald.dev/v1alpha1/namespaces/tenant-acme/"
		other  = "/apis/herald.dev/v1alpha1/namespaces/tenant-other/"
		core   = "/api/v1/namespaces/tenant-acme/"
		leases = "/apis/coordination.k8s.io/v1/namespaces/tenant-acme/leases"
	)
	b.Apply(t, leases, "{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: herald-agent}}")
	nodes := func(address string) string {
		return fmt.Sprintf("{apiVersion: herald.dev/v1alpha1, kind: TenantNodes, metadata: {name: nodes}, nodes: [{name: n1, addresses: [%q]}]}", address)
	}
	balancer := func(name, meta, spec string) string {
		return fmt.Sprintf("{apiVersion: herald.dev/v1alpha1, kind: TCPLoadBalancer, metadata: {name: %s%s}, spec: {origin: {namespace: default, name: web}, ipFamilies: [IPv4], %s}}", name, meta, spec)
	}
	const ports = "ports: [{protocol: TCP, port: 80, targetPort: 30080}]"
	for name, tt := range map[string]struct {
		method, path, object string
		status               int
		says                 string
	}{
		"its own Services":             {http.MethodPost, acme + "tcploadbalancers", balancer("default.web", "", ports), http.StatusCreated, ""},
		"its own nodes":                {http.MethodPost, acme + "tenantnodes", nodes("10.20.0.1"), http.StatusCreated, ""},
		"its own token":                {http.MethodPost, core + "serviceaccounts/herald-agent/token", "{}", http.StatusCreated, ""},
		"an API server as endpoint":    {http.MethodPost, acme + "tcploadbalancers", balancer("default.web", "", "endpoints: [127.0.0.1], ports: [{protocol: TCP, port: 80, targetPort: 6443}]"), http.StatusUnprocessableEntity, "127.0.0.1 is not in the endpoints.cidrs"},
		"a kubelet of its own node":    {http.MethodPost, acme + "tcploadbalancers", balancer("default.web", "", "ports: [{protocol: TCP, port: 80, targetPort: 10250}]"), http.StatusUnprocessableEntity, "node port 10250 is not in the nodes.ports of the Tenant, 30000-32767"},
		"another name":                 {http.MethodPost, acme + "tcploadbalancers", balancer("default.db", "", ports), http.StatusUnprocessableEntity, "want the name of the Service that it is of"},
		"finalizers":                   {http.MethodPost, acme + "tcploadbalancers", balancer("default.web", ", finalizers: [herald.dev/x]", ports), http.StatusUnprocessableEntity, "want no finalizers"},
		"owners":                       {http.MethodPost, acme + "tenantnodes", strings.Replace(nodes("10.20.0.1"), "{name: nodes}", "{name: nodes, ownerReferences: [{apiVersion: v1, kind: Node, name: n1, uid: u}]}", 1), http.StatusUnprocessableEntity, "want no finalizers, no owners"},
		"labels":                       {http.MethodPost, acme + "tenantnodes", strings.Replace(nodes("10.20.0.1"), "{name: nodes}", "{name: nodes, labels: {a: b}}", 1), http.StatusUnprocessableEntity, "and no labels"},
		"a Lease that stays":           {http.MethodPatch, leases + "/herald-agent", `{"metadata": {"finalizers": ["herald.dev/x"]}}`, http.StatusUnprocessableEntity, "want no finalizers"},
		"a status":                     {http.MethodPatch, acme + "tcploadbalancers/default.web/status", "{status: {addresses: [10.1.0.9]}}", http.StatusForbidden, ""},
		"another tenant's Services":    {http.MethodGet, other + "tcploadbalancers", "", http.StatusForbidden, ""},
		"a Service for another tenant": {http.MethodPost, other + "tcploadbalancers", balancer("default.web", "", ports), http.StatusForbidden, ""},
		"all Services":                 {http.MethodGet, "/apis/herald.dev/v1alpha1/tcploadbalancers", "", http.StatusForbidden, ""},
		"a Service here":               {http.MethodPost, core + "services", "{apiVersion: v1, kind: Service, metadata: {name: a}, spec: {ports: [{port: 80}]}}", http.StatusForbidden, ""},
		"slices here":                  {http.MethodPost, "/apis/discovery.k8s.io/v1/namespaces/tenant-acme/endpointslices", "{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: a}, addressType: IPv4, endpoints: []}", http.StatusForbidden, ""},
		"Secrets":                      {http.MethodGet, core + "secrets", "", http.StatusForbidden, ""},
		"a Secret":                     {http.MethodPost, core + "secrets", "{apiVersion: v1, kind: Secret, metadata: {name: a}}", http.StatusUnprocessableEntity, "want a Secret of the type kubernetes.io/tls"},
		"a token of another account":   {http.MethodPost, core + "serviceaccounts/default/token", "{}", http.StatusForbidden, ""},
		"an account":                   {http.MethodPost, core + "serviceaccounts", "{apiVersion: v1, kind: ServiceAccount, metadata: {name: a}}", http.StatusForbidden, ""},
		"rights":                       {http.MethodPost, "/apis/rbac.authorization.k8s.io/v1/namespaces/tenant-acme/rolebindings", "{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: a}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: admin}}", http.StatusForbidden, ""},
		"the Lease of the manager":     {http.MethodPost, "/apis/coordination.k8s.io/v1/namespaces/herald-system/leases", "{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: herald-manager}}", http.StatusForbidden, ""},
		"another Lease":                {http.MethodPost, leases, "{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: a}}", http.StatusForbidden, ""},
		"Tenants":                      {http.MethodGet, "/apis/herald.dev/v1alpha1/tenants", "", http.StatusForbidden, ""},
		"its own Tenant":               {http.MethodPatch, "/apis/herald.dev/v1alpha1/tenants/acme", "{spec: {quota: {services: 10000}}}", http.StatusForbidden, ""},
		"the limits of its namespace":  {http.MethodPatch, "/api/v1/namespaces/tenant-acme", `{metadata: {annotations: {herald.dev/node-ports: "1-65535"}}}`, http.StatusForbidden, ""},
		"its quota":                    {http.MethodPatch, core + "resourcequotas/herald-agent", "{spec: {hard: {}}}", http.StatusForbidden, ""},
		"pools":                        {http.MethodGet, "/apis/herald.dev/v1alpha1/addresspools", "", http.StatusForbidden, ""},
	} {
		t.Run(name, func(t *testing.T) {
			path := tt.path
			if tt.method == http.MethodPost {
				path += "?dryRun=All"
			}
			site.Eventually(t, site.Soon, func() error { // the server looks for new policies once a second
				status, answer, err := api.Ask(t.Context(), tt.method, path, []byte(tt.object))
				return errors.Join(err, site.ErrorIf(status != tt.status || !strings.Contains(answer, tt.says), "%d %s, want %d %q", status, answer, tt.status, tt.says))
			})
		})
	}
	t.Run("foreign nodes", func(t *testing.T) { // the manager uses the permitted ones
		site.Must(t, api.Create(t.Context(), acme+"tenantnodes", []byte(strings.Replace(nodes("10.20.0.1"), "]}]", "]}, {name: n2, addresses: [10.21.0.1, 169.254.169.254]}, {name: n3, addresses: [127.0.0.1]}]", 1))))
		site.Must(t, api.Create(t.Context(), acme+"tcploadbalancers", []byte(balancer("default.web", "", ports))))
		site.Eventually(t, site.Soon, func() error {
			status := b.tenant(t, "acme").Status
			refused := strings.Count(strings.Join(status.Refused, "; "), "is not in the nodes.cidrs of the Tenant")
			return site.ErrorIf(refused != 3 || status.Services != "1/5", "acme has %+v", status)
		})
		site.Eventually(t, site.Soon, func() error {
			_, endpoints := b.derived(t, "acme", "web")
			return site.ErrorIf(fmt.Sprint(endpoints) != "[10.20.0.1 30080]", "connections are sent to %q", endpoints)
		})
	})
	t.Run("a stolen kubeconfig is revoked", func(t *testing.T) {
		site.Must(t, b.API.Delete(t.Context(), core+"serviceaccounts/herald-agent"))
		site.Eventually(t, site.Soon, func() error {
			status, _, err := api.Ask(t.Context(), http.MethodGet, acme+"tcploadbalancers", nil)
			site.Must(t, err)
			return site.ErrorIf(status != http.StatusUnauthorized, "status %d", status)
		})
	})
}

// TestHostileRoutes tries to serve foreign names for a tenant. The API server refuses
// that, or otherwise the manager.
func TestHostileRoutes(t *testing.T) {
	t.Parallel()
	b := startLBCluster(t)
	defineRoutes(t, b.APIServer)
	b.admit(t, "acme", `{nodes: {cidrs: [10.20.0.0/24], probe: {protocol: None}}, domains: [acme.example.com], ingress: {className: traefik, annotations: [example.com/timeout]}, gateway: {namespace: gateways, name: shared}}`)
	b.admit(t, "other", `{nodes: {cidrs: [10.21.0.0/24], probe: {protocol: None}}, domains: [shop.acme.example.com]}`)
	b.says(t, "other", "it has the domain shop.acme.example.com, which overlaps acme.example.com of the tenant acme")
	api := as(t, mount(t, b.secret(t, "acme")))
	const (
		acme = "/apis/herald.dev/v1alpha1/namespaces/tenant-acme/httploadbalancers"
		core = "/api/v1/namespaces/tenant-acme/secrets"
		path = "{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}"
	)
	ask := func(kind, name, more, object string) string {
		return fmt.Sprintf("{apiVersion: herald.dev/v1alpha1, kind: HTTPLoadBalancer, metadata: {name: %s.default.%s}, spec: {kind: %s, origin: {namespace: default, name: %[2]s}%[4]s, object: {%[5]s}}}", strings.ToLower(kind), name, kind, more, object)
	}
	route := func(name, hostname, ref, filter string) string {
		return ask("HTTPRoute", name, "", fmt.Sprintf("hostnames: [%q], rules: [{filters: [%s], backendRefs: [{name: web, port: 80%s}]}]", hostname, filter, ref))
	}
	in := func(name, host, more string) string {
		return ask("Ingress", name, more, fmt.Sprintf("rules: [{host: %q, http: {paths: [%s]}}]", host, path))
	}
	hostile := map[string]struct{ object, says string }{
		"another's subdomain": {in("sub", "web.other.lb.example.test", ""), "the hostname web.other.lb.example.test is not in the domains of the Tenant"},
		"a wildcard":          {in("wild", "*.lb.example.test", ""), "the hostname *.lb.example.test is not in the domains of the Tenant"},
		"any host":            {route("any", "", "", ""), "in the domains of the Tenant"},
		"another's route":     {route("route", "www.example.com", "", ""), "the hostname www.example.com is not in the domains of the Tenant"},
		"a certificate":       {ask("Ingress", "tls", "", "tls: [{hosts: [www.example.com]}], rules: [{http: {paths: ["+path+"]}}]"), "the hostname www.example.com is not in the domains of the Tenant"},
		"a snippet":           {in("snip", "a.acme.example.com", ", annotations: {nginx.ingress.kubernetes.io/server-snippet: x}"), "the annotation nginx.ingress.kubernetes.io/server-snippet is not in ingress.annotations of the Tenant"},
		"another's Service":   {route("svc", "a.acme.example.com", ", namespace: tenant-other", ""), "of the route's own"},
		"another's mirror":    {route("mirror", "a.acme.example.com", "", "{type: RequestMirror, requestMirror: {backendRef: {name: web, namespace: tenant-other, port: 80}}}"), "of the route's own"},
		"an extension":        {route("ext", "a.acme.example.com", "", "{type: ExtensionRef, extensionRef: {group: traefik.io, kind: Middleware, name: x}}"), "filter"},
		"a resource":          {ask("Ingress", "res", "", "defaultBackend: {resource: {kind: Secret, name: x}}"), "Services"},
		"another's origin":    {strings.Replace(in("origin", "a.acme.example.com", ""), "name: ingress.default.origin", "name: ingress.default.web", 1), "its origin"},
	}
	site.Eventually(t, site.Soon, func() error { // the server looks for new policies once a second
		status, _, err := api.Ask(t.Context(), http.MethodPost, acme+"?dryRun=All", []byte(hostile["a wildcard"].object))
		return errors.Join(err, site.ErrorIf(status != http.StatusUnprocessableEntity, "status %d", status))
	})
	for name, tt := range hostile {
		t.Run(name, func(t *testing.T) {
			status, answer, err := api.Ask(t.Context(), http.MethodPost, acme, []byte(tt.object))
			if site.Must(t, err); status != http.StatusUnprocessableEntity || !strings.Contains(answer, tt.says) {
				t.Errorf("%d %s, want %q", status, answer, tt.says)
			}
		})
	}
	b.Apply(t, core, "{apiVersion: v1, kind: Secret, metadata: {name: cert-web}, stringData: {tls.key: secret}}")
	for name, tt := range map[string]struct {
		method, path, object string
		status               int
	}{
		"its own":               {http.MethodPost, acme + "?dryRun=All", in("own", "a.acme.example.com", ", annotations: {example.com/timeout: 3s}"), http.StatusCreated},
		"a certificate's key":   {http.MethodGet, core + "/cert-web", "", http.StatusForbidden},
		"a key by a patch":      {http.MethodPatch, core + "/cert-web", "{}", http.StatusUnprocessableEntity},
		"a token":               {http.MethodPost, core, "{apiVersion: v1, kind: Secret, metadata: {name: tls-a, annotations: {kubernetes.io/service-account.name: default}}, type: kubernetes.io/service-account-token}", http.StatusUnprocessableEntity},
		"an Ingress":            {http.MethodPost, "/apis/networking.k8s.io/v1/namespaces/tenant-acme/ingresses", "{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {name: a}}", http.StatusForbidden},
		"a route":               {http.MethodPost, gatewayAPI + "namespaces/tenant-acme/httproutes", "{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, metadata: {name: a}}", http.StatusForbidden},
		"the names that it has": {http.MethodPatch, acme + "/ingress.default.web/status", "{status: {hostnames: [a.example.com]}}", http.StatusForbidden},
	} {
		t.Run(name, func(t *testing.T) {
			status, answer, err := api.Ask(t.Context(), tt.method, tt.path, []byte(tt.object))
			if site.Must(t, err); status != tt.status || strings.Contains(answer, "c2VjcmV0") {
				t.Errorf("%d %s, want %d", status, answer, tt.status)
			}
		})
	}
	t.Run("without the policy", func(t *testing.T) {
		site.Must(t, b.API.Delete(t.Context(), "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/herald-httploadbalancers"))
		for _, tt := range hostile {
			site.Eventually(t, site.Soon, func() error { return api.Create(t.Context(), acme, []byte(tt.object)) }) // the server learns of it in a moment
		}
		site.Eventually(t, site.Soon, func() error {
			status := b.tenant(t, "acme").Status
			return site.ErrorIf(status.Routes != "0/100" || len(status.Refused) != 11 || status.Refused[10] != "and 1 more", "acme has %+v", status)
		})
		for _, path := range []string{"/apis/networking.k8s.io/v1/namespaces/tenant-acme/ingresses", gatewayAPI + "namespaces/tenant-acme/httproutes"} {
			var list struct{ Items []any }
			if site.Must(t, b.API.Get(t.Context(), path, &list)); len(list.Items) > 0 {
				t.Errorf("derived are %v", list.Items)
			}
		}
	})
	t.Run("a domain that now belongs to another", func(t *testing.T) {
		const ingresses = "/apis/networking.k8s.io/v1/namespaces/tenant-acme/ingresses"
		hosts := func() (out []string) {
			var list networkingv1.IngressList
			site.Must(t, b.API.Get(t.Context(), ingresses, &list))
			for _, i := range list.Items {
				out = append(out, i.Spec.Rules[0].Host)
			}
			return out
		}
		site.Must(t, api.Create(t.Context(), acme, []byte(in("kept", "kept.acme.example.com", ""))))
		site.Eventually(t, site.Soon, func() error {
			return site.ErrorIf(!slices.Equal(hosts(), []string{"kept.acme.example.com"}), "derived are %v", hosts())
		})
		// A replacement that the API server refuses leaves the object unchanged.
		site.Must(t, api.Patch(t.Context(), acme+"/ingress.default.kept", map[string]any{"spec": map[string]any{"object": map[string]any{"rules": []any{map[string]any{
			"host": "kept.acme.lb.example.test", "http": map[string]any{"paths": []any{map[string]any{"path": "/", "pathType": "None",
				"backend": map[string]any{"service": map[string]any{"name": "web", "port": map[string]any{"number": 80}}}}}},
		}}}}}))
		site.Eventually(t, site.Soon, func() error {
			var lb v1alpha1.HTTPLoadBalancer
			err := b.API.Get(t.Context(), acme+"/ingress.default.kept", &lb)
			said := fmt.Sprint(lb.Status.Conditions)
			return errors.Join(err, site.ErrorIf(lb.Status.ObservedGeneration != lb.Generation || !strings.Contains(said, "pathType"), "its conditions are %s", said))
		})
		if !slices.Equal(hosts(), []string{"kept.acme.example.com"}) {
			t.Errorf("derived are %v", hosts())
		}
		site.Must(t, b.API.Patch(t.Context(), site.HeraldPath("tenants")+"/acme", map[string]any{"spec": map[string]any{"domains": nil}}))
		site.Eventually(t, site.Soon, func() error { return site.ErrorIf(len(hosts()) > 0, "derived are %v", hosts()) })
	})
}

// says waits until a Tenant's condition Ready has this message.
func (b *lbCluster) says(t *testing.T, name, message string) {
	t.Helper()
	site.Eventually(t, site.Soon, func() error {
		conditions := fmt.Sprint(b.tenant(t, name).Status.Conditions)
		return site.ErrorIf(!strings.Contains(conditions, message), "%s has %s", name, conditions)
	})
}

// secret returns the output of `herald tenant kubeconfig`.
func (b *lbCluster) secret(t *testing.T, name string) []byte {
	t.Helper()
	out := site.Get[[]byte](t)(exec.Command(binary, "tenant", "kubeconfig", name, "--kubeconfig", b.Kubeconfig).Output())
	return out
}

// The users of agents and managers, in the tenant's cluster and in the load-balancing one.
const (
	managerUser = "system:serviceaccount:herald-system:herald-manager"
	agentUser   = "system:serviceaccount:herald-system:herald-agent"
	remoteUser  = "system:serviceaccount:tenant-acme:herald-agent"
)

// roles returns the roles of a name in a manifest.
func roles(t *testing.T, name, kind string, flags ...string) (out []map[string]any) {
	t.Helper()
	text := site.Get[[]byte](t)(exec.Command(binary, append([]string{"manifest", kind}, flags...)...).Output())
	objects := site.ObjectsIn(t, text)
	for _, role := range []string{"ClusterRole/" + name, "Role/" + name} {
		if o, ok := objects[role]; ok {
			out = append(out, o.Tree)
		}
	}
	return out
}

// defineRoutes creates the kinds of gateway-api in an API server.
func defineRoutes(t *testing.T, k *site.APIServer) {
	t.Helper()
	files := site.Get[[]string](t)(filepath.Glob(filepath.Join(site.Part(t, "GATEWAY_API"), "standard", "*.yaml")))
	site.Must(t, k.API.Define(t.Context(), files...))
	for _, kind := range []string{"gatewayclasses", "gateways", "httproutes", "grpcroutes", "tlsroutes"} {
		site.Eventually(t, site.Soon, func() error { return k.API.Get(t.Context(), gatewayAPI+kind, nil) })
	}
}

const (
	gatewayAPI    = "/apis/gateway.networking.k8s.io/v1/"
	routesPath    = gatewayAPI + "namespaces/default/"
	ingressesPath = "/apis/networking.k8s.io/v1/namespaces/default/ingresses"
)

// askByName makes a tenant request everything that is served by name, and waits for the answers.
func (c *tenantCluster) askByName(t *testing.T) {
	t.Helper()
	c.Apply(t, servicesPath, "{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {selector: {app: web}, ports: [{name: http, port: 80}, {name: grpc, port: 81}, {name: tls, port: 443}]}}")
	c.Apply(t, "/api/v1/namespaces/default/secrets", fmt.Sprintf("{apiVersion: v1, kind: Secret, metadata: {name: web}, type: kubernetes.io/tls, data: {tls.crt: %[1]s, tls.key: %[1]s}}", base64.StdEncoding.EncodeToString([]byte("x"))))
	c.Apply(t, ingressesPath, strings.Replace(ingress, "rules:", "tls: [{hosts: [web.acme.lb.example.test], secretName: web}]\n  rules:", 1))
	for text := range strings.SplitSeq(asked, "---\n") {
		var tree map[string]any
		site.Must(t, yaml.Unmarshal([]byte(text), &tree))
		c.Apply(t, site.ObjectPath(t, tree), text)
	}
	for _, path := range []string{"httproutes/route", "grpcroutes/grpc", "tlsroutes/tls"} {
		site.Eventually(t, site.Soon, func() error {
			return conditioned(t, c.API, routesPath+path, tenant.ConditionServed, "False", tenant.ReasonNoNodes)
		})
	}
}

// TestRightsAreUsed makes a Service and routes come and go, renews a token, and
// deletes the Tenant. Agent and manager need exactly the rights of their manifests. It
// counts their writes, too.
func TestRightsAreUsed(t *testing.T) {
	t.Parallel()
	here, there := site.NewAudit(t, agentUser), site.NewAudit(t, managerUser, remoteUser)
	b := startLBCluster(t, there.Flags()...)
	defineRoutes(t, b.APIServer)
	b.admit(t, "acme", strings.Replace(allowed, "quota:", "ingress: {className: traefik}, gateway: {namespace: gateways, name: shared}, quota:", 1))
	c := newTenant(t, b, "acme", here.Flags()...)
	defineRoutes(t, c.APIServer)
	c.startAgent(t)
	c.expose(t, "first", "", "")
	c.becomes(t, "first", tenant.ReasonServed)

	// writes returns the writes about Services: a tenant's initial objects, and tokens,
	// have their own timing.
	writes := func(a *site.Audit, user string) (out []string) {
		for _, r := range a.Requests(t, user) {
			if r.ObjectRef == nil || !slices.Contains([]string{"create", "update", "patch", "delete"}, r.Verb) {
				continue
			}
			if object := r.ObjectRef; slices.Contains([]string{"tcploadbalancers", "endpointslices", "services"}, object.Resource) {
				out = append(out, fmt.Sprintf("%s %s/%s %s", r.Verb, object.Resource, object.Subresource, object.Name))
			}
		}
		return out
	}
	all := func() [3][]string {
		return [3][]string{writes(here, agentUser), writes(there, remoteUser), writes(there, managerUser)}
	}
	// settled returns the writes once there have been no more for a while: a server logs
	// an answer after the client has received it.
	settled := func() [3][]string { return site.Settled(t, all) }
	// The sixth is the address writer's, and an annotation needs one more. A write is
	// repeated until its event arrives.
	machine := site.StartWitness(t)
	for _, service := range []struct {
		name, annotations, spec string
		writes                  int
	}{{"web", "", "", 5}, {"nodeport", tenant.AnnotationClass + ": " + tenant.ClassKubeLB, "type: NodePort", 6}} {
		before, began := settled(), time.Now()
		c.expose(t, service.name, service.annotations, service.spec)
		c.becomes(t, service.name, tenant.ReasonServed)
		var made []string
		for i, now := range settled() {
			made = append(made, now[len(before[i]):]...)
		}
		if len(made) != service.writes {
			site.FailTiming(t, machine.Starved(began), "%s takes %d writes besides its addresses', want %d: %q", service.name, len(made), service.writes, made)
		}
	}
	site.Must(t, c.API.Delete(t.Context(), servicesPath+"/web"))
	b.gone(t, "acme", "web")
	c.askByName(t)
	if _, refused := there.Used(t, remoteUser); len(refused) > 0 {
		t.Errorf("the agent's refused requests are %q", refused)
	}
	// The manager deletes disallowed objects. Objects that are no longer requested may go
	// to the garbage collector first.
	site.Must(t, b.API.Patch(t.Context(), site.HeraldPath("tenants")+"/acme", map[string]any{"spec": map[string]any{"nodes": map[string]any{"ports": "1-2"}, "ingress": nil, "gateway": nil}}))
	c.becomes(t, "first", tenant.ReasonRefused)
	for _, path := range []string{"httproutes/route", "grpcroutes/grpc", "tlsroutes/tls"} {
		site.Eventually(t, site.Soon, func() error {
			return conditioned(t, c.API, routesPath+path, tenant.ConditionServed, "False", tenant.ReasonRefused)
		})
		site.Must(t, c.API.Delete(t.Context(), routesPath+path))
	}
	site.Eventually(t, site.Soon, func() error { // it reports about an Ingress once that has lasted
		var list corev1.EventList
		err := c.API.Get(t.Context(), "/api/v1/namespaces/default/events?fieldSelector=involvedObject.kind=Ingress", &list)
		return errors.Join(err, site.ErrorIf(len(list.Items) == 0, "no event tells that the Ingress is not served"))
	})
	site.Must(t, c.API.Delete(t.Context(), ingressesPath+"/web"))
	site.Eventually(t, site.Soon, func() error {
		return site.ErrorIf(c.API.Get(t.Context(), servicesPath+"/"+tenant.CopyName("web"), nil) == nil, "the copy of the Service web is there")
	})
	site.Must(t, b.API.Delete(t.Context(), site.HeraldPath("tenants")+"/acme"))

	for _, who := range []struct {
		user  string
		audit *site.Audit
		roles []map[string]any
	}{
		{agentUser, here, roles(t, "herald-agent", "agent", "--cluster", "acme")},
		{remoteUser, there, roles(t, "herald-agent", "manager")},
		{managerUser, there, roles(t, "herald-manager", "manager")},
	} {
		given := slices.DeleteFunc(site.RightsOf(t, who.roles...), func(right string) bool {
			return right == "bind rbac.authorization.k8s.io/clusterroles" // it is not a request
		})
		site.Eventually(t, site.Soon, func() error {
			used, refused := who.audit.Used(t, who.user)
			if who.user != remoteUser && len(refused) > 0 { // its account goes with the Tenant
				t.Fatalf("the refused requests of %s are %q", who.user, refused)
			}
			diff := cmp.Diff(given, used)
			return site.ErrorIf(diff != "", "rights of %s (-given +used):\n%s", who.user, diff)
		})
	}
}
