package kube

import (
	"context"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/herald-vip/herald/api/v1alpha1"
)

// TestNodeStatuses: they are read once, from the server's cache, and errors are explained.
func TestNodeStatuses(t *testing.T) {
	const at = "/apis/herald.dev/v1alpha1/nodestatuses"
	s, c := newStub(t, "36")
	s.put(at, &v1alpha1.NodeStatus{
		TypeMeta:   metav1.TypeMeta{Kind: "NodeStatus", APIVersion: "herald.dev/v1alpha1"},
		ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Status: v1alpha1.NodeState{Version: "v1"},
	})
	list, err := c.NodeStatuses(t.Context())
	if err != nil || len(list) != 1 || list[0].Name != "n1" || list[0].Status.Version != "v1" {
		t.Errorf("read %+v, %v", list, err)
	}
	if len(s.asked) != 1 || s.asked[0] != at+` from version "0"` {
		t.Errorf("asked for %q", s.asked)
	}
	for status, want := range map[int]string{
		http.StatusForbidden:    "give Herald's service account the rights of its manifests",
		http.StatusNotFound:     "the server does not know nodestatuses: apply Herald's CRDs",
		http.StatusUnauthorized: "the server rejects the credentials",
	} {
		s.set(func() { s.refuse[at] = status })
		if list, err := c.NodeStatuses(t.Context()); list != nil || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("status %d: %v, %v, want %q", status, list, err, want)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.NodeStatuses(ended); err == nil {
		t.Error("a canceled request succeeded")
	}
}
