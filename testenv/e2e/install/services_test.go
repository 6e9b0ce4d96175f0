//go:build e2e

package install

import (
	"bytes"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/herald-vip/herald/testenv/e2e/site"
)

// TestServicesOnAPIServer checks with a kube-apiserver the objects that install Herald
// for Services, and the migration of MetalLB's resources; and it tests the rights
// given.
func TestServicesOnAPIServer(t *testing.T) {
	k := site.StartAPIServer(t)
	for path, object := range site.AccountObjects(t) {
		k.Do(t, http.MethodPost, path+"?fieldValidation=Strict", object, nil)
	}
	t.Run("manifests", func(t *testing.T) { testServicesManifests(t, k) })
	t.Run("rights", func(t *testing.T) { testRights(t, k) })
	t.Run("from MetalLB", func(t *testing.T) { testFromMetalLB(t, k) })
	t.Run("guide", func(t *testing.T) { testGuide(t, k) })
}

// testServicesManifests checks every object, with strict validation of fields.
func testServicesManifests(t *testing.T, k *site.APIServer) {
	for source, all := range map[string]site.Objects{
		"services": site.Kustomized(t, "services"), "services-example": site.Kustomized(t, "services-example"),
		"helm":        site.Rendered(t, ""),
		"helm, other": site.Rendered(t, "{controlPlane: false, podLabels: {a: b}, speaker: {services: {}, realtime: true}, image: {pullSecrets: [{name: a}]}}"),
	} {
		for what, o := range all {
			// Existing objects are checked under another name.
			name := o.Tree["metadata"].(map[string]any)["name"].(string)
			object := bytes.Replace(append(bytes.Clone(o.Text), '\n'), []byte("\n  name: "+name+"\n"), []byte("\n  name: another\n"), 1)
			if status, answer := k.Judge(t, site.ObjectPath(t, o.Tree), object); status != http.StatusCreated {
				t.Errorf("%s of %s: %d %s\n%s", what, source, status, answer, object)
			}
			typo := append(object, "spek: {}\n"...)
			if status, answer := k.Judge(t, site.ObjectPath(t, o.Tree), typo); status != http.StatusBadRequest {
				t.Errorf("the answer to %s of %s with a typo is %d %s", what, source, status, answer)
			}
		}
	}
}

// testRights tests the service account's rights, and some that it must not have.
func testRights(t *testing.T, k *site.APIServer) {
	k.Pki.IssueAccount(t)
	account := k.As(t, "services")
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
		{http.MethodGet, "/apis/herald.dev/v1alpha1/nodestatuses", "", http.StatusOK},
		{http.MethodGet, "/apis/herald.dev/v1alpha1/nodestatuses" + watch, "", http.StatusOK},
		{http.MethodPatch, "/apis/herald.dev/v1alpha1/nodestatuses/none", "{}", http.StatusNotFound},
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
		{http.MethodPost, "/apis/herald.dev/v1alpha1/bgppeers", string(site.HeraldObject("BGPPeer", "{address: 10.0.0.1, asn: 1}")), forbid},
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
		status, answer, err := account.Ask(t.Context(), test.method, test.path, []byte(test.body))
		site.Must(t, err)
		if status != test.want {
			t.Errorf("%s %s: %d, want %d: %s", test.method, test.path, status, test.want, answer)
		}
	}
}

// testFromMetalLB checks with the API server every output of "herald migrate metallb"
// in the tests of package metallb, except objects that users must complete.
func testFromMetalLB(t *testing.T, k *site.APIServer) {
	files, err := filepath.Glob("../../../migrate/metallb/testdata/*.herald")
	site.Must(t, err)
	judged := 0
	for _, file := range files {
		for name, o := range site.ObjectsIn(t, []byte(site.ReadFile(t, file))) {
			if bytes.Contains(o.Text, []byte("# FILL IN")) && o.Tree["kind"] != "ConfigMap" {
				continue
			}
			judged++
			if status, answer := k.Judge(t, site.ObjectPath(t, o.Tree), o.Text); status != http.StatusCreated {
				t.Errorf("%s of %s: %d %s\n%s", name, filepath.Base(file), status, answer, o.Text)
			}
		}
	}
	if judged < 15 {
		t.Errorf("only %d objects were judged", judged)
	}
}
