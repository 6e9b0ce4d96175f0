//go:build e2e

package tenants

import (
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/herald-vip/herald/tenant"
	"github.com/herald-vip/herald/testenv/e2e/site"
)

// The users of agents and managers, in the tenant's cluster and in the load-balancing one.
const (
	managerUser = "system:serviceaccount:herald-system:herald-manager"
	agentUser   = "system:serviceaccount:herald-system:herald-agent"
	remoteUser  = "system:serviceaccount:tenant-acme:herald-agent"
)

// roles returns the roles of a name in a manifest.
func roles(t *testing.T, name, kind string, flags ...string) (out []map[string]any) {
	t.Helper()
	text, err := exec.Command(binary, append([]string{"manifest", kind}, flags...)...).Output()
	site.Must(t, err)
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
	files, err := filepath.Glob(filepath.Join(site.Part(t, "GATEWAY_API"), "standard", "*.yaml"))
	site.Must(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		site.Must(t, err)
		k.Apply(t, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", string(text))
	}
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
		var tree struct {
			Kind     string
			Metadata struct{ Namespace string }
		}
		site.Must(t, yaml.Unmarshal([]byte(text), &tree))
		path := strings.ToLower(tree.Kind) + "s"
		if tree.Kind == "GatewayClass" {
			path = "gatewayclasses"
		} else {
			path = "namespaces/default/" + path
		}
		c.Apply(t, gatewayAPI+path, text)
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
	settled := func() (last [3][]string) {
		const calm = time.Second
		since := time.Now()
		site.Eventually(t, site.Soon, func() error {
			if now := all(); fmt.Sprint(now) != fmt.Sprint(last) {
				last, since = now, time.Now()
			}
			return site.ErrorIf(time.Since(since) < calm, "writes do not end: %q", last)
		})
		return last
	}
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
