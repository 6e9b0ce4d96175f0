package facts

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/testenv/must"
)

// Tenants are listed only with a services section and access to the API server.
func TestAskTenants(t *testing.T) {
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		if r.URL.Path != "/apis/herald.dev/v1alpha1/tenants" {
			t.Errorf("asked for %s", r.URL.Path)
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"kind": "TenantList", "apiVersion": "herald.dev/v1alpha1", "items": [{"metadata": {"name": "acme"}}]}`)
	}))
	t.Cleanup(server.Close)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	err := os.WriteFile(kubeconfig, fmt.Appendf(nil, `{apiVersion: v1, kind: Config, clusters: [{name: a, cluster: {server: %q}}], contexts: [{name: a, context: {cluster: a}}], current-context: a}`, server.URL), 0o600)
	must.Do(t, err)
	t.Setenv("KUBERNETES_SERVICE_HOST", "") // not in a pod
	for _, test := range []struct {
		name     string
		services *config.Services
		want     int
		fails    bool
	}{
		{name: "no Services"},
		{name: "no pod", services: &config.Services{}},
		{name: "a kubeconfig", services: &config.Services{Kubeconfig: kubeconfig}, want: 1},
		{name: "missing kubeconfig", services: &config.Services{Kubeconfig: kubeconfig + "x"}, fails: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			asked = 0
			got, err := askTenants(t.Context(), &config.Config{NodeName: "m1", Services: test.services})
			if len(got) != test.want || asked != test.want || (err != nil) != test.fails {
				t.Errorf("asked %d times: %v, %v", asked, got, err)
			}
		})
	}
}
