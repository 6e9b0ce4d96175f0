// Package platforms checks Herald's files for other platforms with those platforms' own types.
package platforms

import (
	"os"
	"strings"
	"testing"

	"github.com/a8m/envsubst"
	"github.com/k0sproject/k0sctl/pkg/apis/k0sctl.k0sproject.io/v1beta1"
	"gopkg.in/yaml.v2"
)

// must ends the test on an error.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// read reads a configuration as k0sctl does: it substitutes variables, rejects unknown
// fields, and validates the values.
func read(text string) (*v1beta1.Cluster, error) {
	text, err := envsubst.String(text)
	if err != nil {
		return nil, err
	}
	var c v1beta1.Cluster
	if err := yaml.UnmarshalStrict([]byte(text), &c); err != nil {
		return nil, err
	}
	return &c, c.Validate()
}

// TestK0sctl checks manifests/k0s/k0sctl.yaml with k0sctl's types.
func TestK0sctl(t *testing.T) {
	text, err := os.ReadFile("../../manifests/k0s/k0sctl.yaml")
	must(t, err)
	t.Chdir(t.TempDir())
	must(t, os.WriteFile("herald", nil, 0o755)) // the file names it
	c, err := read(string(text))
	must(t, err)
	controllers := c.Spec.Hosts.Controllers()
	if len(controllers) != 3 {
		t.Errorf("%d controllers, want 3", len(controllers))
	}
	for _, h := range controllers {
		for _, hook := range [][2]string{{"apply", "before"}, {"install", "after"}} {
			if len(h.Hooks.ForActionAndStage(hook[0], hook[1])) == 0 {
				t.Errorf("%s has no hook %v", h.PrivateAddress, hook)
			}
		}
		found := false
		for _, f := range h.Files {
			found = found || strings.Contains(f.Data, "/bin/kill -HUP $MAINPID\n")
		}
		if !found {
			t.Errorf("%s has no unit that reloads", h.PrivateAddress)
		}
	}
	for right, wrong := range map[string]string{"privateAddress:": "privateAdress:", "role: worker": "role: labourer"} {
		if _, err := read(strings.Replace(string(text), right, wrong, 1)); err == nil {
			t.Errorf("%s is accepted", wrong)
		}
	}
}
