package manifests_test

import (
	"errors"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/herald-vip/herald/manifests"
	"github.com/herald-vip/herald/testenv/must"
)

const balancerFolder = "kustomize/balancer/"

// The beginning of a file with balancers only, and of one of a balancer.
const (
	balances = `apiVersion: herald.dev/v1alpha1
kind: Speaker
nodeName: worker
election: {members: {m1: "10.0.1.1:7946"}, keyFile: /etc/herald/gossip.key}
`
	local = "balancers: [{name: b, listen: [{address: \"127.0.0.1:443\"}], backends: {members: {port: 6443, checks: [c]}}"
)

// TestBalancerFiles checks that a pod gets the files of a balancer's check.
func TestBalancerFiles(t *testing.T) {
	p := staticPod(t, manifests.Options{Config: parse(t, balances+`balancers:
- name: b
  listen: [{address: "127.0.0.1:9443"}]
  backends: {static: {addresses: ["10.0.1.1:6443"]}}
  check: {http: {url: "https://backend/readyz", caFile: /etc/kubernetes/pki/ca.crt}}
`)})
	if !slices.ContainsFunc(p.Containers[0].Mounts, func(m mount) bool { return m.Path == "/etc/kubernetes/pki/ca.crt" && m.ReadOnly }) {
		t.Errorf("the mounts are %+v", p.Containers[0].Mounts)
	}
}

// TestWorker checks that a file that only balances becomes a DaemonSet of its own, on
// the nodes where the control plane's is not, and that one with checks does not.
func TestWorker(t *testing.T) {
	type labels struct {
		Match map[string]string `yaml:"matchLabels"`
	}
	for config, want := range map[string]struct{ name, component, operator string }{
		local + "}]": {"herald-worker", "worker", "DoesNotExist"},
		local + "}]\nchecks: [{name: c, tcp: {address: \"127.0.0.1:6443\"}}]": {"herald", "speaker", "Exists"},
	} {
		out := must.Get[[]byte](t)(manifests.Make(manifests.DaemonSet, manifests.Options{Config: parse(t, balances+config)}))
		var set struct {
			Metadata struct{ Name string }
			Spec     struct {
				Selector labels
				Template struct {
					Metadata struct{ Labels map[string]string }
				}
			}
		}
		must.Do(t, yaml.Unmarshal(out, &set))
		const component = "app.kubernetes.io/component"
		if set.Metadata.Name != want.name || set.Spec.Selector.Match[component] != want.component || set.Spec.Template.Metadata.Labels[component] != want.component {
			t.Errorf("it is called %s, %v with pods %v; want %+v", set.Metadata.Name, set.Spec.Selector, set.Spec.Template.Metadata.Labels, want)
		}
		for _, line := range []string{
			"{key: node-role.kubernetes.io/control-plane, operator: " + want.operator + "}\n",
			"- configMap: {name: " + want.name + "}\n",
			"- secret: {name: herald, optional: true}\n", // the same key as the masters'
		} {
			if !strings.Contains(string(out), line) {
				t.Errorf("there is no %q in\n%s", line, out)
			}
		}
	}
}

// TestHAProxy has HAProxy read the file of docs/balancing.md.
func TestHAProxy(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "haproxy", "-c", "-f", "external/haproxy.cfg").CombinedOutput()
	if errors.Is(err, exec.ErrNotFound) {
		t.Fatal("needs haproxy: make test installs it")
	}
	if err != nil || strings.Contains(string(out), "WARNING") {
		t.Errorf("%v\n%s", err, out)
	}
}
