//go:build e2e

package tenants

import (
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/testenv/e2e/site"
	"github.com/herald-vip/herald/testenv/services"
)

// as returns a client of a server by a kubeconfig.
func as(t *testing.T, kubeconfig string) *services.API {
	t.Helper()
	c, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	site.Must(t, err)
	api, err := services.NewAPI(c)
	site.Must(t, err)
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
			var object any
			if tt.object != "" {
				object = []byte(tt.object)
			}
			site.Eventually(t, site.Soon, func() error { // the server looks for new policies once a second
				status, answer, err := api.Ask(t.Context(), tt.method, path, object)
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
			var object any
			if tt.object != "" {
				object = []byte(tt.object)
			}
			status, answer, err := api.Ask(t.Context(), tt.method, tt.path, object)
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
	out, err := exec.Command(binary, "tenant", "kubeconfig", name, "--kubeconfig", b.Kubeconfig).Output()
	site.Must(t, err)
	return out
}
