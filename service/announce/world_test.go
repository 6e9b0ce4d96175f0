package announce_test

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/bgp"
	"github.com/herald-vip/herald/service"
	"github.com/herald-vip/herald/service/announce"
	"github.com/herald-vip/herald/testenv/wait"
)

// class is the class of Herald's Services in these tests.
const class = "herald.dev/vip"

// router stands for a node's peers. It reports redundant deltas as errors.
type router struct {
	t      fataler
	mu     sync.Mutex
	routes map[netip.Prefix]bgp.Route
	did    []string
	calls  int
	refuse error
	// withdrawn since the last call of took.
	withdrawn map[netip.Prefix]bool
}

type fataler interface {
	Helper()
	Errorf(format string, args ...any)
}

func newRouter(t fataler) *router {
	return &router{t: t, routes: make(map[netip.Prefix]bgp.Route), withdrawn: make(map[netip.Prefix]bool)}
}

func (r *router) Announce(routes ...bgp.Route) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.refuse != nil {
		return r.refuse
	}
	r.calls++
	for _, route := range routes {
		if old, ok := r.routes[route.Prefix]; ok && reflect.DeepEqual(old, route) {
			r.t.Errorf("%s is announced again without a change", route.Prefix)
		}
		if r.withdrawn[route.Prefix] {
			r.t.Errorf("%s is withdrawn and announced in one event", route.Prefix)
		}
		r.routes[route.Prefix] = route
		did := "announce " + route.Prefix.String()
		if route.Draining {
			did = "mark " + route.Prefix.String()
		}
		if route.Peers != nil {
			did += fmt.Sprintf(" to %v", route.Peers)
		}
		if route.DrainingPeers != nil {
			did += fmt.Sprintf(" draining %v", route.DrainingPeers)
		}
		r.did = append(r.did, did)
	}
	return nil
}

func (r *router) Withdraw(prefixes ...netip.Prefix) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.refuse != nil {
		return r.refuse
	}
	r.calls++
	for _, p := range prefixes {
		if _, ok := r.routes[p]; !ok {
			r.t.Errorf("%s is withdrawn, but was not announced", p)
		}
		delete(r.routes, p)
		r.withdrawn[p] = true
		r.did = append(r.did, "withdraw "+p.String())
	}
	return nil
}

// took returns the deltas since the last call, in order.
func (r *router) took() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	did := r.did
	r.did = nil
	clear(r.withdrawn)
	return did
}

func (r *router) deafen(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refuse = err
}

// has returns the present routes.
func (r *router) has() map[netip.Prefix]bgp.Route {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.routes)
}

// lose removes the route to an address, as if the speaker had withdrawn it.
func (r *router) lose(addr netip.Addr) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.routes, netip.PrefixFrom(addr, addr.BitLen()))
}

var errRefused = errors.New("no such luck")

// node is the announcer of node n1 with its router, in virtual time.
type node struct {
	*announce.Announcer
	t      *testing.T
	router *router
	log    *strings.Builder
	flat   int // number of calls of FlatChanged
}

// inVirtualTime runs f with a synced node that knows the given objects.
func inVirtualTime(t *testing.T, config announce.Config, known []any, f func(*node)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, config)
		for _, o := range known {
			n.set(o)
		}
		n.Synced()
		n.flat = 0
		f(n)
	})
}

// onePeer is the peers of a node with one peer.
func onePeer() map[string][]string { return map[string][]string{"tor": {"10.0.0.254"}} }

func newNode(t *testing.T, config announce.Config) *node {
	n := &node{t: t, router: newRouter(t), log: &strings.Builder{}}
	if config.Node == "" {
		config.Node = "n1"
	}
	if config.Peers == nil {
		config.Peers = onePeer()
	}
	config.Scope = service.Scope{Class: class, Default: true}
	n.Announcer = announce.New(announce.Options{
		Log: slog.New(slog.NewTextHandler(n.log, nil)), Routes: n.router, FlatChanged: func() { n.flat++ },
	}, config)
	wait.Go(t, n.Run)
	return n
}

// set passes an object to the announcer, or calls a function.
func (n *node) set(o any) {
	switch o := o.(type) {
	case *corev1.Service:
		n.SetService(o)
	case *discoveryv1.EndpointSlice:
		n.SetSlice(o)
	case *corev1.Node:
		n.SetNode(o)
	case *v1alpha1.AddressPool:
		n.SetPool(o)
	case func(*node):
		o(n)
	default:
		n.t.Fatalf("cannot set a %T", o)
	}
}

// did fails the test unless the router has received exactly these deltas since the last call.
func (n *node) did(want ...string) {
	n.t.Helper()
	synctest.Wait()
	if got := n.router.took(); !slices.Equal(got, want) {
		n.t.Errorf("the router received %q, want %q", got, want)
	}
}

// reason fails the test unless a Service has this reason for not being announced.
func (n *node) reason(service, want string) {
	n.t.Helper()
	for _, s := range n.Services() {
		if s.Name == service && len(s.Addresses) > 0 {
			if got := s.Addresses[0].Reason; got != want {
				n.t.Errorf("%s is not announced because %q, want %q", service, got, want)
			}
			return
		}
	}
	n.t.Errorf("the status has no address of %s", service)
}

func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// Constructors of the objects in these tests.

var epoch = metav1.NewTime(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC))

func aged(seconds int) metav1.Time {
	return metav1.NewTime(epoch.Add(time.Duration(seconds) * time.Second))
}

func svc(name string, change func(*corev1.Service), addrs ...string) *corev1.Service {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, CreationTimestamp: epoch},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, ExternalTrafficPolicy: corev1.ServiceExternalTrafficPolicyCluster,
			IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol},
			Selector:   map[string]string{"app": name}, Ports: []corev1.ServicePort{{Port: 80, Protocol: corev1.ProtocolTCP}},
		},
	}
	for _, a := range addrs {
		s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: a})
	}
	if change != nil {
		change(s)
	}
	return s
}

func local(s *corev1.Service) {
	s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
}

// slice returns a slice with an endpoint for each text such as "n1", "n1 unready", "n1 terminating",
// "n1 terminated"; the name of the node may be empty.
func slice(name, service string, family discoveryv1.AddressType, endpoints ...string) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: service},
		},
		AddressType: family,
	}
	for _, text := range endpoints {
		var e discoveryv1.Endpoint
		node, state, _ := strings.Cut(text, " ")
		if node != "" {
			e.NodeName = &node
		}
		if state != "" {
			e.Conditions.Ready, e.Conditions.Serving = new(false), new(state == "terminating")
		}
		if state == "terminating" || state == "terminated" {
			e.Conditions.Terminating = new(true)
		}
		s.Endpoints = append(s.Endpoints, e)
	}
	return s
}

func machine(name string, change func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"name": name}}}
	if change != nil {
		change(n)
	}
	return n
}

func addressPool(name string, change func(*v1alpha1.AddressPoolSpec), ranges ...v1alpha1.AddressRange) *v1alpha1.AddressPool {
	p := &v1alpha1.AddressPool{
		ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: epoch},
		Spec: v1alpha1.AddressPoolSpec{
			Addresses: ranges, BGP: &v1alpha1.PoolBGP{AggregationLength: 32, AggregationLengthV6: 128},
		},
	}
	if change != nil {
		change(&p.Spec)
	}
	return p
}
