package announce_test

import (
	"context"
	"io"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/bgp"
	"github.com/herald-vip/herald/service"
	"github.com/herald-vip/herald/service/announce"
	"github.com/herald-vip/herald/service/pool"
	"github.com/herald-vip/herald/speaker/flat"
)

// TestRandomEvents sends random events in random order, and compares the router's state after each
// event with a model without memory. The router reports redundant deltas as errors.
func TestRandomEvents(t *testing.T) {
	done := make(map[string]int)
	synctest.Test(t, func(t *testing.T) {
		rapid.Check(bubble{t}, func(rt *rapid.T) {
			w := newWorld(rt, done)
			defer w.end()
			actions := map[string]func(*rapid.T){
				"service":        func(*rapid.T) { w.setService() },
				"another":        func(*rapid.T) { w.setService() },
				"service gone":   func(*rapid.T) { w.deleteService() },
				"slice":          func(*rapid.T) { w.setSlice() },
				"another slice":  func(*rapid.T) { w.setSlice() },
				"slice gone":     func(*rapid.T) { w.deleteSlice() },
				"node":           func(*rapid.T) { w.setNode() },
				"pool":           func(*rapid.T) { w.setPool() },
				"pool of others": func(*rapid.T) { w.setPeers() },
				"pool gone":      func(*rapid.T) { w.deletePool() },
				"config":         func(*rapid.T) { w.apply() },
				"drain":          func(*rapid.T) { w.drain() },
				"time":           func(*rapid.T) { w.pass(rapid.IntRange(1, 600).Draw(rt, "ms")) },
				"router":         func(*rapid.T) { w.breakRouter() },
				"everything":     func(*rapid.T) { w.repeat() },
				"":               func(*rapid.T) { w.check() },
			}
			for w.events < 100 {
				rt.Repeat(actions)
			}
			w.settle()
			w.restart()
		})
	})
	for _, event := range []string{"route", "aggregate", "draining", "draining peer", "flat", "shared", "refused", "reserved"} {
		if done[event] == 0 {
			t.Errorf("%s never happened", event)
		}
	}
	t.Log(done)
}

// bubble hides the deadline from rapid: virtual time has none.
type bubble struct{ *testing.T }

// world is an announcer, its router, and the model.
type world struct {
	*rapid.T
	model
	announcer *announce.Announcer
	router    *router
	broken    bool
	flat      []flat.Address            // after the last event
	had       map[netip.Prefix][]string // the peers of each route, after the last event; none while the router refuses
	changed   bool                      // FlatChanged was called since then
	events    int
	done      map[string]int
	end       func()
}

func newWorld(rt *rapid.T, done map[string]int) *world {
	w := &world{T: rt, done: done, model: model{
		services: make(map[string]*corev1.Service), slices: make(map[string]*discoveryv1.EndpointSlice),
		nodes: make(map[string]*corev1.Node), pools: make(map[string]*v1alpha1.AddressPool),
	}}
	w.config = announce.Config{Node: "n1", Scope: service.Scope{Class: class, Default: true}, Peers: onePeer()}
	w.announcer, w.router, w.end = w.start(func() { w.changed = true })
	for range 4 {
		w.setService()
		w.setSlice()
		w.setNode()
	}
	w.setPool()
	w.announcer.Synced()
	w.flat = w.model.flat()
	return w
}

func (w *world) start(flatChanged func()) (*announce.Announcer, *router, func()) {
	r := newRouter(w)
	a := announce.New(announce.Options{
		Log: slog.New(slog.NewTextHandler(io.Discard, nil)), Routes: r, FlatChanged: flatChanged,
	}, w.config)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { a.Run(ctx) })
	return a, r, func() { cancel(); running.Wait() }
}

func pick[T any](w *world, label string, from ...T) T {
	return rapid.SampledFrom(from).Draw(w.T, label)
}

// chance is true about once in n times: rapid prefers small numbers.
func (w *world) chance(n int) bool { return rapid.IntRange(1, n).Draw(w.T, "chance") == n }

func some[T any](w *world, label string, most int, from ...T) []T {
	return rapid.SliceOfN(rapid.SampledFrom(from), 0, most).Draw(w.T, label)
}

func (w *world) setService() {
	name := pick(w, "service", "a", "b", "c", "d")
	s := svc(name, func(s *corev1.Service) {
		s.CreationTimestamp = aged(pick(w, "age", 1, 2))
		if w.chance(2) {
			local(s)
		}
		if w.chance(2) {
			s.Annotations = map[string]string{"herald.dev/share": "key"}
			s.Spec.Selector = map[string]string{"app": "all"}
		}
		if tier := pick(w, "tier", "", "gold", "iron"); tier != "" {
			s.Labels = map[string]string{"tier": tier}
		}
		if w.chance(3) {
			metav1.SetMetaDataAnnotation(&s.ObjectMeta, "herald.dev/prefer-nodes", pick(w, "prefers", "n1", "n2,n1", "n9,n1"))
		}
		if w.chance(10) {
			s.Spec.Type = corev1.ServiceTypeClusterIP
		}
		if w.chance(10) {
			s.DeletionTimestamp = new(aged(9))
		}
	})
	for _, addr := range slices.Compact(slices.Sorted(slices.Values(
		some(w, "addresses", 2, "10.1.0.1", "10.1.0.2", "10.1.0.9", "10.1.0.17", "fd00::1", "fd00::11")))) {
		s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: addr})
	}
	w.services[name] = s
	w.announcer.SetService(s)
}

func (w *world) deleteService() {
	name := pick(w, "service", "a", "b", "c", "d")
	delete(w.services, name)
	w.announcer.DeleteService("default/" + name)
}

func (w *world) setSlice() {
	name := pick(w, "slice", "1", "2", "3", "4")
	s := slice(name, pick(w, "of", "a", "b", "c", "d"), pick(w, "type", discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6),
		some(w, "endpoints", 4, "n1", "n2", "n3", "", "n1 unready", "n2 unready", "n1 terminating", "n1 terminated")...)
	w.slices[name] = s
	w.announcer.SetSlice(s)
}

func (w *world) deleteSlice() {
	name := pick(w, "slice", "1", "2", "3", "4")
	delete(w.slices, name)
	w.announcer.DeleteSlice("default/" + name)
}

func (w *world) setNode() {
	name := pick(w, "node", "n1", "n2", "n3")
	if w.chance(15) {
		delete(w.nodes, name)
		w.announcer.DeleteNode(name)
		return
	}
	n := machine(name, func(n *corev1.Node) {
		n.Spec.Unschedulable = w.chance(4)
		if w.chance(6) {
			n.Labels["name"] = "n1" // selectors and preferences may use this label
		}
		if w.chance(15) {
			n.Labels[corev1.LabelNodeExcludeBalancers] = ""
		}
		if w.chance(15) {
			n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeNetworkUnavailable, Status: corev1.ConditionTrue}}
		}
	})
	w.nodes[name] = n
	w.announcer.SetNode(n)
}

func (w *world) setPool() {
	name := pick(w, "pool", "p", "q")
	ranges := pick(w, "ranges",
		[]v1alpha1.AddressRange{"10.1.0.0/24", "fd00::/120"},
		[]v1alpha1.AddressRange{"10.1.0.0/29", "10.1.0.8/29", "fd00::/124"},
		[]v1alpha1.AddressRange{"10.1.0.2-10.1.0.40"},
		[]v1alpha1.AddressRange{"10.1.0.1-10.1.0.9", "fd00::10-fd00::1f"})
	selectors := func() []v1alpha1.LabelSelector {
		if w.chance(2) {
			return nil
		}
		return []v1alpha1.LabelSelector{{MatchLabels: map[string]string{"name": pick(w, "selected", "n1", "n1", "n2")}}}
	}
	p := addressPool(name, func(s *v1alpha1.AddressPoolSpec) {
		s.BGP.AggregationLength = pick[int32](w, "length", 32, 29, 28)
		s.BGP.AggregationLengthV6 = pick[int32](w, "length of IPv6", 128, 124)
		s.BGP.NodeSelectors = selectors()
		s.BGP.Peers = pick(w, "peers", nil, nil, []string{"x"}, []string{"x", "y"}, []string{"z"})
		if w.chance(2) {
			s.BGP.MED = new(uint32(1))
		}
		for range rapid.IntRange(0, 2).Draw(w.T, "exceptions") {
			e := v1alpha1.PoolBGPException{
				ServiceSelectors: []v1alpha1.LabelSelector{{MatchLabels: map[string]string{"tier": pick(w, "tier", "gold", "iron")}}},
				NodeSelectors:    selectors(), Peers: pick(w, "peers", nil, []string{"x"}, []string{"y"}),
			}
			e.Prepend = pick(w, "prepend", 0, 3)
			s.BGP.Exceptions = append(s.BGP.Exceptions, e)
		}
		if w.chance(5) {
			s.BGP = nil
		}
		if w.chance(2) {
			s.ARP = &v1alpha1.PoolARP{NodeSelectors: selectors(), Preempt: w.chance(2)}
			for range rapid.IntRange(0, 2).Draw(w.T, "preferences") {
				s.ARP.Preferences = append(s.ARP.Preferences, v1alpha1.Preference{
					Weight: pick[int32](w, "weight", 1, 2, 100), NodeSelectors: selectors(), Endpoints: w.chance(2),
				})
			}
		}
	}, ranges...)
	p.CreationTimestamp = aged(pick(w, "age", 1, 2))
	w.pools[name] = p
	w.announcer.SetPool(p)
}

// setPeers changes the peers of a pool.
func (w *world) setPeers() {
	p := w.pools[pick(w, "pool", "p", "q")]
	if p == nil || p.Spec.BGP == nil {
		return
	}
	p = p.DeepCopy()
	p.Spec.BGP.Peers = pick(w, "peers", []string{"x"}, []string{"y"}, []string{"x", "y"}, nil)
	w.pools[p.Name] = p
	w.announcer.SetPool(p)
}

func (w *world) deletePool() {
	name := pick(w, "pool", "p", "q")
	delete(w.pools, name)
	w.announcer.DeletePool(name)
}

func (w *world) apply() {
	w.config.Fitness.ExcludeCordoned = w.chance(2)
	w.config.Fitness.IgnoreExcludeLabel = w.chance(2)
	w.config.RequireEndpoints = pick(w, "rule", service.None, service.Any, service.OnNode)
	w.config.Peers = pick(w, "known peers", map[string][]string{"x": {"10.0.0.1"}, "y": {"10.0.0.2"}}, map[string][]string{"x": {"10.0.0.1"}},
		map[string][]string{"y": {"10.0.0.2", "10.0.0.1"}, "z": {"10.0.0.3"}}, nil)
	w.config.Only = pick(w, "families", nil, map[string]pool.Family{"10.0.0.1": pool.IPv4}, map[string]pool.Family{"10.0.0.1": pool.IPv6, "10.0.0.2": pool.IPv4})
	w.config.Attributes = pick(w, "attributes", v1alpha1.Attributes{}, v1alpha1.Attributes{Prepend: 1})
	before := w.config.Reserved
	w.config.Reserved = nil
	if w.chance(2) && !w.broken {
		w.config.Reserved = []netip.Addr{netip.MustParseAddr(pick(w, "reserved", "10.1.0.1", "10.1.0.3"))}
	}
	for _, addr := range before {
		w.router.lose(addr) // the speaker withdraws it
	}
	w.announcer.Apply(w.config)
	for _, addr := range w.config.Reserved {
		w.router.lose(addr)
		w.done["reserved"]++
	}
}

func (w *world) drain() {
	if w.draining {
		w.draining = false
		w.announcer.Undrain()
		return
	}
	if w.chance(5) {
		w.draining = true
		now, cancel := context.WithCancel(context.Background())
		cancel()
		_ = w.announcer.Drain("drained")(now) // the drain continues
	}
}

func (w *world) pass(ms int) {
	time.Sleep(time.Duration(ms) * time.Millisecond)
	synctest.Wait()
	w.router.took()
}

func (w *world) breakRouter() {
	w.broken = !w.broken && w.chance(3) && len(w.config.Reserved) == 0
	if w.broken {
		w.router.deafen(errRefused)
		w.done["refused"]++
	} else {
		w.router.deafen(nil)
		w.pass(1100)
	}
}

// repeat sends known objects again, as informers do.
func (w *world) repeat() {
	w.router.took()
	for _, s := range w.services {
		w.announcer.SetService(s.DeepCopy())
	}
	for _, s := range w.slices {
		w.announcer.SetSlice(s.DeepCopy())
	}
	for _, n := range w.nodes {
		w.announcer.SetNode(n.DeepCopy())
	}
	for _, p := range w.pools {
		w.announcer.SetPool(p.DeepCopy())
	}
	w.announcer.Apply(w.config)
	if did := w.router.took(); len(did) > 0 && !w.broken {
		w.Fatalf("the router received %q without a change", did)
	}
}

// check compares the result of the last event with the model.
func (w *world) check() {
	w.events++
	synctest.Wait()
	w.router.took()
	held := w.model.flat()
	if diff := cmp.Diff(held, w.announcer.Flat(), cmpopts.EquateComparable(netip.Addr{}), cmpopts.IgnoreUnexported(flat.Address{})); diff != "" {
		w.Fatalf("addresses on the flat layer 2 (-want +got):\n%s", diff)
	}
	if same := cmp.Equal(held, w.flat, cmpopts.EquateComparable(netip.Addr{}), cmpopts.IgnoreUnexported(flat.Address{})); !same && !w.changed {
		w.Fatalf("FlatChanged was not called after a change of the addresses that this node may hold")
	}
	w.flat, w.changed = held, false
	w.done["flat"] += len(held)
	before := w.had
	w.had = make(map[netip.Prefix][]string)
	if w.broken {
		return
	}
	want, routes := w.model.routes(), w.router.has()
	all := slices.Concat(slices.Collect(maps.Values(w.config.Peers))...)
	for prefix, r := range routes {
		if w.had[prefix] = r.Peers; r.Peers == nil {
			w.had[prefix] = all
		}
		for _, peer := range before[prefix] {
			if slices.Contains(all, peer) && !slices.Contains(w.had[prefix], peer) && !slices.Contains(r.DrainingPeers, peer) {
				w.Fatalf("peer %s lost %s without notice", peer, prefix)
			}
		}
	}
	for prefix, r := range routes {
		if r.Draining {
			w.done["draining"]++
			if _, ok := want[prefix]; ok {
				w.Fatalf("%s is draining, but should stay", prefix)
			}
			continue
		}
		if _, ok := want[prefix]; !ok {
			w.Fatalf("%s is announced, but should not be", prefix)
		}
	}
	for prefix, r := range want {
		got := routes[prefix]
		if got.DrainingPeers != nil {
			w.done["draining peer"]++
		}
		if got.DrainingPeers = nil; !same(got, r) {
			w.Fatalf("%s is %+v, want %+v", prefix, got, r)
		}
		w.done["route"]++
		if !prefix.IsSingleIP() {
			w.done["aggregate"]++
		}
	}
	for _, services := range w.claims() {
		if len(services) > 1 {
			w.done["shared"]++
		}
	}
}

func same(x, y bgp.Route) bool {
	return cmp.Equal(x, y, cmpopts.EquateComparable(netip.Prefix{}), cmpopts.EquateEmpty()) && (x.Peers == nil) == (y.Peers == nil)
}

// settle waits until planned changes are complete; then exactly the desired routes are announced.
func (w *world) settle() {
	w.broken = false
	w.router.deafen(nil)
	w.pass(2000)
	w.check()
	want := w.model.routes()
	if diff := cmp.Diff(want, w.router.has(), cmpopts.EquateComparable(netip.Prefix{}), cmpopts.EquateEmpty()); diff != "" {
		w.Fatalf("after planned changes (-want +got):\n%s", diff)
	}
	counts := w.announcer.Counts()
	announced, withdrawn := w.model.counts()
	for _, p := range counts.Pools {
		announced -= p.Announced
		withdrawn -= p.Withdrawn
	}
	if counts.Routes != len(want) || counts.Failing != 0 || announced != 0 || withdrawn != 0 {
		w.Fatalf("counts %+v: %d announced and %d withdrawn addresses missing, with %d routes", counts, announced, withdrawn, len(want))
	}
	w.announcer.Services()
}

// restart starts a new announcer with the present objects. It must reach the same state.
func (w *world) restart() {
	a, r, end := w.start(nil)
	defer end()
	for _, p := range w.pools {
		a.SetPool(p)
	}
	for _, s := range w.services {
		a.SetService(s)
	}
	for _, s := range w.slices {
		a.SetSlice(s)
	}
	for _, n := range w.nodes {
		a.SetNode(n)
	}
	if w.draining {
		if err := a.Drain("drained")(context.Background()); err != nil {
			w.Fatal(err)
		}
	}
	a.Synced()
	if diff := cmp.Diff(w.router.has(), r.has(), cmpopts.EquateComparable(netip.Prefix{})); diff != "" {
		w.Fatalf("routes after a restart (-before +after):\n%s", diff)
	}
	if r.calls > 1 {
		w.Fatalf("after a restart %d calls were needed to announce everything", r.calls)
	}
}
