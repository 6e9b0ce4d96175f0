package manifests_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/manifests"
	"github.com/herald-vip/herald/testenv/must"
)

// TestKustomize checks that the bases and overlays name what exists.
func TestKustomize(t *testing.T) {
	for _, dir := range []string{"base", "example", "services", "services-example", "workers", "balancer"} {
		dir = filepath.Join("kustomize", dir)
		var k struct {
			APIVersion, Kind, Namespace string
			Resources, Components       []string
			Images                      []struct{ Name, NewName, NewTag string }
			Options                     any `yaml:"generatorOptions"`
			Generated                   []struct {
				Name, Namespace, Behavior string
				Files                     []string
			} `yaml:"configMapGenerator"`
			Patches []any
		}
		read(t, filepath.Join(dir, "kustomization.yaml"), &k)
		named := slices.Concat(k.Resources, k.Components)
		for _, g := range k.Generated {
			named = append(named, g.Files...)
		}
		if len(named)+len(k.Patches) == 0 {
			t.Errorf("%s has nothing", dir)
		}
		for _, r := range named {
			if _, err := os.Stat(filepath.Join(dir, r)); err != nil {
				t.Errorf("%s: %v", dir, err)
			}
		}
		for _, i := range k.Images {
			if i.Name != strings.Split(manifests.DefaultImage, ":")[0] {
				t.Errorf("%s replaces the image %s, and the DaemonSet has %s", dir, i.Name, manifests.DefaultImage)
			}
		}
	}
}

// TestExampleConfigures checks that the example's configuration is valid, that its
// Secret has the files it names, and that the DaemonSet of the base serves it.
func TestExampleConfigures(t *testing.T) {
	var configMap struct{ Data map[string]string }
	read(t, "kustomize/example/configmap.yaml", &configMap)
	var secret struct {
		Data map[string]string `yaml:"stringData"`
	}
	read(t, "kustomize/example/secret.yaml", &secret)
	text, ok := configMap.Data[filepath.Base(manifests.DefaultFile)]
	if !ok {
		t.Fatalf("the ConfigMap has no %s", filepath.Base(manifests.DefaultFile))
	}
	for _, node := range []string{"m1", "m2", "m3"} {
		c, err := config.Parse("configmap.yaml", []byte(text), config.Hostname(node))
		must.Do(t, err)
		if dir, name := filepath.Split(c.Election.KeyFile); dir != "/etc/herald/" || secret.Data[name] == "" {
			t.Errorf("the Secret lacks %s", c.Election.KeyFile)
		}
	}

	// A key that everybody can read here must not become anybody's.
	dir := t.TempDir()
	text = "nodeName: m1\n" + strings.ReplaceAll(text, "/etc/herald", dir)
	for name, content := range map[string]string{"herald.yaml": text, "gossip.key": secret.Data["gossip.key"]} {
		must.Do(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	if _, err := config.Load(filepath.Join(dir, "herald.yaml")); err == nil || !strings.Contains(err.Error(), "election.keyFile: line 1 is not base64") {
		t.Errorf("with the key of the example: %v", err)
	}
}

// read decodes a YAML file that has a value for each of its fields.
func read(t *testing.T, file string, v any) {
	t.Helper()
	data := must.Get[[]byte](t)(os.ReadFile(file))
	if err := yaml.Unmarshal(data, v); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}
