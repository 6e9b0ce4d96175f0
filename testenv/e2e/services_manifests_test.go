//go:build e2e

package e2e

import (
	"bytes"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"io"
	"iter"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// collections are where the API server keeps objects of a kind, in a namespace if
// they are in one.
var collections = map[string]string{
	"Namespace":          "/api/v1/namespaces",
	"ServiceAccount":     "/api/v1/namespaces/%s/serviceaccounts",
	"ConfigMap":          "/api/v1/namespaces/%s/configmaps",
	"Secret":             "/api/v1/namespaces/%s/secrets",
	"Service":            "/api/v1/namespaces/%s/services",
	"DaemonSet":          "/apis/apps/v1/namespaces/%s/daemonsets",
	"ClusterRole":        "/apis/rbac.authorization.k8s.io/v1/clusterroles",
	"ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
	"Role":               "/apis/rbac.authorization.k8s.io/v1/namespaces/%s/roles",
	"RoleBinding":        "/apis/rbac.authorization.k8s.io/v1/namespaces/%s/rolebindings",
	"AddressPool":        "/apis/herald.dev/v1alpha1/addresspools",
	"BGPPeer":            "/apis/herald.dev/v1alpha1/bgppeers",
}

// collectionOf is where an object belongs.
func collectionOf(t *testing.T, tree map[string]any) string {
	t.Helper()
	path, ok := collections[tree["kind"].(string)]
	if !ok {
		t.Fatalf("an object of kind %v", tree["kind"])
	}
	if strings.Contains(path, "%s") {
		return fmt.Sprintf(path, tree["metadata"].(map[string]any)["namespace"])
	}
	return path
}

// TestServicesOnAPIServer shows a kube-apiserver what installs Herald for Services,
// and what comes of MetalLB's resources; and tries the rights that this gives.
func TestServicesOnAPIServer(t *testing.T) {
	a := &crdAPI{newAPI(t), nil}
	a.define(t)
	for path, object := range accountObjects(t) {
		status, answer, err := a.do(a.admin, http.MethodPost, path+"?fieldValidation=Strict", object)
		must(t, err)
		if status != http.StatusCreated {
			t.Fatalf("create %s: %d %s", object, status, answer)
		}
	}
	t.Run("manifests", a.testServicesManifests)
	t.Run("rights", a.testRights)
	t.Run("from MetalLB", a.testFromMetalLB)
	t.Run("guide", a.testGuide)
}

// accountObjects are Herald's namespace, its service account and all that gives this
// rights, each by where it is created, in order.
func accountObjects(t *testing.T) iter.Seq2[string, []byte] {
	t.Helper()
	base := kustomized(t, "services")
	return func(yield func(string, []byte) bool) {
		for _, kind := range []string{"Namespace/herald-system", "ServiceAccount/herald", "ClusterRole/herald", "ClusterRoleBinding/herald", "Role/herald", "RoleBinding/herald"} {
			if o := base[kind]; !yield(collectionOf(t, o.tree), o.text) {
				return
			}
		}
	}
}

// serviceAccount is the name of Herald's as a user. To RBAC whoever has the name is
// the account: also a certificate.
const serviceAccount = "system:serviceaccount:herald-system:herald"

// issueAccount issues that certificate, as services.crt.
func (p *pki) issueAccount(t *testing.T) {
	t.Helper()
	p.issue(t, "services", &x509.Certificate{
		Subject:     pkix.Name{CommonName: serviceAccount},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
}

// testServicesManifests has every object judged, with strict validation of fields.
func (a *crdAPI) testServicesManifests(t *testing.T) {
	for source, all := range map[string]objects{
		"services": kustomized(t, "services"), "services-example": kustomized(t, "services-example"),
		"helm":        rendered(t, ""),
		"helm, other": rendered(t, "{controlPlane: false, podLabels: {a: b}, speaker: {services: {}, realtime: true}, image: {pullSecrets: [{name: a}]}}"),
	} {
		for what, o := range all {
			// What is there already is judged under another name.
			name := o.tree["metadata"].(map[string]any)["name"].(string)
			object := bytes.Replace(append(bytes.Clone(o.text), '\n'), []byte("\n  name: "+name+"\n"), []byte("\n  name: another\n"), 1)
			if status, answer := a.create(t, collectionOf(t, o.tree), object); status != http.StatusCreated {
				t.Errorf("%s of %s: %d %s\n%s", what, source, status, answer, object)
			}
			typo := append(object, "spek: {}\n"...)
			if status, answer := a.create(t, collectionOf(t, o.tree), typo); status != http.StatusBadRequest {
				t.Errorf("%s of %s with a typo is answered by %d %s", what, source, status, answer)
			}
		}
	}
}

// testRights tries what the service account may do, and some of what it may not.
func (a *crdAPI) testRights(t *testing.T) {
	a.pki.issueAccount(t)
	client := a.client(t, "services")
	const (
		lease  = "/apis/coordination.k8s.io/v1/namespaces/herald-system/leases"
		only   = "?fieldSelector=metadata.name%3Dherald-writer"
		watch  = "?watch=1"
		event  = "{apiVersion: v1, kind: Event, metadata: {name: a}, involvedObject: {kind: Service, namespace: default, name: a}}"
		forbid = http.StatusForbidden
	)
	for _, test := range []struct {
		method, path, body string
		want               int
	}{
		{http.MethodGet, "/api/v1/services", "", http.StatusOK},
		{http.MethodGet, "/api/v1/services" + watch, "", http.StatusOK},
		{http.MethodGet, "/apis/discovery.k8s.io/v1/endpointslices", "", http.StatusOK},
		{http.MethodGet, "/apis/discovery.k8s.io/v1/endpointslices" + watch, "", http.StatusOK},
		{http.MethodGet, "/api/v1/nodes", "", http.StatusOK},
		{http.MethodGet, "/api/v1/nodes" + watch, "", http.StatusOK},
		{http.MethodGet, "/api/v1/namespaces", "", http.StatusOK},
		{http.MethodGet, "/api/v1/namespaces" + watch, "", http.StatusOK},
		{http.MethodGet, "/apis/herald.dev/v1alpha1/addresspools", "", http.StatusOK},
		{http.MethodGet, "/apis/herald.dev/v1alpha1/addresspools" + watch, "", http.StatusOK},
		{http.MethodGet, "/apis/herald.dev/v1alpha1/bgppeers", "", http.StatusOK},
		{http.MethodGet, "/apis/herald.dev/v1alpha1/bgppeers" + watch, "", http.StatusOK},
		{http.MethodPatch, "/api/v1/namespaces/default/services/none/status", "{}", http.StatusNotFound},
		{http.MethodPatch, "/apis/herald.dev/v1alpha1/addresspools/none/status", "{}", http.StatusNotFound},
		{http.MethodPatch, "/apis/herald.dev/v1alpha1/bgppeers/none/status", "{}", forbid},
		{http.MethodPost, "/api/v1/namespaces/default/events", event, http.StatusCreated},
		{http.MethodPost, lease, "{metadata: {name: herald-writer}}", http.StatusCreated},
		{http.MethodGet, lease + only, "", http.StatusOK},
		{http.MethodGet, lease + only + "&" + watch[1:], "", http.StatusOK},
		{http.MethodPatch, lease + "/herald-writer", `{"spec": {"leaseDurationSeconds": 6}}`, http.StatusOK},
		{http.MethodGet, "/api/v1/namespaces/herald-system/secrets", "", http.StatusOK},
		{http.MethodGet, "/api/v1/namespaces/herald-system/secrets" + watch, "", http.StatusOK},

		{http.MethodPatch, "/api/v1/namespaces/default/services/none", "{}", forbid},
		{http.MethodDelete, "/api/v1/namespaces/default/services/none", "", forbid},
		{http.MethodPatch, "/api/v1/nodes/none", "{}", forbid},
		{http.MethodPatch, "/apis/herald.dev/v1alpha1/addresspools/none", "{}", forbid},
		{http.MethodPost, "/apis/herald.dev/v1alpha1/bgppeers", string(object("BGPPeer", "{address: 10.0.0.1, asn: 1}")), forbid},
		{http.MethodGet, "/api/v1/pods", "", forbid},
		{http.MethodGet, "/api/v1/configmaps", "", forbid},
		{http.MethodGet, "/api/v1/secrets", "", forbid},
		{http.MethodGet, "/api/v1/namespaces/default/secrets", "", forbid},
		{http.MethodDelete, "/api/v1/namespaces/herald-system/secrets/a", "", forbid},
		{http.MethodGet, lease, "", forbid},
		{http.MethodPatch, lease + "/other", "{}", forbid},
		{http.MethodDelete, lease + "/herald-writer", "", forbid},
		{http.MethodPost, strings.Replace(lease, "herald-system", "kube-system", 1), "{metadata: {name: herald-writer}}", forbid},
	} {
		status, answer := a.request(t, client, test.method, test.path, test.body)
		if status != test.want {
			t.Errorf("%s %s: %d, want %d: %s", test.method, test.path, status, test.want, answer)
		}
	}
}

// request is do, with the type of content that a patch needs.
func (a *api) request(t *testing.T, client *http.Client, method, path, body string) (int, string) {
	t.Helper()
	request, err := http.NewRequest(method, "https://127.0.0.1:6443"+path, strings.NewReader(body))
	must(t, err)
	request.Header.Set("Content-Type", "application/yaml")
	if method == http.MethodPatch {
		request.Header.Set("Content-Type", "application/merge-patch+json")
	}
	response, err := client.Do(request)
	must(t, err)
	defer response.Body.Close()
	if strings.Contains(path, "watch=1") && response.StatusCode == http.StatusOK {
		return response.StatusCode, "" // it may be long until there is something to see
	}
	text, err := io.ReadAll(response.Body)
	must(t, err)
	return response.StatusCode, string(text)
}

// testFromMetalLB has every object judged that the tests of package migrate have
// herald migrate metallb make, but for those that are to be completed by hand.
func (a *crdAPI) testFromMetalLB(t *testing.T) {
	files, err := filepath.Glob("../../migrate/testdata/metallb/*.herald")
	must(t, err)
	judged := 0
	for _, file := range files {
		stream, err := os.ReadFile(file)
		must(t, err)
		for name, o := range objectsIn(t, stream) {
			if bytes.Contains(o.text, []byte("# FILL IN")) && o.tree["kind"] != "ConfigMap" {
				continue
			}
			judged++
			if status, answer := a.create(t, collectionOf(t, o.tree), o.text); status != http.StatusCreated {
				t.Errorf("%s of %s: %d %s\n%s", name, filepath.Base(file), status, answer, o.text)
			}
		}
	}
	if judged < 15 {
		t.Errorf("only %d objects were judged", judged)
	}
}
