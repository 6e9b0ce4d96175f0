//go:build e2e

package services

import (
	"fmt"
	"net/http"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/herald-vip/herald/testenv/e2e/site"
)

// TestAssign runs an assigner on a real API server. It gives Services addresses of
// pools that select them, reports each refusal once, counts, and survives an outage of
// the server. TestLoadBalancer and the tests of package assign cover the possible
// requests.
func TestAssign(t *testing.T) {
	k := site.StartAPIServer(t)
	createPool(t, k, "main", "{addresses: [10.0.0.0/24, 'fd00::/64'], avoidBuggyIPs: true}")
	createPool(t, k, "small", "{addresses: [10.2.0.1-10.2.0.1], autoAssign: false}")
	createPool(t, k, "team", "{addresses: [10.3.0.0/28], priority: 5, serviceSelectors: [{matchLabels: {team: a}}], namespaceSelectors: [{matchLabels: {kubernetes.io/metadata.name: default}}]}")
	startAssigner(t, k)
	for _, test := range []struct{ name, annotations, spec, want string }{
		{"plain", "", "", "10.0.0.1 Assigned"},
		{"asked", "", "loadBalancerIP: 10.0.0.77", "10.0.0.77 Assigned"},
		{"both", "", "ipFamilyPolicy: RequireDualStack, ipFamilies: [IPv6, IPv4]", "fd00:: 10.0.0.2 Assigned"},
		{"first", "herald.dev/pool: small", "", "10.2.0.1 Assigned"},
		{"second", "herald.dev/pool: small", "", "PoolExhausted"},
	} {
		createBalancer(t, k, test.name, test.annotations, test.spec)
		becomes(t, k, test.name, test.want)
	}
	k.Apply(t, servicesPath, "{apiVersion: v1, kind: Service, metadata: {name: team, labels: {team: a}}, spec: {type: LoadBalancer, ports: [{port: 80}]}}")
	becomes(t, k, "team", "10.3.0.0 Assigned")
	poolBecomes(t, k, "main", "3/254, 1/2^64")
	poolBecomes(t, k, "small", "1/1")

	k.Do(t, http.MethodDelete, servicesPath+"/first", nil, nil)
	becomes(t, k, "second", "10.2.0.1 Assigned")
	want := []string{
		"Normal Assigned: it has 10.2.0.1",
		`Warning PoolExhausted: no IPv4 address is free in pool "small": add addresses, or release some`,
	}
	site.Eventually(t, site.Soon, func() error {
		if got := eventsOf(t, k, "second"); !slices.Equal(got, want) {
			return fmt.Errorf("events %q, want %q", got, want)
		}
		return nil
	})
	if got := eventsOf(t, k, "first"); got != nil {
		t.Errorf("events %q of a Service that got its addresses", got)
	}
	t.Run("the server comes back", func(t *testing.T) { testServerBack(t, k) })
}

// testServerBack stops the server and starts it again. Its counts begin anew: of all
// Services only the new one is written.
func testServerBack(t *testing.T, k *site.APIServer) {
	k.StopServer(t)
	k.StartServer(t)
	createBalancer(t, k, "back", "herald.dev/addresses: 10.0.0.222", "")
	becomes(t, k, "back", "10.0.0.222 Assigned")
	becomes(t, k, "plain", "10.0.0.1 Assigned")
	site.Eventually(t, site.Soon, func() error { // the server counts a request once it has answered it
		n := requests(t, k)["PATCH services"]
		if n > 1 {
			t.Fatalf("%d writes of a Service's status for one new Service", n)
		}
		return site.ErrorIf(n < 1, "no write of a Service's status is counted")
	})
}

// testIdle counts requests while the assigner renews its Lease a few times.
func testIdle(t *testing.T, k *site.APIServer) {
	leasePasses(t, k, 1) // pending requests complete
	before := requests(t, k)
	leasePasses(t, k, 3)
	for what, n := range requests(t, k) {
		if n != before[what] {
			t.Errorf("%d times %s while nothing changed", n-before[what], what)
		}
	}
}

// leasePasses waits until the assigner has renewed its Lease a few times.
func leasePasses(t *testing.T, k *site.APIServer, times int) {
	t.Helper()
	version := func() string {
		var o corev1.ObjectReference
		k.Do(t, http.MethodGet, leasePath, nil, &struct{ Metadata *corev1.ObjectReference }{&o})
		return o.ResourceVersion
	}
	for range times {
		prev := version()
		site.Eventually(t, site.Soon, func() error {
			return site.ErrorIf(version() == prev, "the Lease is not renewed")
		})
	}
}
