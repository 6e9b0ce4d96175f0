package config_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/herald-vip/herald/config"
)

// served is the file of a pod; its other settings are in the API.
const served = `apiVersion: herald.dev/v1alpha1
kind: Speaker
services: {}
bgp: {asn: 64512}
election:
  members: {m1: "10.0.1.1:7946", m2: "10.0.1.2:7946", m3: "10.0.1.3:7946"}
  keyFile: /etc/herald/gossip.key
`

func TestServicesDefaults(t *testing.T) {
	c := mustParse(t, served, config.NodeName("worker-7"))
	want := &config.Services{LoadBalancerClass: "herald.dev/vip", DefaultClass: true, Assign: true, RequireEndpoints: "any", Linger: time.Second}
	if diff := cmp.Diff(want, c.Services); diff != "" {
		t.Errorf("services (-want +got):\n%s", diff)
	}
	if c.Election.Bind.IsValid() {
		t.Errorf("a node without a vote binds to %s, the address of another", c.Election.Bind)
	}
	if mustParse(t, base).Services != nil {
		t.Error("services is set without a section")
	}
}

// Files of pods need no settings that are in the API.
func TestServicesAlone(t *testing.T) {
	for name, file := range map[string]string{
		"pod":                 served,
		"no vips, no checks":  "apiVersion: herald.dev/v1alpha1\nkind: Speaker\nservices: {kubeconfig: /etc/k, loadBalancerClass: internal}\n",
		"iBGP peers may come": strings.Replace(served, "asn: 64512", "asn: 64512, localPref: 200", 1),
		"vip and services":    strings.Replace(base, "bgp:\n", "services: {}\nbgp:\n", 1),
		"vip, peers to come":  strings.Replace(base, "  peers:\n  - address: 10.0.1.254\n    asn: 64500\n", "services: {}\n", 1),
		"no vote, but a bind": strings.Replace(flat, "nodeName: m1", "nodeName: w1", 1) + "  bind: 10.0.1.9:7946\n",
	} {
		if _, err := config.Parse(name, []byte(file), config.NodeName("worker-7")); err != nil {
			t.Error(err)
		}
	}
}

func TestNodeNameFromOutside(t *testing.T) {
	for name, want := range map[string]string{"worker-7": "worker-7", "": "m1"} {
		if c := mustParse(t, base, config.Hostname("host"), config.NodeName(name)); c.NodeName != want {
			t.Errorf("nodeName %s with %q from outside, want %s", c.NodeName, name, want)
		}
	}
	_, err := config.Parse("herald.yaml", []byte(base), config.NodeName("Worker"))
	const want = `herald.yaml:3:11: nodeName: the name "Worker", from --node-name or NODE_NAME, is not valid: want lower-case letters and digits, with '-' and '.' between`
	if err == nil || err.Error() != want {
		t.Errorf("error is %v, want %s", err, want)
	}
}

func TestServicesMistakes(t *testing.T) {
	checkMistakesIn(t, served, []mistake{
		{"services: {}", "services: true", "3:11: services: want fields (name: value), got true"},
		{"services: {}", "services:", "3:10: services: has no value: give one or remove the line"},
		{"services: {}", "service: {}", "3:1: service: unknown field, did you mean services?"},
		{"services: {}\n", "", "1:1: vips: at least one is needed, or balancers, or a services section\n3:6: bgp.peers: at least one is needed\n5:12: election.members: lacks this node, w1: add it with its address, or set bind if it should not vote"},
		{"services: {}", "services: {class: x}", "3:12: services.class: unknown field"},
		{"services: {}", "services: {kubeconfig: admin.conf}", "3:24: services.kubeconfig: want the absolute path of a file"},
		{"services: {}", `services: {loadBalancerClass: ""}`, `3:31: services.loadBalancerClass: want a name such as herald.dev/vip, got ""`},
		{"services: {}", "services: {loadBalancerClass: a/b/c}", `3:31: services.loadBalancerClass: want a name such as herald.dev/vip, got "a/b/c"`},
		{"services: {}", "services: {loadBalancerClass: /vip}", `3:31: services.loadBalancerClass: want a name such as herald.dev/vip, got "/vip"`},
		{"services: {}", "services: {namespace: a.b}", `3:23: services.namespace: want the name of a namespace: lower-case letters and digits, with '-' between, got "a.b"`},
		{"services: {}", "services: {requireEndpoints: true}", "3:30: services.requireEndpoints: want text, got true: put it in quotes"},
		{"services: {}", "services: {requireEndpoints: local}", `3:30: services.requireEndpoints: want none, any or node, got "local"`},
		{"services: {}", "services: {compatibility: [metallb, purelb]}", `3:37: services.compatibility[1]: want metallb, kube-vip or cilium, got "purelb"`},
		{"services: {}", "services: {excludeTaints: [\"a b\"]}", `3:28: services.excludeTaints[0]: want the key of a taint, such as node.kubernetes.io/out-of-service, got "a b"`},
		{"services: {}", "services: {linger: 6m}", "3:20: services.linger: want 0s to 5m, got 6m0s"},
		{"services: {}", "services: {assign: 1}", "3:20: services.assign: want true or false, got the number 1"},
	})
}
