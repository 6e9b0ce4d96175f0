//go:build e2e

package tenants

import (
	"fmt"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/herald-vip/herald/service/tenant"
	"github.com/herald-vip/herald/testenv/e2e/site"
)

// The users that agents and managers are, in the tenant's cluster and in the load-balancing one.
const (
	managerUser = "system:serviceaccount:herald-system:herald-manager"
	agentUser   = "system:serviceaccount:herald-system:herald-agent"
	remoteUser  = "system:serviceaccount:tenant-acme:herald-agent"
)

// roles are those of a name that a manifest has.
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

// TestRightsAreUsed has a Service come and go, a token renewed, and the Tenant go. Agent and manager need no other rights than
// those of their manifests, and each of these. It counts what they write, too.
func TestRightsAreUsed(t *testing.T) {
	t.Parallel()
	here, there := site.NewAudit(t, agentUser), site.NewAudit(t, managerUser, remoteUser)
	b := startLBCluster(t, there.Flags()...)
	b.admit(t, "acme", allowed)
	c := newTenant(t, b, "acme", here.Flags()...)
	c.startAgent(t)
	c.expose(t, "first", "", "")
	c.becomes(t, "first", tenant.ReasonServed)

	// writes are those about Services: what a tenant is given at first, and tokens, have their own time.
	writes := func(a *site.Audit, user string) (out []string) {
		for _, r := range a.Requests(t, user) {
			if r.ObjectRef == nil || !slices.Contains([]string{"create", "update", "patch", "delete"}, r.Verb) {
				continue
			}
			if of := r.ObjectRef; slices.Contains([]string{"tcploadbalancers", "endpointslices", "services"}, of.Resource) {
				out = append(out, fmt.Sprintf("%s %s/%s %s", r.Verb, of.Resource, of.Subresource, of.Name))
			}
		}
		return out
	}
	all := func() [3][]string {
		return [3][]string{writes(here, agentUser), writes(there, remoteUser), writes(there, managerUser)}
	}
	// The sixth is the writer's, and an annotation is one more. What was written and has not come back is written again.
	machine := site.StartWitness(t)
	for _, service := range []struct {
		name, annotations, spec string
		writes                  int
	}{{"web", "", "", 5}, {"nodeport", tenant.AnnotationClass + ": " + tenant.ClassKubeLB, "type: NodePort", 6}} {
		before, began := all(), time.Now()
		c.expose(t, service.name, service.annotations, service.spec)
		c.becomes(t, service.name, tenant.ReasonServed)
		var made []string
		for i, now := range all() {
			made = append(made, now[len(before[i]):]...)
		}
		if len(made) != service.writes {
			site.FailTiming(t, machine.Starved(began), "%s takes %d writes besides that of its addresses, want %d: %q", service.name, len(made), service.writes, made)
		}
	}
	site.Must(t, c.API.Delete(t.Context(), servicesPath+"/web"))
	b.gone(t, "acme", "web")
	if _, refused := there.Used(t, remoteUser); len(refused) > 0 {
		t.Errorf("refused to the agent are %q", refused)
	}
	// What is not allowed any more the manager deletes; what is not asked for any more the garbage collector may, before it can.
	site.Must(t, b.API.Patch(t.Context(), site.HeraldPath("tenants")+"/acme", map[string]any{"spec": map[string]any{"nodes": map[string]any{"ports": "1-2"}}}))
	c.becomes(t, "first", tenant.ReasonRefused)
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
			return right == "bind rbac.authorization.k8s.io/clusterroles" // which is no request
		})
		site.Eventually(t, site.Soon, func() error {
			used, refused := who.audit.Used(t, who.user)
			if who.user != remoteUser && len(refused) > 0 { // its account goes with the Tenant
				t.Fatalf("refused to %s are %q", who.user, refused)
			}
			diff := cmp.Diff(given, used)
			return site.ErrorIf(diff != "", "rights of %s (-given +used):\n%s", who.user, diff)
		})
	}
}
