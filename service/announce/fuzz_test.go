package announce_test

import (
	"encoding/json"
	"io"
	"log/slog"
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/service"
	"github.com/herald-vip/herald/service/announce"
	"github.com/herald-vip/herald/testenv/must"
)

// FuzzObjects feeds arbitrary objects to an announcer. Nothing may panic, no VIP of
// the node's own file may be announced, and deleting all objects removes all routes.
func FuzzObjects(f *testing.F) {
	for _, objects := range [][]any{
		{svc("a", local, "10.1.0.1", "fd00::1"), slice("1", "a", "IPv4", "n1", "n2 unready"), machine("n1", nil), addressPool("p", nil, "10.1.0.0/24")},
		{svc("b", nil, "10.1.0.5"), slice("2", "b", "IPv6", "", "n1 terminating"), machine("n1", func(n *corev1.Node) {
			n.Spec.Unschedulable = true
		}), addressPool("q", func(s *v1alpha1.AddressPoolSpec) {
			s.ARP = &v1alpha1.PoolARP{Interfaces: []v1alpha1.Link{"eth0"}}
			s.BGP.AggregationLength, s.BGP.AggregationLengthV6 = 24, 64
		}, "10.1.0.0-10.1.0.9", "fd00::/64")},
		{nil, nil, nil, nil},
	} {
		var texts [4][]byte
		for i, o := range objects {
			texts[i], _ = json.Marshal(o)
		}
		f.Add(texts[0], texts[1], texts[2], texts[3])
	}
	f.Add([]byte(`{"status":{"loadBalancer":{"ingress":[{"ip":"fe80::1%eth0"},{"ip":"::ffff:10.1.0.1"},{"hostname":"x"}]}}}`),
		[]byte(`{"endpoints":[{"nodeName":null}]}`), []byte(`{"metadata":{"name":"n1"}}`), []byte(`{"spec":{"addresses":["10.1.0.0/33"],"bgp":{"med":-1}}}`))
	reserved := netip.MustParseAddr("10.1.0.5")
	f.Fuzz(func(t *testing.T, svc, endpoints, node, pool []byte) {
		r := newRouter(t)
		a := announce.New(announce.Options{Log: slog.New(slog.NewTextHandler(io.Discard, nil)), Routes: r},
			announce.Config{Node: "n1", Peers: onePeer(), Scope: service.Scope{Class: class, Default: true}, Reserved: []netip.Addr{reserved}})
		a.SetNode(machine("n1", nil))
		a.SetPool(addressPool("all", nil, "10.0.0.0/8", "fd00::/16"))
		a.Synced()
		s, e := parsed[corev1.Service](svc), parsed[discoveryv1.EndpointSlice](endpoints)
		n, p := parsed[corev1.Node](node), parsed[v1alpha1.AddressPool](pool)
		for _, step := range []func(){func() { a.SetService(s) }, func() { a.SetSlice(e) }, func() { a.SetNode(n) }, func() { a.SetPool(p) }} {
			step()
			for prefix := range r.has() {
				if prefix.Contains(reserved) {
					t.Fatalf("%s is announced and contains a VIP of the node's own file", prefix)
				}
			}
			r.took()
		}
		a.Services()
		for _, address := range a.Flat() {
			if address.Addr == reserved || len(address.Nodes) == 0 {
				t.Errorf("this node may hold %+v", address)
			}
		}
		if s != nil {
			a.DeleteService(s.Namespace + "/" + s.Name)
		}
		if e != nil {
			a.DeleteSlice(e.Namespace + "/" + e.Name)
		}
		if p != nil {
			a.DeletePool(p.Name)
		}
		r.took()
		must.Do(t, a.Stop())
		if left := r.has(); len(left) > 0 {
			t.Errorf("%v remains", left)
		}
		counts := a.Counts()
		counts.Pools = slices.DeleteFunc(counts.Pools, func(p announce.PoolStatus) bool { return p == announce.PoolStatus{Name: p.Name} })
		if counts.Total > 0 || len(counts.Pools) > 0 {
			t.Errorf("counts %+v after the deletion of all objects", counts)
		}
	})
}

// parsed returns an object from JSON; nil if that is invalid.
func parsed[T any](text []byte) *T {
	var o *T
	if json.Unmarshal(text, &o) != nil {
		return nil
	}
	return o
}
