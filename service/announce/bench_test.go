package announce_test

import (
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/herald-vip/herald/bgp"
	"github.com/herald-vip/herald/service"
	"github.com/herald-vip/herald/service/announce"
)

// nothing is a router that does no work.
type nothing struct{}

func (nothing) Announce(...bgp.Route) error    { return nil }
func (nothing) Withdraw(...netip.Prefix) error { return nil }

// full returns an announcer with n Services, each with an endpoint here and one on another node.
func full(services int) *announce.Announcer {
	a := announce.New(announce.Options{Log: slog.New(slog.NewTextHandler(io.Discard, nil)), Routes: nothing{}},
		announce.Config{Node: "n1", Peers: onePeer(), Scope: service.Scope{Class: class, Default: true}})
	a.SetNode(machine("n1", nil))
	a.SetPool(addressPool("p", nil, "10.0.0.0/8"))
	addr := netip.MustParseAddr("10.1.0.0")
	for i := range services {
		name := fmt.Sprintf("s%d", i)
		a.SetService(svc(name, local, addr.String()))
		a.SetSlice(slice(name, name, "IPv4", "n1", "n2"))
		addr = addr.Next()
	}
	a.Synced()
	return a
}

// The cost of an event with increasing numbers of Services: an endpoint that fails and recovers,
// a Service that is deleted and created again, and a repeated object.
func BenchmarkEvent(b *testing.B) {
	for _, services := range []int{1, 100, 1_000, 10_000} {
		a := full(services)
		first := svc("s0", local, "10.1.0.0")
		ready, unready := slice("s0", "s0", "IPv4", "n1", "n2"), slice("s0", "s0", "IPv4", "n1 unready", "n2")
		for _, event := range []struct {
			name string
			do   func()
		}{
			{"endpoint", func() { a.SetSlice(unready); a.SetSlice(ready) }},
			{"service", func() { a.DeleteService("default/s0"); a.SetService(first) }},
			{"nothing", func() { a.SetService(first); a.SetSlice(ready) }},
			{"counts", func() { a.Counts() }},
		} {
			b.Run(fmt.Sprintf("%s/services=%d", event.name, services), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					event.do()
				}
			})
		}
	}
}

// The cost of a change of this node, which affects all Services: its exclusion and the end of that.
func BenchmarkNode(b *testing.B) {
	for _, services := range []int{1, 100, 1_000, 10_000} {
		a := full(services)
		fit := machine("n1", nil)
		cut := machine("n1", func(n *corev1.Node) {
			n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeNetworkUnavailable, Status: corev1.ConditionTrue}}
		})
		b.Run(fmt.Sprintf("services=%d", services), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				a.SetNode(cut)
				a.SetNode(fit)
			}
		})
	}
}
