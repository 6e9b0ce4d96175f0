//go:build e2e

package services

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/herald-vip/herald/testenv/e2e/site"
	"github.com/herald-vip/herald/testenv/services"
)

// testLocal: with externalTrafficPolicy Local the route leads only to the nodes with endpoints.
func (b *balancers) testLocal(t *testing.T) {
	b.create(t, balancer("local", local))
	vip := b.address(t, "local")
	if port := b.get(t, "local").Spec.HealthCheckNodePort; port == 0 {
		t.Error("it has no port for health checks")
	}
	b.leads(t, vip)
	ctx := t.Context()
	before := ""
	for _, node := range b.Members() { // one node at a time
		site.Must(t, b.SetEndpoint(ctx, "local", node, services.Ready()))
		if before != "" {
			site.Must(t, b.RemoveEndpoint(ctx, "local", before))
		}
		b.leads(t, vip, node)
		b.connects(t, vip, services.Port)
		before = node
	}
	for _, node := range b.Members() { // all of them
		site.Must(t, b.SetEndpoint(ctx, "local", node, services.Ready()))
	}
	b.leads(t, vip, b.Members()...)
	site.Must(t, b.SetEndpoint(ctx, "local", "n2", services.NotReady()))
	b.leads(t, vip, "n1", "n3")
	b.connects(t, vip, services.Port)
}

// testPolicyChanges: the address stays when externalTrafficPolicy changes.
func (b *balancers) testPolicyChanges(t *testing.T) {
	vip := b.led(t, balancer("policy"), "n1")
	b.routes.Mark()
	for range 2 {
		b.update(t, "policy", local)
		b.leads(t, vip, "n1")
		b.update(t, "policy", func(s *corev1.Service) {
			s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyCluster
			s.Spec.HealthCheckNodePort = 0
		})
		b.leads(t, vip, b.Members()...)
	}
	b.keeps(t, "policy", vip)
	n1 := b.Address("n1")
	for _, s := range b.routes.Steps(vip.String()) {
		if !strings.Contains(fmt.Sprint(s.NextHops), n1.String()) {
			t.Errorf("the route did not lead to n1 all the time: %v", s)
		}
	}
}

// testTerminating: a node with only a terminating endpoint leaves while other
// endpoints serve. Nodes with such endpoints are the fallback while no endpoint is
// ready (KEP-1669).
func (b *balancers) testTerminating(t *testing.T) {
	ctx := t.Context()
	vip := b.led(t, balancer("ends", local), "n1", "n2")
	site.Must(t, b.SetEndpoint(ctx, "ends", "n1", services.Draining()))
	b.leads(t, vip, "n2")
	b.connects(t, vip, services.Port)
	site.Must(t, b.SetEndpoint(ctx, "ends", "n2", services.Draining()))
	b.leads(t, vip, "n1", "n2")
	b.connects(t, vip, services.Port)
	site.Must(t, b.SetEndpoint(ctx, "ends", "n1", services.Conditions{Terminating: true}))
	b.leads(t, vip, "n2")
	site.Must(t, b.RemoveEndpoint(ctx, "ends", "n2"))
	b.leads(t, vip)

	// Under the policy Cluster kube-proxy does that on every node, as long as an endpoint serves.
	anywhere := b.led(t, balancer("ends-cluster"), "n1")
	b.routes.Mark()
	site.Must(t, b.SetEndpoint(ctx, "ends-cluster", "n1", services.Draining()))
	b.settled(t)
	b.unmoved(t, anywhere)
	for _, c := range []services.Conditions{{Terminating: true}, services.NotReady()} {
		site.Must(t, b.SetEndpoint(ctx, "ends-cluster", "n1", c))
		b.leads(t, anywhere)
	}
	site.Must(t, b.SetEndpoint(ctx, "ends-cluster", "n1", services.Ready()))
	b.leads(t, anywhere, b.Members()...)
}

// testSource: a node sees the client's own address, since no hop between them translates it.
func (b *balancers) testSource(t *testing.T) {
	vip := b.led(t, balancer("source", local), "n1")
	c, err := b.Node("c1").DialContext(t.Context(), "tcp", fmt.Sprintf("%s:%d", vip, services.Port))
	site.Must(t, err)
	defer c.Close()
	out := site.MustRun(t, b.Node("n1"), "ss", "-tnH", "state", "established", "sport", "=", ":8080")
	if !strings.Contains(out, "10.5.9.1]:") {
		t.Errorf("the node sees %q, want the client 10.5.9.1", out)
	}
}

// testNodes: a node that is excluded from traffic announces no address, and others continue.
func (b *balancers) testNodes(t *testing.T) {
	ctx := t.Context()
	vip := b.led(t, balancer("elsewhere"), "n1")
	site.Must(t, b.Exclude(ctx, "n2", true))
	b.leads(t, vip, "n1", "n3")
	site.Must(t, b.Exclude(ctx, "n2", false))
	b.leads(t, vip, b.Members()...)

	unavailable := func(status corev1.ConditionStatus) {
		t.Helper()
		b.patch(t, services.Nodes+"/n3/status", `{"status": {"conditions": [
			{"type": "Ready", "status": "True"}, {"type": "NetworkUnavailable", "status": "`+string(status)+`"}]}}`)
	}
	unavailable(corev1.ConditionTrue)
	b.leads(t, vip, "n1", "n2")
	unavailable(corev1.ConditionFalse)
	b.leads(t, vip, b.Members()...)

	// A cordoned node continues, unless excludeCordoned is set.
	b.routes.Mark()
	for _, cordoned := range []string{"true", "null"} {
		b.patch(t, services.Nodes+"/n1", `{"spec": {"unschedulable": `+cordoned+`}}`)
	}
	b.settled(t)
	b.unmoved(t, vip)
}
