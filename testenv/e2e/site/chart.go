//go:build e2e

package site

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/herald-vip/herald/testenv/guide"
)

const Chart = "../../../manifests/helm/herald"

// Installer runs helm or kustomize, which `make e2e` builds.
func Installer(t *testing.T, name string, args ...string) ([]byte, error) {
	t.Helper()
	c := exec.CommandContext(t.Context(), Part(t, strings.ToUpper(name)), args...)
	c.Env = append(os.Environ(), "HOME="+t.TempDir())
	var stderr bytes.Buffer
	c.Stderr = &stderr
	out, err := c.Output()
	if err != nil && stderr.Len() > 0 {
		err = errors.New(stderr.String())
	}
	return out, err
}

// Objects holds the objects of a stream, by kind and name.
type Objects map[string]Object

// Object is an object, as text and decoded.
type Object struct {
	Text []byte
	Tree map[string]any
}

func ObjectsIn(t *testing.T, stream []byte) Objects {
	t.Helper()
	all := Objects{}
	for _, text := range bytes.Split(stream, []byte("\n---\n")) {
		var tree map[string]any
		Must(t, yaml.Unmarshal(text, &tree))
		if tree == nil {
			continue
		}
		name := tree["kind"].(string) + "/" + tree["metadata"].(map[string]any)["name"].(string)
		if _, twice := all[name]; twice {
			t.Errorf("there are two of %s", name)
		}
		all[name] = Object{text, tree}
	}
	return all
}

// Rendered returns the chart's objects for values.
func Rendered(t *testing.T, values string) Objects {
	t.Helper()
	out := Get[[]byte](t)(Renders(t, values))
	return ObjectsIn(t, out)
}

func Renders(t *testing.T, values string) ([]byte, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "values.yaml")
	Must(t, os.WriteFile(file, []byte(values), 0o600))
	return Installer(t, "helm", "template", "herald", Chart, "--namespace", "herald-system", "--kube-version", "1.36.3", "--values", file)
}

// Kustomized returns the objects of an overlay.
func Kustomized(t *testing.T, folder string) Objects {
	t.Helper()
	out := Get[[]byte](t)(Installer(t, "kustomize", "build", "../../../manifests/kustomize/"+folder))
	return ObjectsIn(t, out)
}

// File returns the speakers' file in the ConfigMap.
func (o Objects) File(t *testing.T) string {
	t.Helper()
	data, _ := o["ConfigMap/herald"].Tree["data"].(map[string]any)
	text, _ := data["herald.yaml"].(string)
	if text == "" {
		t.Fatal("there is no herald.yaml in the ConfigMap")
	}
	return text
}

// Pod returns the spec of the DaemonSet's pods.
func Pod(daemonSet map[string]any) map[string]any {
	return daemonSet["spec"].(map[string]any)["template"].(map[string]any)["spec"].(map[string]any)
}

// Blocks returns the code blocks of the document at a path, as [guide.Blocks] does.
func Blocks(t *testing.T, path, heading, language string) []string {
	t.Helper()
	return guide.Blocks(ReadFile(t, path), heading, language)
}
