package manifests_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/google/go-cmp/cmp"

	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/manifests"
	"github.com/herald-vip/herald/testenv/must"
)

const servicesFolder = "kustomize/services/"

// parseFile reads a configuration as a node does.
func parseFile(t *testing.T, file, node string) *config.Config {
	t.Helper()
	data := must.Get[[]byte](t)(os.ReadFile(file))
	c, err := config.Parse(file, data, config.Hostname(node))
	must.Do(t, err)
	return c
}

// TestServices checks the effect of a services section: a pod on every node that knows the node's name and has
// a service account or the given kubeconfig.
func TestServices(t *testing.T) {
	const file = "apiVersion: herald.dev/v1alpha1\nkind: Speaker\nnodeName: m1\n"
	off := false
	onNode, folders := []string{"GOMEMLIMIT", "NODE_NAME"}, []string{"/etc/herald", "/run/herald", "/var/lib/herald"}
	for _, test := range []struct {
		name, config string
		kind         manifests.Kind
		namespace    string
		want         spec
		env          []string
		mounts       []string
	}{
		{name: "DaemonSet", kind: manifests.DaemonSet, config: "services: {}", namespace: "herald-system",
			want: spec{Name: "herald", Grace: 21, Nodes: map[string]string{"kubernetes.io/os": "linux"}},
			env:  onNode, mounts: folders},
		{name: "namespace and linger", kind: manifests.DaemonSet, config: "services: {namespace: vips, linger: 90s}", namespace: "vips",
			want: spec{Name: "herald", Grace: 110, Nodes: map[string]string{"kubernetes.io/os": "linux"}},
			env:  onNode, mounts: folders},
		{name: "DaemonSet with a kubeconfig", kind: manifests.DaemonSet, config: "services: {kubeconfig: /etc/kubernetes/herald.conf}", namespace: "herald-system",
			want: spec{Automount: &off, Grace: 21, Nodes: map[string]string{"kubernetes.io/os": "linux"}},
			env:  onNode, mounts: []string{"/etc/herald", "/etc/kubernetes/herald.conf", "/run/herald", "/var/lib/herald"}},
		{name: "static pod", kind: manifests.StaticPod, config: "services: {kubeconfig: /etc/herald/kubeconfig}", namespace: "kube-system",
			want: spec{Automount: &off, Grace: 21}, env: []string{"GOMEMLIMIT"}, mounts: folders},
	} {
		t.Run(test.name, func(t *testing.T) {
			out := must.Get[[]byte](t)(manifests.Make(test.kind, manifests.Options{Config: parse(t, file+test.config)}))
			var object struct {
				Metadata struct{ Namespace string }
				Spec     struct{ Template struct{ Spec spec } }
			}
			var bare pod
			must.Do(t, errors.Join(yaml.Unmarshal(out, &object), yaml.Unmarshal(out, &bare)))
			got := object.Spec.Template.Spec
			if test.kind == manifests.StaticPod {
				got = bare.Spec
			}
			c := got.Containers[0]
			var env []string
			for _, e := range c.Env {
				env = append(env, e.Name)
			}
			mounts := c.paths()
			if add := strings.Join(c.Security.Capabilities.Add, " "); add != "NET_ADMIN NET_RAW" {
				t.Errorf("the capabilities are %s", add)
			}
			got.Containers, got.Volumes = nil, nil
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if object.Metadata.Namespace != test.namespace || !slices.Equal(env, test.env) || !slices.Equal(mounts, test.mounts) {
				t.Errorf("in %s with %q and %q, want %s, %q and %q", object.Metadata.Namespace, env, mounts, test.namespace, test.env, test.mounts)
			}
		})
	}
}

// TestFoldersOfTheNode checks that a static pod and the DaemonSet of Services use the same socket on the node,
// so that `herald status` works with both, and the same folder of state.
func TestFoldersOfTheNode(t *testing.T) {
	for _, file := range []string{"static-pod.yaml", servicesFolder + "daemonset.yaml", "helm/herald/templates/daemonset.yaml"} {
		text := must.Get[[]byte](t)(os.ReadFile(file))
		for _, folder := range []string{"/run/herald", "/var/lib/herald"} {
			if !bytes.Contains(text, []byte("hostPath: {path: "+folder+", type: DirectoryOrCreate}")) {
				t.Errorf("%s has no %s of the node", file, folder)
			}
		}
	}
}

// TestChartSchema checks that the chart takes the fields of the configuration that
// it does not decide itself, and no others; and has the CRDs.
func TestChartSchema(t *testing.T) {
	data := must.Get[[]byte](t)(os.ReadFile("helm/herald/values.schema.json"))
	type object struct {
		Properties map[string]object
		Additional *bool `json:"additionalProperties"`
	}
	var schema struct {
		Properties struct{ Speaker object }
	}
	must.Do(t, json.Unmarshal(data, &schema))
	speaker := schema.Properties.Speaker
	for _, level := range []struct {
		subject reflect.Type
		present object
		decided []string
	}{
		{reflect.TypeFor[config.Config](), speaker, []string{"apiVersion", "kind", "nodeName", "admin"}},
		{reflect.TypeFor[config.Services](), speaker.Properties["services"], []string{"kubeconfig", "namespace"}},
		{reflect.TypeFor[config.Metrics](), speaker.Properties["metrics"], nil},
	} {
		want := map[string]bool{}
		for f := range level.subject.Fields() {
			if name := f.Tag.Get("yaml"); !slices.Contains(level.decided, name) {
				want[name] = true
			}
		}
		got := map[string]bool{}
		for name := range level.present.Properties {
			got[name] = true
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-configuration +schema):\n%s", level.subject, diff)
		}
		if level.present.Additional == nil || *level.present.Additional {
			t.Errorf("%s: the schema takes what the configuration does not know", level.subject)
		}
	}
	files, err := filepath.Glob("crds/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("the CRDs are %q, %v", files, err)
	}
	for _, file := range files {
		want := must.Get[[]byte](t)(os.ReadFile(file))
		if have, err := os.ReadFile("helm/herald/" + file); err != nil || !bytes.Equal(want, have) {
			t.Errorf("helm/herald/%s differs: link helm/herald/crds to ../../crds: %v", file, err)
		}
	}
}

// TestServicesExample checks that the files of the overlay and of its base are valid on
// every node, and that the Secret has their files.
func TestServicesExample(t *testing.T) {
	parseFile(t, servicesFolder+"herald.yaml", "worker")
	var secret struct {
		Data map[string]string `yaml:"stringData"`
	}
	read(t, "kustomize/services-example/secret.yaml", &secret)
	for _, node := range []string{"m1", "worker"} {
		c := parseFile(t, "kustomize/services-example/herald.yaml", node)
		if dir, name := filepath.Split(c.Election.KeyFile); dir != "/etc/herald/" || secret.Data[name] == "" {
			t.Errorf("the Secret lacks %s", c.Election.KeyFile)
		}
		if c.Admin.Socket != parseFile(t, servicesFolder+"herald.yaml", node).Admin.Socket {
			t.Error("the example has another socket than its base")
		}
	}
}
