package kube

import (
	"net/http"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/herald-vip/herald/api/v1alpha1"
)

// A missing kind or a missing right is not an error; a failing server is.
func TestTenants(t *testing.T) {
	const at = "/apis/herald.dev/v1alpha1/tenants"
	for _, test := range []struct {
		name   string
		status int // of the answer; 0 means the stub's objects
		want   int
		fails  bool
	}{
		{name: "two", want: 2},
		{name: "no such kind", status: http.StatusNotFound},
		{name: "no right", status: http.StatusForbidden},
		{name: "an unknown user", status: http.StatusUnauthorized, fails: true},
		{name: "a failing server", status: http.StatusInternalServerError, fails: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			s, c := newStub(t, "36")
			for _, name := range []string{"acme", "beta"} {
				s.put(at, &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: name}})
			}
			if test.status != 0 {
				s.set(func() { s.refuse[at] = test.status })
			}
			got, err := c.Tenants(t.Context())
			if len(got) != test.want || (err != nil) != test.fails {
				t.Errorf("%d Tenants and %v, want %d", len(got), err, test.want)
			}
		})
	}
}
