//go:build e2e

package e2e

import (
	"bytes"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/google/go-cmp/cmp"

	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/manifests"
)

const chart = "../../manifests/helm/herald"

// installer runs helm or kustomize, which `make e2e` builds.
func installer(t *testing.T, name string, args ...string) ([]byte, error) {
	t.Helper()
	path := os.Getenv(strings.ToUpper(name))
	if path == "" {
		path = "../realparts/bin/" + name
	}
	c := exec.CommandContext(t.Context(), path, args...)
	c.Env = append(os.Environ(), "HOME="+t.TempDir())
	var stderr bytes.Buffer
	c.Stderr = &stderr
	out, err := c.Output()
	if err != nil && stderr.Len() > 0 {
		err = errors.New(stderr.String())
	}
	return out, err
}

// objects are those of a stream, by kind and name; each as text and as what it says.
type objects map[string]struct {
	text []byte
	tree map[string]any
}

func objectsIn(t *testing.T, stream []byte) objects {
	t.Helper()
	all := objects{}
	for _, text := range bytes.Split(stream, []byte("\n---\n")) {
		var tree map[string]any
		must(t, yaml.Unmarshal(text, &tree))
		if tree == nil {
			continue
		}
		name := tree["kind"].(string) + "/" + tree["metadata"].(map[string]any)["name"].(string)
		if _, twice := all[name]; twice {
			t.Errorf("there are two of %s", name)
		}
		one := all[name]
		one.text, one.tree = text, tree
		all[name] = one
	}
	return all
}

// rendered is what the chart makes of values.
func rendered(t *testing.T, values string) objects {
	t.Helper()
	out, err := renders(t, values)
	must(t, err)
	return objectsIn(t, out)
}

func renders(t *testing.T, values string) ([]byte, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "values.yaml")
	must(t, os.WriteFile(file, []byte(values), 0o600))
	return installer(t, "helm", "template", "herald", chart, "--namespace", "herald-system", "--kube-version", "1.36.3", "--values", file)
}

// kustomized is what an overlay makes.
func kustomized(t *testing.T, folder string) objects {
	t.Helper()
	out, err := installer(t, "kustomize", "build", "../../manifests/kustomize/"+folder)
	must(t, err)
	return objectsIn(t, out)
}

// file is the speakers' file in the ConfigMap.
func (o objects) file(t *testing.T) string {
	t.Helper()
	data, _ := o["ConfigMap/herald"].tree["data"].(map[string]any)
	text, _ := data["herald.yaml"].(string)
	if text == "" {
		t.Fatal("there is no herald.yaml in the ConfigMap")
	}
	return text
}

// pod is the spec of the DaemonSet's pods.
func pod(daemonSet map[string]any) map[string]any {
	return daemonSet["spec"].(map[string]any)["template"].(map[string]any)["spec"].(map[string]any)
}

// TestChartIsKustomize checks that helm and kustomize install the same, but for the
// labels by which Helm knows its objects, and the Namespace, which it makes itself.
func TestChartIsKustomize(t *testing.T) {
	out, err := installer(t, "helm", "lint", "--strict", chart)
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	want, got := kustomized(t, "services"), rendered(t, "")
	plain := func(all objects) map[string]any {
		out := map[string]any{}
		for name, o := range all {
			delete(o.tree["metadata"].(map[string]any), "labels")
			if o.tree["kind"] == "DaemonSet" {
				pod(o.tree)["containers"].([]any)[0].(map[string]any)["image"] = ""
			}
			if o.tree["kind"] == "ConfigMap" {
				var file any
				must(t, yaml.Unmarshal([]byte(all.file(t)), &file))
				o.tree["data"] = file
			}
			out[name] = o.tree
		}
		return out
	}
	delete(want, "Namespace/herald-system")
	if diff := cmp.Diff(plain(want), plain(got)); diff != "" {
		t.Errorf("(-kustomize +helm):\n%s", diff)
	}
}

// TestChartFits checks that for every file the chart's pod is the one that `herald
// manifest daemonset` makes for it.
func TestChartFits(t *testing.T) {
	const (
		bgp      = "speaker: {services: {}, bgp: {asn: 64512"
		election = "election: {members: {m1: \"10.3.0.1:7946\"}, keyFile: /etc/herald/gossip.key}"
		balancer = "{name: b, listen: [{address: \"127.0.0.1:443\"}, {address: \"127.0.0.1:9443\"}], backends: {members: {port: 6443, checks: [apiserver]}}"
	)
	for name, values := range map[string]string{
		"nothing":               "",
		"real time":             "speaker: {services: {}, realtime: true}",
		"listening":             bgp + ", listen: {}}}",
		"listening on a port":   bgp + ", listen: {port: 1790}}}",
		"metrics for others":    "speaker: {services: {}, metrics: {listen: \"10.0.0.1:9474\"}}",
		"metrics for all":       "speaker: {services: {}, metrics: {listen: \"[::]:9475\"}}",
		"metrics on a low port": "speaker: {services: {}, metrics: {listen: \":80\"}}",
		"no metrics":            "speaker: {services: {}, metrics: {listen: \"\"}}",
		"an election":           "speaker: {services: {}, election: {bind: \"10.3.0.9:53\", members: {m1: \"10.3.0.1:7946\"}, keyFile: /etc/herald/gossip.key}}",
		"balancers":             "speaker: {services: {}, " + election + ", balancers: [" + balancer + "}]}",
		"proxies":               "speaker: {services: {}, " + election + ", balancers: [" + balancer + ", mode: proxy}]}",
		"balancers alone":       "{controlPlane: false, terminationGracePeriodSeconds: 21, speaker: {services: null, " + election + ", balancers: [" + balancer + "}]}}",
		"proxies alone":         "{controlPlane: false, terminationGracePeriodSeconds: 21, speaker: {services: null, " + election + ", balancers: [" + balancer + ", mode: proxy}]}}",
		"VIPs":                  "speaker: {services: {}, vips: [{name: a, addresses: [10.99.0.10], announce: bgp, checks: [c]}], checks: [{name: c, tcp: {address: \"127.0.0.1:1\"}}], bgp: {asn: 1, peers: [{address: 10.0.0.1, asn: 2}]}}",
	} {
		t.Run(name, func(t *testing.T) {
			all := rendered(t, values)
			c, err := config.Parse("herald.yaml", []byte(all.file(t)), config.Hostname("worker"))
			must(t, err)
			made, err := manifests.Make(manifests.DaemonSet, manifests.Options{Config: c, Image: "herald:v0.1.0"})
			must(t, err)
			if c.Services == nil { // so it is called after what it does, and ends a second sooner
				made = []byte(strings.NewReplacer("herald-worker", "herald", "Seconds: 20\n", "Seconds: 21\n").Replace(string(made)))
			}
			want := pod(objectsIn(t, made)["DaemonSet/herald"].tree)
			if diff := cmp.Diff(want, pod(all["DaemonSet/herald"].tree)); diff != "" {
				t.Errorf("(-herald manifest +helm):\n%s", diff)
			}
		})
	}
}

// TestChartValues checks the values that do not concern the file.
func TestChartValues(t *testing.T) {
	all := rendered(t, `
secret: keys
controlPlane: false
image: {repository: registry.example.com/herald, tag: v9, pullPolicy: Always, pullSecrets: [{name: registry}]}
nodeSelector: {vips: "true"}
tolerations: [{key: a, operator: Exists}]
priorityClassName: ""
resources: {limits: {memory: 1Gi}}
terminationGracePeriodSeconds: 50
podLabels: {a: b}
podAnnotations: {c: d}
`)
	text := string(all["DaemonSet/herald"].text)
	for _, want := range []string{
		"secret: {name: keys, optional: true}", "{key: node-role.kubernetes.io/control-plane, operator: DoesNotExist}",
		"image: registry.example.com/herald:v9\n", "imagePullPolicy: Always\n", "- name: registry\n", `vips: "true"`, "- key: a\n",
		"memory: 1Gi\n", "terminationGracePeriodSeconds: 50\n", "        a: b\n", "annotations:\n        c: d\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("there is no %q in\n%s", want, text)
		}
	}
	for _, gone := range []string{"priorityClassName", "512Mi"} {
		if strings.Contains(text, gone) {
			t.Errorf("there is %q in\n%s", gone, text)
		}
	}
}

// TestChartRefuses checks that bad values are refused, with where and why.
func TestChartRefuses(t *testing.T) {
	for values, want := range map[string]string{
		"replicas: 3": "at '': additional properties 'replicas' not allowed",
		"speaker: {services: {}, admin: {socket: /x}}":     "at '/speaker': additional properties 'admin' not allowed",
		"speaker: {services: {}, nodeName: m1}":            "at '/speaker': additional properties 'nodeName' not allowed",
		"speaker: {services: {namespace: a}}":              "at '/speaker/services': additional properties 'namespace' not allowed",
		"speaker: {services: {kubeconfig: /a}}":            "at '/speaker/services': additional properties 'kubeconfig' not allowed",
		"speaker: {services: {assign: maybe}}":             "at '/speaker/services/assign': got string, want boolean",
		"speaker: {services: {linger: 1}}":                 "at '/speaker/services/linger': got number, want string",
		"speaker: {services: null}":                        "at '/speaker': 'anyOf' failed",
		"speaker: {services: null, balancers: {a: b}}":     "at '/speaker/balancers': got object, want array",
		"speaker: {services: {}, loadBalancer: {type: a}}": "at '/speaker/loadBalancer/type': value must be one of 'internal', 'external'",
		"maxUnavailable: many":                             "at '/maxUnavailable': 'anyOf' failed",
		"speaker: {services: {}, vips: {a: b}}":            "at '/speaker/vips': got object, want array",
		"speaker: {services: {}, metrics: {listen: nine}}": "at '/speaker/metrics/listen': 'nine' does not match pattern",
		"image: {pullPolicy: Sometimes}":                   "at '/image/pullPolicy': value must be one of 'Always', 'IfNotPresent', 'Never'",
		"controlPlane: 1":                                  "at '/controlPlane': got number, want boolean",
		"terminationGracePeriodSeconds: 5":                 "at '/terminationGracePeriodSeconds': minimum: got 5, want 21",
		"secret: A_b":                                      "at '/secret': 'A_b' does not match pattern",
	} {
		if out, err := renders(t, values); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s\n%s", values, err, want, out)
		}
	}
}

// TestWorkers checks that the component keeps the pods of the overlay from the
// control plane, as the chart's controlPlane: false does, and changes nothing else.
func TestWorkers(t *testing.T) {
	base, overlay := kustomized(t, "services"), kustomized(t, "services-example")
	with := pod(overlay["DaemonSet/herald"].tree)
	if diff := cmp.Diff(pod(rendered(t, "controlPlane: false")["DaemonSet/herald"].tree)["affinity"], with["affinity"]); diff != "" {
		t.Errorf("(-helm +kustomize):\n%s", diff)
	}
	delete(with, "affinity")
	with["containers"].([]any)[0].(map[string]any)["image"] = "herald:dev"
	if diff := cmp.Diff(pod(base["DaemonSet/herald"].tree), with); diff != "" {
		t.Errorf("(-base +overlay):\n%s", diff)
	}
	for name, want := range map[string]bool{"AddressPool/lan": true, "BGPPeer/tor": true, "Secret/herald": true, "ConfigMap/herald": true} {
		if _, ok := overlay[name]; ok != want {
			t.Errorf("the overlay has %q", slices.Sorted(maps.Keys(overlay)))
		}
	}
	if _, err := config.Parse("herald.yaml", []byte(overlay.file(t)), config.Hostname("worker")); err != nil {
		t.Error(err)
	}
}
