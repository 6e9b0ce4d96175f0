//go:build e2e

package site

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
)

// Audit is an API server's audit log of some users' requests.
type Audit struct{ policy, log string }

// NewAudit prepares a log of these users' requests.
func NewAudit(t *testing.T, users ...string) *Audit {
	t.Helper()
	dir := t.TempDir()
	a := &Audit{filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "audit.log")}
	quoted, err := json.Marshal(users)
	Must(t, err)
	Must(t, os.WriteFile(a.policy, fmt.Appendf(nil, `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: Metadata, users: %s}
- {level: None}
`, quoted), 0o600))
	return a
}

// Flags are the flags that make the API server write it.
func (a *Audit) Flags() []string {
	return []string{"--audit-policy-file=" + a.policy, "--audit-log-path=" + a.log}
}

// Request is one of the requests.
type Request struct {
	Verb, RequestURI string
	Stage            string
	User             struct{ Username string }
	ObjectRef        *struct{ APIGroup, Resource, Subresource, Namespace, Name string }
	ResponseStatus   *struct{ Code int }
	Annotations      map[string]string
}

// Resource returns the group and resource of the request.
func (r *Request) Resource() string {
	resource := r.ObjectRef.APIGroup + "/" + r.ObjectRef.Resource
	if r.ObjectRef.Subresource != "" {
		resource += "/" + r.ObjectRef.Subresource
	}
	return resource
}

// Requests returns a user's requests so far, in order.
func (a *Audit) Requests(t *testing.T, user string) (all []Request) {
	t.Helper()
	lines := bufio.NewScanner(strings.NewReader(ReadFile(t, a.log)))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var r Request
		if json.Unmarshal(lines.Bytes(), &r) == nil && r.User.Username == user { // the last line may be incomplete
			all = append(all, r)
		}
	}
	Must(t, lines.Err())
	return all
}

// Used returns the rights that a user has used so far, each as a verb, a group and a
// resource. It also returns the requests that were refused for lack of one. An apply
// of a new object also uses the right to create it.
func (a *Audit) Used(t *testing.T, user string) (used, refused []string) {
	t.Helper()
	all := map[string]bool{}
	for _, r := range a.Requests(t, user) {
		switch {
		case r.Annotations["authorization.k8s.io/decision"] == "forbid":
			refused = append(refused, r.Verb+" "+r.RequestURI)
		case r.ObjectRef != nil:
			all[r.Verb+" "+r.Resource()] = true
			if r.ResponseStatus != nil && r.ResponseStatus.Code == http.StatusCreated {
				all["create "+r.Resource()] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(all)), refused
}

// RightsOf returns the verbs of a role's rules, each with its group and resource, in
// the form of [Audit.Used].
func RightsOf(t *testing.T, roles ...map[string]any) []string {
	t.Helper()
	given := map[string]bool{}
	for _, role := range roles {
		for _, r := range role["rules"].([]any) {
			rule := r.(map[string]any)
			for _, group := range rule["apiGroups"].([]any) {
				for _, resource := range rule["resources"].([]any) {
					for _, verb := range rule["verbs"].([]any) {
						given[fmt.Sprintf("%s %s/%s", verb, group, resource)] = true
					}
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(given))
}
