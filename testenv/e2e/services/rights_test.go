//go:build e2e

package services

import (
	"bufio"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/herald-vip/herald/service/assign"
	"github.com/herald-vip/herald/testenv/e2e/site"
)

// auditPolicy has the API server write down every request of Herald's.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
rules:
- {level: Metadata, users: ["` + site.ServiceAccount + `"]}
- {level: None}
`

// TestRightsAreUsed has a speaker announce Services, and be the writer, with the rights
// of its manifests. It needs no other, and each of these.
func TestRightsAreUsed(t *testing.T) {
	dir := t.TempDir()
	policy, audit := filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "audit.log")
	site.Must(t, os.WriteFile(policy, []byte(auditPolicy), 0o600))
	k := site.StartAPIServer(t, "--audit-policy-file="+policy, "--audit-log-path="+audit)
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

	given := rightsGiven(t)
	site.Eventually(t, site.Soon, func() error {
		used, refused := rightsUsed(t, audit)
		if len(refused) > 0 {
			t.Fatalf("refused are %q", refused)
		}
		diff := cmp.Diff(given, used)
		return site.ErrorIf(diff != "", "rights (-given +used):\n%s", diff)
	})
}

// rightsGiven are the verbs of the manifests' roles, each with its group and resource.
func rightsGiven(t *testing.T) []string {
	t.Helper()
	given := map[string]bool{}
	for name, o := range site.Kustomized(t, "services") {
		if name != "ClusterRole/herald" && name != "Role/herald" {
			continue
		}
		for _, r := range o.Tree["rules"].([]any) {
			rule := r.(map[string]any)
			for _, group := range rule["apiGroups"].([]any) {
				for _, resource := range rule["resources"].([]any) {
					for _, verb := range rule["verbs"].([]any) {
						given[fmt.Sprintf("%s %s/%s", verb, group, resource)] = true
					}
				}
			}
			if names, ok := rule["resourceNames"]; ok && fmt.Sprint(names) != "["+assign.LeaseName+"]" {
				t.Errorf("the Lease is %v, and %s in the program", names, assign.LeaseName)
			}
		}
	}
	return slices.Sorted(maps.Keys(given))
}

// rightsUsed are those that the log of the API server tells of, and the requests that
// were refused for lack of one.
func rightsUsed(t *testing.T, audit string) (used, refused []string) {
	t.Helper()
	log := site.ReadFile(t, audit)
	all := map[string]bool{}
	lines := bufio.NewScanner(strings.NewReader(log))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var entry struct {
			Verb, RequestURI string
			ObjectRef        *struct{ APIGroup, Resource, Subresource string }
			Annotations      map[string]string
		}
		if json.Unmarshal(lines.Bytes(), &entry) != nil {
			continue // the last line may not be whole yet
		}
		switch {
		case entry.Annotations["authorization.k8s.io/decision"] == "forbid":
			refused = append(refused, entry.Verb+" "+entry.RequestURI)
		case entry.ObjectRef != nil:
			resource := entry.ObjectRef.Resource
			if entry.ObjectRef.Subresource != "" {
				resource += "/" + entry.ObjectRef.Subresource
			}
			all[fmt.Sprintf("%s %s/%s", entry.Verb, entry.ObjectRef.APIGroup, resource)] = true
		}
	}
	site.Must(t, lines.Err())
	return slices.Sorted(maps.Keys(all)), refused
}
