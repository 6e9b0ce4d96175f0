//go:build e2e

package install

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/google/go-cmp/cmp"

	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/manifests"
	"github.com/herald-vip/herald/testenv/e2e/site"
)

// TestChartIsKustomize checks that helm and kustomize install the same, except Helm's
// own labels, and the Namespace, which Helm creates itself.
func TestChartIsKustomize(t *testing.T) {
	out, err := site.Installer(t, "helm", "lint", "--strict", site.Chart)
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	want, got := site.Kustomized(t, "services"), site.Rendered(t, "")
	plain := func(all site.Objects) map[string]any {
		out := map[string]any{}
		for name, o := range all {
			delete(o.Tree["metadata"].(map[string]any), "labels")
			if o.Tree["kind"] == "DaemonSet" {
				site.Pod(o.Tree)["containers"].([]any)[0].(map[string]any)["image"] = ""
			}
			if o.Tree["kind"] == "ConfigMap" {
				var file any
				site.Must(t, yaml.Unmarshal([]byte(all.File(t)), &file))
				o.Tree["data"] = file
			}
			out[name] = o.Tree
		}
		return out
	}
	delete(want, "Namespace/herald-system")
	if diff := cmp.Diff(plain(want), plain(got)); diff != "" {
		t.Errorf("(-kustomize +helm):\n%s", diff)
	}
}

// TestChartFits checks for every file that the chart's pod matches the output of
// `herald manifest daemonset`.
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
		"lingering":             "speaker: {services: {linger: 1m30s}}",
		"lingering VIPs":        "speaker: {services: {linger: 2s}, vips: [{name: a, addresses: [10.99.0.10], announce: bgp, checks: [c], linger: 2500ms}], checks: [{name: c, tcp: {address: \"127.0.0.1:1\"}}], bgp: {asn: 1, peers: [{address: 10.0.0.1, asn: 2}]}}",
		"VIPs":                  "speaker: {services: {}, vips: [{name: a, addresses: [10.99.0.10], announce: bgp, checks: [c]}], checks: [{name: c, tcp: {address: \"127.0.0.1:1\"}}], bgp: {asn: 1, peers: [{address: 10.0.0.1, asn: 2}]}}",
	} {
		t.Run(name, func(t *testing.T) {
			all := site.Rendered(t, values)
			c, err := config.Parse("herald.yaml", []byte(all.File(t)), config.Hostname("worker"))
			site.Must(t, err)
			made, err := manifests.Make(manifests.DaemonSet, manifests.Options{Config: c, Image: "herald:v0.1.0"})
			site.Must(t, err)
			if c.Services == nil { // the manifest names it after its role, and ends it a second sooner
				made = []byte(strings.NewReplacer("herald-worker", "herald", "Seconds: 20\n", "Seconds: 21\n").Replace(string(made)))
			}
			want := site.Pod(site.ObjectsIn(t, made)["DaemonSet/herald"].Tree)
			if diff := cmp.Diff(want, site.Pod(all["DaemonSet/herald"].Tree)); diff != "" {
				t.Errorf("(-herald manifest +helm):\n%s", diff)
			}
		})
	}
}

// TestChartValues checks the values that do not concern the file.
func TestChartValues(t *testing.T) {
	all := site.Rendered(t, `
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
	text := string(all["DaemonSet/herald"].Text)
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

// TestChartRefuses checks that bad values are refused, with place and reason.
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
		if out, err := site.Renders(t, values); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s\n%s", values, err, want, out)
		}
	}
}

// TestWorkers checks that the component keeps the overlay's pods off the control
// plane, like the chart's controlPlane: false, and changes nothing else.
func TestWorkers(t *testing.T) {
	base, overlay := site.Kustomized(t, "services"), site.Kustomized(t, "services-example")
	with := site.Pod(overlay["DaemonSet/herald"].Tree)
	if diff := cmp.Diff(site.Pod(site.Rendered(t, "controlPlane: false")["DaemonSet/herald"].Tree)["affinity"], with["affinity"]); diff != "" {
		t.Errorf("(-helm +kustomize):\n%s", diff)
	}
	delete(with, "affinity")
	with["containers"].([]any)[0].(map[string]any)["image"] = "herald:dev"
	if diff := cmp.Diff(site.Pod(base["DaemonSet/herald"].Tree), with); diff != "" {
		t.Errorf("(-base +overlay):\n%s", diff)
	}
	for name, want := range map[string]bool{"AddressPool/lan": true, "BGPPeer/tor": true, "Secret/herald": true, "ConfigMap/herald": true} {
		if _, ok := overlay[name]; ok != want {
			t.Errorf("the overlay has %q", slices.Sorted(maps.Keys(overlay)))
		}
	}
	if _, err := config.Parse("herald.yaml", []byte(overlay.File(t)), config.Hostname("worker")); err != nil {
		t.Error(err)
	}
}
