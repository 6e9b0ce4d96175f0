//go:build e2e

package services

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/herald-vip/herald/service/assign"
	"github.com/herald-vip/herald/testenv/e2e/site"
)

// TestRightsAreUsed has a speaker announce Services, be the writer, and be examined,
// with the rights of its manifests. It needs no other, and each of these.
func TestRightsAreUsed(t *testing.T) {
	audit := site.NewAudit(t, site.ServiceAccount)
	k := site.StartAPIServer(t, audit.Flags()...)
	for path, object := range site.AccountObjects(t) {
		k.Apply(t, path, string(object))
	}
	k.Pki.IssueAccount(t)
	s := newServedAs(t, k, "services", "services: {kubeconfig: /etc/herald/kubeconfig, namespace: herald-system}\n")
	k.Do(t, http.MethodPost, "/api/v1/namespaces/herald-system/secrets", []byte(
		`{apiVersion: v1, kind: Secret, metadata: {name: rack-b}, stringData: {password: `+passwordOfPeer+`}}`), nil)
	s.uplink.start(t)
	site.Boot(t, s.Lab, "r1", "r2", "s")
	s.create(t)
	s.Path(t, "r1", serviceAddress)
	s.Path(t, "r2", serviceAddress) // by its password
	createBalancer(t, k, "refused", "herald.dev/pool: nowhere", "")
	becomes(t, k, "refused", "NoPool")
	k.Apply(t, site.HeraldPath("tenants"), `{apiVersion: herald.dev/v1alpha1, kind: Tenant, metadata: {name: acme}, spec: {nodes: {cidrs: [10.20.0.0/24]}}}`)
	report, _ := site.Run(t, s.Node("s"), "herald", "doctor", "--config", "/etc/herald/herald.yaml") // other findings do not matter here
	if want := "tenant acme: no manager has acted on it"; !strings.Contains(report, want) {
		t.Errorf("herald doctor does not say %q:\n%s", want, report)
	}

	given := rightsGiven(t)
	site.Eventually(t, site.Soon, func() error {
		used, refused := audit.Used(t, site.ServiceAccount)
		if len(refused) > 0 {
			t.Fatalf("refused are %q", refused)
		}
		diff := cmp.Diff(given, used)
		return site.ErrorIf(diff != "", "rights (-given +used):\n%s", diff)
	})
}

// rightsGiven returns the verbs of the manifests' roles, each with its group and resource.
func rightsGiven(t *testing.T) []string {
	t.Helper()
	base := site.Kustomized(t, "services")
	role := base["Role/herald"].Tree
	for _, r := range role["rules"].([]any) {
		if names, ok := r.(map[string]any)["resourceNames"]; ok && fmt.Sprint(names) != "["+assign.LeaseName+"]" {
			t.Errorf("the Lease is %v, and %s in the program", names, assign.LeaseName)
		}
	}
	return site.RightsOf(t, base["ClusterRole/herald"].Tree, role)
}
