//go:build e2e

package install

import (
	"bytes"
	"maps"
	"net/http"
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
	"github.com/herald-vip/herald/testenv/e2e/site"
)

const (
	pods       = "/api/v1/namespaces/kube-system/pods"
	daemonSets = "/apis/apps/v1/namespaces/kube-system/daemonsets"
	accounts   = "/api/v1/namespaces/kube-system/serviceaccounts"
)

// TestManifestsOnAPIServer checks with a kube-apiserver the manifests, and the client
// certificate for health checks of docs/kubeadm.md for clusters without anonymous
// users.
func TestManifestsOnAPIServer(t *testing.T) {
	k := site.StartAPIServer(t, "--anonymous-auth=false")
	t.Run("manifests", func(t *testing.T) { testManifests(t, k) })
	t.Run("certificate of the check", func(t *testing.T) { testCertificate(t, k) })
}

// testManifests checks every manifest, with strict validation of fields.
func testManifests(t *testing.T, k *site.APIServer) {
	// A controller would create it; without it no pod is accepted.
	k.Do(t, http.MethodPost, accounts, []byte("{apiVersion: v1, kind: ServiceAccount, metadata: {name: default}}"), nil)
	k.Do(t, http.MethodPost, "/api/v1/namespaces", []byte("{apiVersion: v1, kind: Namespace, metadata: {name: herald-system}}"), nil)
	accepted := func(name, collection string, object []byte) {
		t.Run(name, func(t *testing.T) {
			k.Accepts(t, collection, object)
		})
	}
	const dir = "../../../manifests/"
	for file, collection := range map[string]string{
		"static-pod.yaml":                   pods,
		"kustomize/base/daemonset.yaml":     daemonSets,
		"kustomize/balancer/daemonset.yaml": daemonSets,
		"kustomize/example/configmap.yaml":  "/api/v1/namespaces/kube-system/configmaps",
		"kustomize/example/secret.yaml":     "/api/v1/namespaces/kube-system/secrets",
	} {
		accepted(file, collection, []byte(site.ReadFile(t, dir+file)))
	}
	c := parseConfig(t, "../../../config/example.yaml")
	c.Metrics.Listen = "[::1]:9474"
	var pod []byte
	for kind, collection := range map[manifests.Kind]string{
		manifests.StaticPod: pods,
		// With a services section it is in the namespace of Herald's service account.
		manifests.DaemonSet: "/apis/apps/v1/namespaces/herald-system/daemonsets",
	} {
		object := site.Get[[]byte](t)(manifests.Make(kind, manifests.Options{Config: c, Image: "registry.example.com:5000/herald@sha256:" + strings.Repeat("0a", 32)}))
		accepted(string(kind)+" for every field", collection, object)
		if kind == manifests.StaticPod {
			pod = object
		}
	}
	for _, typo := range []string{"readOnly", "hostNetwork", "drop", "periodSeconds"} {
		t.Run("typo "+typo, func(t *testing.T) {
			if status, answer := k.Judge(t, pods, bytes.ReplaceAll(pod, []byte(typo+":"), []byte(typo+"s:"))); status != http.StatusBadRequest {
				t.Errorf("the answer for %ss is %d %s", typo, status, answer)
			}
		})
	}
}

// testCertificate checks the rights of a client certificate of the cluster's CA for a
// user without rights of its own: only the check works.
func testCertificate(t *testing.T, k *site.APIServer) {
	for _, test := range []struct {
		certificate, path string
		want              int
	}{
		{"health", "/readyz", http.StatusOK},
		{"health", "/livez", http.StatusOK},
		{"health", "/api/v1/nodes", http.StatusForbidden},
		{"health", "/api/v1/namespaces/kube-system/secrets", http.StatusForbidden},
		{"", "/readyz", http.StatusUnauthorized},
	} {
		site.Asked(t, k.As(t, test.certificate), http.MethodGet, test.path, nil, test.want)
	}
}

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
			k.Accepts(t, site.ObjectPath(t, o.Tree), object)
			typo := append(object, "spek: {}\n"...)
			if status, answer := k.Judge(t, site.ObjectPath(t, o.Tree), typo); status != http.StatusBadRequest {
				t.Errorf("the answer to %s of %s with a typo is %d %s", what, source, status, answer)
			}
		}
	}
}

// testRights tests rights that the service account must not have. TestRightsAreUsed of
// the tests of Services uses all that it has.
func testRights(t *testing.T, k *site.APIServer) {
	k.Pki.IssueAccount(t)
	account := k.As(t, "services")
	const (
		lease  = "/apis/coordination.k8s.io/v1/namespaces/herald-system/leases"
		forbid = http.StatusForbidden
	)
	for _, test := range []struct {
		method, path, body string
		want               int
	}{
		{http.MethodGet, "/api/v1/services", "", http.StatusOK},
		{http.MethodPatch, "/apis/herald.dev/v1alpha1/bgppeers/none/status", "{}", forbid},
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
		site.Asked(t, account, test.method, test.path, []byte(test.body), test.want)
	}
}

// testFromMetalLB checks with the API server every output of "herald migrate metallb"
// in the tests of package metallb, except objects that users must complete.
func testFromMetalLB(t *testing.T, k *site.APIServer) {
	files := site.Get[[]string](t)(filepath.Glob("../../../migrate/metallb/testdata/*.herald"))
	judged := 0
	for _, file := range files {
		for _, o := range site.ObjectsIn(t, []byte(site.ReadFile(t, file))) {
			if bytes.Contains(o.Text, []byte("# FILL IN")) && o.Tree["kind"] != "ConfigMap" {
				continue
			}
			judged++
			k.Accepts(t, site.ObjectPath(t, o.Tree), o.Text)
		}
	}
	if judged < 15 {
		t.Errorf("only %d objects were judged", judged)
	}
}

const servicesGuide = "../../../docs/services.md"

// testGuide applies the objects of docs/services.md to the API server.
func testGuide(t *testing.T, k *site.APIServer) {
	judged := map[string]int{}
	for _, block := range site.Blocks(t, servicesGuide, "", "yaml") {
		if !strings.Contains(block, "\nmetadata:") {
			continue // a file of Herald's, or values
		}
		for _, o := range site.ObjectsIn(t, []byte(block)) {
			judged[o.Tree["kind"].(string)]++
			k.Accepts(t, site.ObjectPath(t, o.Tree), o.Text)
		}
	}
	if judged["AddressPool"] < 2 || judged["BGPPeer"] < 2 || judged["Service"] < 1 {
		t.Errorf("only %v were judged", judged)
	}
}

// TestServicesGuide checks the router's part of docs/services.md with FRR, and the values with
// helm.
func TestServicesGuide(t *testing.T) {
	routers := site.Blocks(t, servicesGuide, "", "frr")
	if len(routers) != 1 {
		t.Fatalf("%d configurations of FRR, want 1", len(routers))
	}
	file := filepath.Join(t.TempDir(), "frr.conf")
	site.Must(t, os.WriteFile(file, []byte(routers[0]), 0o644))
	if out, err := exec.CommandContext(t.Context(), "vtysh", "--dryrun", "--inputfile", file).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("vtysh: %v\n%s", err, out)
	}
	found := 0
	for _, block := range site.Blocks(t, servicesGuide, "", "yaml") {
		if strings.HasPrefix(block, "# values.yaml of the chart\n") {
			found++
			site.Rendered(t, block)
		}
	}
	if found == 0 {
		t.Error("there are no values of the chart")
	}
}

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
			c := site.Get[*config.Config](t)(config.Parse("herald.yaml", []byte(all.File(t)), config.Hostname("worker")))
			made := site.Get[[]byte](t)(manifests.Make(manifests.DaemonSet, manifests.Options{Config: c, Image: "herald:v0.1.0"}))
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
