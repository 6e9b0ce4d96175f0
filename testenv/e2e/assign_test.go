//go:build e2e

package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestAssign shows a writer Services of all kinds, on a real API server.
func TestAssign(t *testing.T) {
	k := newKubeServer(t)
	k.pool(t, "main", "{addresses: [10.0.0.0/24, 'fd00::/64'], avoidBuggyIPs: true}")
	k.pool(t, "named", "{addresses: [10.1.0.0/28], autoAssign: false}")
	k.pool(t, "small", "{addresses: [10.2.0.1-10.2.0.1], autoAssign: false}")
	k.pool(t, "team", "{addresses: [10.3.0.0/28], priority: 5, serviceSelectors: [{matchLabels: {team: a}}], namespaceSelectors: [{matchLabels: {kubernetes.io/metadata.name: default}}]}")
	k.startWriter(t)
	for _, test := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"the lowest free address", func(t *testing.T) {
			k.balancer(t, "plain", "", "")
			k.becomes(t, "plain", "10.0.0.1 Assigned")
		}},
		{"loadBalancerIP", func(t *testing.T) {
			k.balancer(t, "ip", "", "loadBalancerIP: 10.0.0.77")
			k.becomes(t, "ip", "10.0.0.77 Assigned")
			k.balancer(t, "ip-nowhere", "", "loadBalancerIP: 192.0.2.1")
			k.becomes(t, "ip-nowhere", "AddressNotInPool")
			k.balancer(t, "ip-bad", "", "loadBalancerIP: nonsense")
			k.becomes(t, "ip-bad", "InvalidClaim")
		}},
		{"an address or two by annotation", func(t *testing.T) {
			k.balancer(t, "one", "herald.dev/addresses: 10.1.0.3", "")
			k.becomes(t, "one", "10.1.0.3 Assigned")
			k.balancer(t, "two", "herald.dev/addresses: '10.0.0.78, fd00::78'", "ipFamilyPolicy: RequireDualStack")
			k.becomes(t, "two", "10.0.0.78 fd00::78 Assigned")
		}},
		{"a pool by annotation", func(t *testing.T) {
			k.balancer(t, "pool", "herald.dev/pool: named", "")
			k.becomes(t, "pool", "10.1.0.0 Assigned")
			k.balancer(t, "no-pool", "herald.dev/pool: none", "")
			k.becomes(t, "no-pool", "NoPool")
		}},
		{"selectors and priority", func(t *testing.T) {
			k.apply(t, servicesPath, "{apiVersion: v1, kind: Service, metadata: {name: team, labels: {team: a}}, spec: {type: LoadBalancer, ports: [{port: 80}]}}")
			k.becomes(t, "team", "10.3.0.0 Assigned")
		}},
		{"classes", func(t *testing.T) {
			k.balancer(t, "class", "", "loadBalancerClass: herald.dev/vip")
			k.becomes(t, "class", "10.0.0.2 Assigned")
			k.balancer(t, "other-class", "", "loadBalancerClass: example.com/other")
			k.balancer(t, "after", "", "")
			k.becomes(t, "after", "10.0.0.3 Assigned")
			k.becomes(t, "other-class", "")
		}},
		{"no node ports", func(t *testing.T) {
			k.balancer(t, "no-node-ports", "", "allocateLoadBalancerNodePorts: false")
			s := k.becomes(t, "no-node-ports", "10.0.0.4 Assigned")
			if port := s.Spec.Ports[0].NodePort; port != 0 {
				t.Errorf("node port %d", port)
			}
		}},
		{"families", func(t *testing.T) {
			k.balancer(t, "six", "", "ipFamilies: [IPv6]")
			k.becomes(t, "six", "fd00:: Assigned")
			k.balancer(t, "both", "", "ipFamilyPolicy: RequireDualStack, ipFamilies: [IPv6, IPv4]")
			k.becomes(t, "both", "fd00::1 10.0.0.5 Assigned")
			k.balancer(t, "prefer", "herald.dev/pool: named", "ipFamilyPolicy: PreferDualStack")
			k.becomes(t, "prefer", "10.1.0.1 Assigned")
			k.balancer(t, "require", "herald.dev/pool: named", "ipFamilyPolicy: RequireDualStack")
			k.becomes(t, "require", "NoPool")
		}},
		{"sharing", func(t *testing.T) {
			k.balancer(t, "dns-udp", "herald.dev/share: dns", "ports: [{port: 53, protocol: UDP}]")
			k.becomes(t, "dns-udp", "10.0.0.6 Assigned")
			k.balancer(t, "dns-tcp", "herald.dev/share: dns", "ports: [{port: 53, protocol: TCP}]")
			k.becomes(t, "dns-tcp", "10.0.0.6 Assigned")
			k.balancer(t, "dns-local", "herald.dev/share: dns, herald.dev/addresses: 10.0.0.6", "externalTrafficPolicy: Local, ports: [{port: 54}]")
			k.becomes(t, "dns-local", "AddressConflict")
			k.balancer(t, "dns-port", "herald.dev/share: dns, herald.dev/addresses: 10.0.0.6", "ports: [{port: 53}]")
			k.becomes(t, "dns-port", "AddressConflict")
			k.balancer(t, "dns-else", "herald.dev/share: dns", "ports: [{port: 53}]")
			k.becomes(t, "dns-else", "10.0.0.7 Assigned")
		}},
		{"exhausted, told once", func(t *testing.T) {
			k.balancer(t, "first", "herald.dev/pool: small", "")
			k.becomes(t, "first", "10.2.0.1 Assigned")
			k.balancer(t, "second", "herald.dev/pool: small", "")
			k.becomes(t, "second", "PoolExhausted")
			k.poolBecomes(t, "small", "1/1")
			k.do(t, http.MethodDelete, servicesPath+"/first", nil, nil)
			k.becomes(t, "second", "10.2.0.1 Assigned")
			want := []string{
				"Normal Assigned: it has 10.2.0.1",
				`Warning PoolExhausted: no IPv4 address is free in pool "small": add addresses, or release some`,
			}
			eventually(t, soon, func() error {
				if got := k.eventsOf(t, "second"); !slices.Equal(got, want) {
					return fmt.Errorf("events %q, want %q", got, want)
				}
				return nil
			})
			if got := k.eventsOf(t, "first"); got != nil {
				t.Errorf("events %q of a Service that got what it asked for", got)
			}
		}},
		{"another address asked for", func(t *testing.T) {
			k.patch(t, servicesPath+"/plain", `{"metadata": {"annotations": {"herald.dev/addresses": "10.0.0.100"}}}`)
			k.becomes(t, "plain", "10.0.0.100 Assigned")
			k.balancer(t, "next", "", "")
			k.becomes(t, "next", "10.0.0.1 Assigned") // that was plain's
		}},
		{"not of the type any more", func(t *testing.T) {
			k.patch(t, servicesPath+"/next", `{"spec": {"type": "ClusterIP"}}`)
			k.becomes(t, "next", "")
			k.balancer(t, "next2", "", "")
			k.becomes(t, "next2", "10.0.0.1 Assigned")
			k.patch(t, servicesPath+"/next", `{"spec": {"type": "LoadBalancer"}}`)
			k.becomes(t, "next", "10.0.0.8 Assigned")
		}},
		{"somebody else's condition stays", func(t *testing.T) {
			k.patch(t, servicesPath+"/next/status", `{"status": {"conditions": [{"type": "example.com/Other", "status": "True", "reason": "Yes", "message": "", "lastTransitionTime": "2026-11-21T00:00:00Z"}]}}`)
			s := k.becomes(t, "next", "10.0.0.8 Assigned")
			if len(s.Status.Conditions) != 2 {
				t.Errorf("conditions %v", s.Status.Conditions)
			}
		}},
		{"pools that overlap", func(t *testing.T) {
			k.pool(t, "overlap", "{addresses: [10.1.0.8-10.1.0.20]}")
			k.poolBecomes(t, "overlap", "", `pool "named" (10.1.0.0/28) and pool "overlap" (10.1.0.8-10.1.0.20) overlap: leave the addresses that both have to one of them`)
			k.poolBecomes(t, "named", "3/16")
			k.patch(t, collection("addresspools")+"/overlap", `{"spec": {"addresses": ["10.1.0.16-10.1.0.20"]}}`)
			k.poolBecomes(t, "overlap", "0/5")
		}},
		{"usage of a pool", func(t *testing.T) {
			k.poolBecomes(t, "main", "11/254, 3/2^64")
		}},
		{"deleted while a finalizer keeps it", func(t *testing.T) {
			k.balancer(t, "kept", "herald.dev/addresses: 10.0.0.200", "")
			k.becomes(t, "kept", "10.0.0.200 Assigned")
			k.patch(t, servicesPath+"/kept", `{"metadata": {"finalizers": ["example.com/wait"]}}`)
			k.do(t, http.MethodDelete, servicesPath+"/kept", nil, nil)
			k.balancer(t, "waits", "herald.dev/addresses: 10.0.0.200", "")
			k.becomes(t, "waits", "AddressConflict")
			k.patch(t, servicesPath+"/kept", `{"metadata": {"finalizers": null}}`)
			k.becomes(t, "waits", "10.0.0.200 Assigned")
		}},
	} {
		if !t.Run(test.name, test.run) {
			return // what follows builds on it
		}
	}
	t.Run("the server comes back", k.testServerBack)
}

// testServerBack has the server go and come back. Its counts begin anew: of all
// Services only the one is written that is new.
func (k *kubeServer) testServerBack(t *testing.T) {
	k.stopServer(t)
	k.startServer(t)
	k.balancer(t, "back", "herald.dev/addresses: 10.0.0.222", "")
	k.becomes(t, "back", "10.0.0.222 Assigned")
	k.becomes(t, "plain", "10.0.0.100 Assigned")
	if n := k.requests(t)["PATCH services"]; n != 1 {
		t.Errorf("%d writes of a Service's status for the one that is new", n)
	}
}

// testIdle counts requests while the writer renews its Lease a few times.
func (k *kubeServer) testIdle(t *testing.T) {
	k.leasePasses(t, 1) // what is under way comes to its end
	before := k.requests(t)
	k.leasePasses(t, 3)
	for what, n := range k.requests(t) {
		if n != before[what] {
			t.Errorf("%d times %s while nothing changed", n-before[what], what)
		}
	}
}

// leasePasses waits until the writer has renewed its Lease a few times.
func (k *kubeServer) leasePasses(t *testing.T, times int) {
	t.Helper()
	version := func() string {
		var o corev1.ObjectReference
		k.do(t, http.MethodGet, leasePath, nil, &struct{ Metadata *corev1.ObjectReference }{&o})
		return o.ResourceVersion
	}
	for range times {
		was := version()
		eventually(t, soon, func() error {
			if version() == was {
				return fmt.Errorf("the Lease is not renewed")
			}
			return nil
		})
	}
}
