//go:build e2e

package services

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/herald-vip/herald/testenv/e2e/site"
)

// testTenants submits tenants, and the names of their objects, to the server.
func (a *crdAPI) testTenants(t *testing.T) {
	a.testCases(t, "tenants", "Tenant", tenantCases())
	named := func(name, object string) []byte {
		return []byte(strings.Replace(object, "{name: a}", fmt.Sprintf("{name: %s}", name), 1))
	}
	tenant := string(site.HeraldObject("Tenant", "{nodes: {cidrs: [10.20.0.0/24]}}"))
	for name, want := range map[string][]string{strings.Repeat("a", 56): nil, strings.Repeat("a", 57): {badTenantName}, "a.b": {badTenantName}} {
		if diff := cmp.Diff(want, a.mistakes(t, "tenants", named(name, tenant))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	nodes := `{apiVersion: herald.dev/v1alpha1, kind: TenantNodes, metadata: {name: a}, nodes: [{name: n1, addresses: [10.20.0.1]}]}`
	for name, want := range map[string][]string{"nodes": nil, "others": {badNodesName}} {
		if diff := cmp.Diff(want, a.mistakes(t, "namespaces/default/tenantnodes", named(name, nodes))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
