package kube

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/testenv/must"
)

// TestSnapshot: without a Lease's name, only reports and readiness of the nodes are read.
func TestSnapshot(t *testing.T) {
	const reports, nodes = "/apis/herald.dev/v1alpha1/nodestatuses", "/api/v1/nodes"
	s, c := newStub(t, "36")
	for _, name := range []string{"n1", "n4"} {
		s.put(reports, &v1alpha1.NodeStatus{TypeMeta: metav1.TypeMeta{Kind: "NodeStatus", APIVersion: "herald.dev/v1alpha1"}, ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	for name, ready := range map[string]corev1.ConditionStatus{"n1": corev1.ConditionTrue, "n2": corev1.ConditionFalse, "n3": corev1.ConditionUnknown} {
		n := &corev1.Node{TypeMeta: metav1.TypeMeta{Kind: "Node", APIVersion: "v1"}, ObjectMeta: metav1.ObjectMeta{Name: name}}
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}
		s.put(nodes, n)
	}
	got := must.Get[*Snapshot](t)(c.Snapshot(t.Context(), "herald-system", ""))
	if diff := cmp.Diff(map[string]bool{"n1": true, "n2": false, "n3": false}, got.Ready); len(got.Nodes) != 2 || diff != "" {
		t.Errorf("%d report; ready (-want +got):\n%s", len(got.Nodes), diff)
	}
	slices.Sort(s.asked)
	if diff := cmp.Diff([]string{nodes + ` from version ""`, reports + ` from version ""`}, s.asked); diff != "" {
		t.Errorf("asked for (-want +got):\n%s", diff)
	}
}

// TestConnectAsUser: like kubectl, it merges all files of KUBECONFIG, which may be missing, unless a file is named.
func TestConnectAsUser(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		must.Do(t, os.WriteFile(path, []byte("{apiVersion: v1, kind: Config, "+text+"}"), 0o600))
		return path
	}
	context := write("a", "contexts: [{name: x, context: {cluster: there}}], current-context: x")
	servers := write("b", `clusters: [{name: there, cluster: {server: "https://10.0.0.1:6443"}}]`)
	other := write("c", `clusters: [{name: there, cluster: {server: "https://10.0.0.2:6443"}}], contexts: [{name: x, context: {cluster: there}}], current-context: x`)
	t.Setenv("KUBECONFIG", filepath.Join(dir, "none")+":"+context+":"+servers)
	for file, want := range map[string]string{"": "https://10.0.0.1:6443", other: "https://10.0.0.2:6443"} {
		if c, err := ConnectAsUser(file, "test"); err != nil || c.config.Host != want {
			t.Errorf("by file %q: %+v, %v; want %s", file, c, err, want)
		}
	}
	if _, err := ConnectAsUser(filepath.Join(dir, "none"), "test"); err == nil {
		t.Error("a missing file is not an error")
	}
}
