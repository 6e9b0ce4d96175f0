//go:build e2e

package install

import (
	"bytes"
	"net/http"
	"strings"
	"testing"

	"github.com/herald-vip/herald/manifests"
	"github.com/herald-vip/herald/testenv/e2e/site"
)

const (
	pods       = "/api/v1/namespaces/kube-system/pods"
	daemonSets = "/apis/apps/v1/namespaces/kube-system/daemonsets"
	accounts   = "/api/v1/namespaces/kube-system/serviceaccounts"
)

// TestManifestsOnAPIServer checks with a kube-apiserver the manifests, and the client
// certificate for health checks of docs/kubeadm.md for clusters without anonymous
// users.
func TestManifestsOnAPIServer(t *testing.T) {
	k := site.StartAPIServer(t, "--anonymous-auth=false")
	t.Run("manifests", func(t *testing.T) { testManifests(t, k) })
	t.Run("certificate of the check", func(t *testing.T) { testCertificate(t, k) })
}

// testManifests checks every manifest, with strict validation of fields.
func testManifests(t *testing.T, k *site.APIServer) {
	// A controller would create it; without it no pod is accepted.
	k.Do(t, http.MethodPost, accounts, []byte("{apiVersion: v1, kind: ServiceAccount, metadata: {name: default}}"), nil)
	k.Do(t, http.MethodPost, "/api/v1/namespaces", []byte("{apiVersion: v1, kind: Namespace, metadata: {name: herald-system}}"), nil)
	accepted := func(name, collection string, object []byte) {
		t.Run(name, func(t *testing.T) {
			if status, answer := k.Judge(t, collection, object); status != http.StatusCreated {
				t.Errorf("%d %s\n%s", status, answer, object)
			}
		})
	}
	const dir = "../../../manifests/"
	for file, collection := range map[string]string{
		"static-pod.yaml":                   pods,
		"kustomize/base/daemonset.yaml":     daemonSets,
		"kustomize/balancer/daemonset.yaml": daemonSets,
		"kustomize/example/configmap.yaml":  "/api/v1/namespaces/kube-system/configmaps",
		"kustomize/example/secret.yaml":     "/api/v1/namespaces/kube-system/secrets",
	} {
		accepted(file, collection, []byte(site.ReadFile(t, dir+file)))
	}
	c := parseConfig(t, "../../../config/example.yaml")
	c.Metrics.Listen = "[::1]:9474"
	var pod []byte
	for kind, collection := range map[manifests.Kind]string{
		manifests.StaticPod: pods,
		// With a services section it is in the namespace of Herald's service account.
		manifests.DaemonSet: "/apis/apps/v1/namespaces/herald-system/daemonsets",
	} {
		object, err := manifests.Make(kind, manifests.Options{Config: c, Image: "registry.example.com:5000/herald@sha256:" + strings.Repeat("0a", 32)})
		site.Must(t, err)
		accepted(string(kind)+" for every field", collection, object)
		if kind == manifests.StaticPod {
			pod = object
		}
	}
	for _, typo := range []string{"readOnly", "hostNetwork", "drop", "periodSeconds"} {
		t.Run("typo "+typo, func(t *testing.T) {
			if status, answer := k.Judge(t, pods, bytes.ReplaceAll(pod, []byte(typo+":"), []byte(typo+"s:"))); status != http.StatusBadRequest {
				t.Errorf("the answer for %ss is %d %s", typo, status, answer)
			}
		})
	}
}

// testCertificate checks the rights of a client certificate of the cluster's CA for a
// user without rights of its own: only the check works.
func testCertificate(t *testing.T, k *site.APIServer) {
	for _, test := range []struct {
		certificate, path string
		want              int
	}{
		{"health", "/readyz", http.StatusOK},
		{"health", "/livez", http.StatusOK},
		{"health", "/api/v1/nodes", http.StatusForbidden},
		{"health", "/api/v1/namespaces/kube-system/secrets", http.StatusForbidden},
		{"", "/readyz", http.StatusUnauthorized},
	} {
		status, answer, err := k.As(t, test.certificate).Ask(t.Context(), http.MethodGet, test.path, nil)
		site.Must(t, err)
		if status != test.want {
			t.Errorf("certificate %q: %s is answered by %d %s, want %d", test.certificate, test.path, status, answer, test.want)
		}
	}
}
