//go:build e2e

package services

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/herald-vip/herald/internal/wake"
	"github.com/herald-vip/herald/status/admin"
	"github.com/herald-vip/herald/testenv/e2e/site"
	"github.com/herald-vip/herald/testenv/services"
)

// Paths of the API server that only these tests use.
const (
	pools     = "/apis/herald.dev/v1alpha1/addresspools"
	bgpPool   = pools + "/" + services.PoolBGP
	byBGP6    = "fd00:99::/112"
	myClass   = "herald.dev/vip"
	condition = "herald.dev/AddressAssigned"
)

// balancers is the cluster of package services with the race detector in herald on all
// three nodes, and the rights of manifests/kustomize/services. Its BGP pool has
// addresses of both families, and serves Services that name no pool.
type balancers struct {
	*services.Lab
	routes *site.RouteWatcher // of the router
	dir    string
}

// startCluster starts a cluster of Heralds with the race detector, and with
// configuration files changed by edit. The options may contain an announcer that
// embeds the Heralds.
func startCluster(t *testing.T, o services.Options, edit func(node, file string) string) *services.Lab {
	t.Helper()
	herald := services.Herald{Binary: site.Part(t, "HERALD_RACE"), CRDs: "../../../manifests/crds", Edit: edit}
	if beside, ok := o.Announcer.(*contour); ok {
		beside.Herald = herald
	} else {
		o.Announcer = &herald
	}
	o.APIServer, o.Etcd, o.Testenv = site.Part(t, "KUBE_APISERVER"), site.Part(t, "ETCD"), site.Part(t, "TESTENV")
	o.Log = site.Log(t)
	l := site.Get[*services.Lab](t)(services.Start(t.Context(), o))
	t.Cleanup(func() {
		if t.Failed() {
			site.ShowLogs(t, l.Lab)
		}
		site.Must(t, l.Close())
	})
	return l
}

// startBalancers starts the cluster with an announcer; nil for Herald.
func startBalancers(t *testing.T, a services.Announcer) *balancers {
	t.Helper()
	b := &balancers{dir: t.TempDir()}
	b.Lab = startCluster(t, services.Options{Dir: b.dir, Announcer: a}, func(node, file string) string { return b.restrict(t, node, file) })
	t.Cleanup(func() { b.healthy(t) })
	b.grant(t)
	b.routes = site.WatchRoutes(t, b.Node("r1"))
	b.watch(t)
	b.patch(t, bgpPool, `{"spec": {"autoAssign": true, "addresses": ["`+services.ByBGP+`", "`+byBGP6+`"]}}`)
	return b
}

// restrict makes a node use the API server as Herald's service account, and serve its status page.
func (b *balancers) restrict(t *testing.T, node, file string) string {
	t.Helper()
	path := filepath.Join(b.dir, node, "kubeconfig")
	text := site.ReadFile(t, path)
	before, after, found := strings.Cut(text, "announcer-token}")
	if !found {
		t.Fatalf("no token in %s", text)
	}
	site.Must(t, os.WriteFile(path, []byte(before+`announcer-token, as: "system:serviceaccount:herald-system:herald"}`+after), 0o600))
	return strings.Replace(file, "services:\n", "services:\n  namespace: herald-system\n", 1) + "metrics: {listen: \"127.0.0.1:9474\"}\n"
}

// grant gives that account its rights, all of them or only for some kinds.
func (b *balancers) grant(t *testing.T, kinds ...string) {
	t.Helper()
	for _, name := range []string{"namespace", "rbac"} {
		text := site.ReadFile(t, "../../../manifests/kustomize/services/"+name+".yaml")
		for document := range strings.SplitSeq(text, "\n---\n") {
			var tree map[string]any
			site.Must(t, yaml.Unmarshal([]byte(document), &tree))
			if kind := tree["kind"].(string); len(kinds) == 0 || slices.Contains(kinds, kind) {
				site.Must(t, b.API.Create(t.Context(), site.ObjectPath(t, tree), []byte(document)))
			}
		}
	}
}

// healthy checks that no speaker has ended, panicked or raced.
func (b *balancers) healthy(t *testing.T) {
	t.Helper()
	for _, node := range b.Members() {
		n := b.Speaker(node)
		if !n.Running() {
			t.Errorf("the speaker of %s has ended", node)
		}
		site.Sane(t, n)
	}
}

// admin returns a client for the control socket of a node's speaker.
func (b *balancers) admin(node string) *admin.Client {
	return admin.NewClient(fmt.Sprintf("/proc/%d/root/run/herald/herald.sock", b.Speaker(node).Daemon("herald").Pid()))
}

// patch merges JSON into the object at a path.
func (b *balancers) patch(t *testing.T, path, text string) {
	t.Helper()
	site.Must(t, b.API.Patch(t.Context(), path, json.RawMessage(text)))
}

// balancer returns a Service of type LoadBalancer with one TCP port, changed by edits.
func balancer(name string, edits ...func(*corev1.Service)) *corev1.Service {
	s := &corev1.Service{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
		Spec: corev1.ServiceSpec{
			Type:     corev1.ServiceTypeLoadBalancer,
			Selector: map[string]string{"app": name},
			Ports:    []corev1.ServicePort{{Name: "http", Port: services.Port, TargetPort: intstr.FromInt32(8080)}},
		},
	}
	for _, edit := range edits {
		edit(s)
	}
	return s
}

// Edits of Services.
func ofType(kind corev1.ServiceType) func(*corev1.Service) {
	return func(s *corev1.Service) {
		if s.Spec.Type = kind; kind != corev1.ServiceTypeLoadBalancer {
			s.Spec.LoadBalancerClass, s.Spec.AllocateLoadBalancerNodePorts = nil, nil
		}
	}
}

func ofClass(class string) func(*corev1.Service) {
	return func(s *corev1.Service) { s.Spec.LoadBalancerClass = &class }
}

func local(s *corev1.Service) {
	s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
}

func annotated(name, value string) func(*corev1.Service) {
	return func(s *corev1.Service) { metav1.SetMetaDataAnnotation(&s.ObjectMeta, "herald.dev/"+name, value) }
}

// create creates a Service, with ready endpoints on these nodes. At the end of the
// test it deletes the Service and waits for its routes to go: the next test may get
// its address.
func (b *balancers) create(t *testing.T, s *corev1.Service, nodes ...string) {
	t.Helper()
	site.Must(t, b.Create(t.Context(), services.Service{
		Name: s.Name, Endpoints: nodes,
		Edit: func(o *corev1.Service) { *o = *s },
	}))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), site.Soon)
		defer cancel()
		last := new(corev1.Service)
		_ = b.API.Get(ctx, services.Services+"/"+s.Name, last)
		_ = b.Remove(ctx, s.Name) // the test may have done so
		if t.Failed() || last.Annotations["herald.dev/share"] != "" {
			return // another Service may keep it
		}
		for _, a := range addressesOf(last) {
			if err := b.routes.Gone(ctx, a); err != nil {
				t.Errorf("%s is deleted: %v", s.Name, err)
			}
		}
	})
}

// led creates a Service, waits until it is announced, and returns its address. With
// the policy Local the nodes with endpoints announce it, else all nodes.
func (b *balancers) led(t *testing.T, s *corev1.Service, nodes ...string) netip.Addr {
	t.Helper()
	b.create(t, s, nodes...)
	vip := b.address(t, s.Name)
	if s.Spec.ExternalTrafficPolicy != corev1.ServiceExternalTrafficPolicyLocal {
		nodes = b.Members()
	}
	b.leads(t, vip, nodes...)
	return vip
}

// get reads a Service.
func (b *balancers) get(t *testing.T, name string) *corev1.Service {
	t.Helper()
	s := new(corev1.Service)
	site.Must(t, b.API.Get(t.Context(), services.Services+"/"+name, s))
	return s
}

// update changes a Service, despite concurrent changes.
func (b *balancers) update(t *testing.T, name string, edits ...func(*corev1.Service)) *corev1.Service {
	t.Helper()
	site.Eventually(t, site.Soon, func() error {
		s := b.get(t, name)
		for _, edit := range edits {
			edit(s)
		}
		s.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}
		err := b.API.Replace(t.Context(), services.Services+"/"+name, s)
		if err != nil && !apierrors.IsConflict(err) {
			t.Fatal(err)
		}
		return err
	})
	return b.get(t, name)
}

// addressesOf returns the addresses in a Service's status.
func addressesOf(s *corev1.Service) (list []netip.Addr) {
	for _, i := range s.Status.LoadBalancer.Ingress {
		if a, err := netip.ParseAddr(i.IP); err == nil {
			list = append(list, a)
		}
	}
	return list
}

// assigned waits until a Service has that many addresses, and Herald's condition
// confirms that these are the requested ones.
func (b *balancers) assigned(t *testing.T, name string, count int) []netip.Addr {
	t.Helper()
	s := b.awaits(t, name, "Assigned")
	addrs := addressesOf(s)
	if len(addrs) != count {
		t.Fatalf("%s has the addresses %v, want %d", name, addrs, count)
	}
	for _, i := range s.Status.LoadBalancer.Ingress {
		if i.IPMode == nil || *i.IPMode != corev1.LoadBalancerIPModeVIP || i.Hostname != "" {
			t.Errorf("%s has %+v, want an address with ipMode VIP", name, i)
		}
	}
	return addrs
}

// address returns the only address that a Service is assigned.
func (b *balancers) address(t *testing.T, name string) netip.Addr {
	t.Helper()
	return b.assigned(t, name, 1)[0]
}

// hasAddresses waits until a Service has just these addresses in its status.
func (b *balancers) hasAddresses(t *testing.T, name string, want ...netip.Addr) {
	t.Helper()
	site.Eventually(t, site.Soon, func() error {
		got := addressesOf(b.get(t, name))
		return site.ErrorIf(!slices.Equal(got, want), "%s has %v, want %v", name, got, want)
	})
}

// keeps checks that a Service is assigned the address that it had.
func (b *balancers) keeps(t *testing.T, name string, had netip.Addr) {
	t.Helper()
	if got := b.address(t, name); got != had {
		t.Errorf("%s has %s, had %s", name, got, had)
	}
}

// keepsStatus checks that its status still has that address, regardless of Herald's condition.
func (b *balancers) keepsStatus(t *testing.T, name string, had netip.Addr) {
	t.Helper()
	if got := addressesOf(b.get(t, name)); !slices.Equal(got, []netip.Addr{had}) {
		t.Errorf("%s has %v, had %s", name, got, had)
	}
}

// awaits waits until Herald's condition of a Service has a reason.
func (b *balancers) awaits(t *testing.T, name, reason string) (s *corev1.Service) {
	t.Helper()
	site.Eventually(t, site.Soon, func() error {
		s = b.get(t, name)
		c := conditionOf(s)
		return site.ErrorIf(c == nil || c.Reason != reason,
			"%s has the condition %+v and the addresses %v, want %s", name, c, addressesOf(s), reason)
	})
	return s
}

// conditionOf returns Herald's condition, nil if there is none.
func conditionOf(s *corev1.Service) *metav1.Condition {
	for i, c := range s.Status.Conditions {
		if c.Type == condition {
			return &s.Status.Conditions[i]
		}
	}
	return nil
}

// left waits until a Service has neither addresses nor a condition of Herald's.
func (b *balancers) left(t *testing.T, name string) {
	t.Helper()
	site.Eventually(t, site.Soon, func() error {
		s := b.get(t, name)
		addrs, c := addressesOf(s), conditionOf(s)
		return site.ErrorIf(len(addrs) > 0 || c != nil, "%s has the addresses %v and the condition %v", name, addrs, c)
	})
}

// leads waits until the router's route to an IPv4 address leads to exactly these nodes.
func (b *balancers) leads(t *testing.T, address netip.Addr, nodes ...string) {
	t.Helper()
	site.Eventually(t, site.Soon, func() error { return b.check(address, nodes...) })
}

// check returns an error if it does not.
func (b *balancers) check(address netip.Addr, nodes ...string) error {
	got, err := site.Hops(b.Node("r1"), address.String())
	var want []netip.Addr
	for _, n := range nodes {
		want = append(want, b.Address(n))
	}
	slices.SortFunc(want, netip.Addr.Compare)
	return site.Check(err, !slices.Equal(got, want), "the route to %s leads to %v, want %v", address, got, want)
}

// unmoved checks that the router's route to an address has not changed since the mark.
func (b *balancers) unmoved(t *testing.T, addresses ...netip.Addr) {
	t.Helper()
	for _, a := range addresses {
		if steps := b.routes.Steps(a.String()); len(steps) > 0 {
			t.Errorf("the route to %s has changed: %v", a, steps)
		}
	}
}

// connects opens a connection to an address from the client behind the router.
func (b *balancers) connects(t *testing.T, address netip.Addr, port int) {
	t.Helper()
	site.Eventually(t, site.Soon, func() error {
		return b.Node("c1").Reaches(t.Context(), netip.AddrPortFrom(address, uint16(port)).String())
	})
}

// writes counts the announcer's write requests in the API server's audit log, by verb
// and resource. It omits the writer's Lease and the reports of announcing nodes.
func (b *balancers) writes(t *testing.T) map[string]int {
	t.Helper()
	counts := make(map[string]int)
	wrote := make(map[string]string) // status by Service, without the announcing nodes
	for line := range strings.Lines(site.ReadFile(t, filepath.Join(b.dir, "api", "audit.log"))) {
		var e struct {
			Verb          string
			ObjectRef     struct{ Resource, Subresource, Name string }
			RequestObject corev1.Service
		}
		if json.Unmarshal([]byte(line), &e) != nil {
			continue // the last line may be incomplete
		}
		if slices.Contains([]string{"get", "list", "watch"}, e.Verb) || slices.Contains([]string{"leases", "nodestatuses", "events"}, e.ObjectRef.Resource) {
			continue
		}
		if e.ObjectRef.Resource == "services" {
			status := fmt.Sprint(addressesOf(&e.RequestObject), conditionOf(&e.RequestObject))
			if wrote[e.ObjectRef.Name] == status {
				continue
			}
			wrote[e.ObjectRef.Name] = status
		}
		counts[e.Verb+" "+e.ObjectRef.Resource]++
	}
	return counts
}

// settled waits for a second without a write, so that no address is on its way. It
// returns the writes so far.
func (b *balancers) settled(t *testing.T) map[string]int {
	t.Helper()
	return site.Settled(t, func() map[string]int { return b.writes(t) })
}

// auditor polls all Services: each list is the API server's state at one moment.
type auditor struct {
	looks int
	bad   []string
}

// watch polls until the test is over. It fails the test if two Services have shared an
// address without having agreed to.
func (b *balancers) watch(t *testing.T) {
	w := &auditor{}
	t.Cleanup(func() {
		if w.looks == 0 {
			t.Error("the auditor has seen no Service")
		}
		for _, bad := range w.bad {
			t.Error(bad)
		}
	})
	site.Meanwhile(t, func(ctx context.Context) {
		for wake.Pause(ctx, 20*time.Millisecond) {
			var list corev1.ServiceList
			if b.API.Get(ctx, "/api/v1/services", &list) == nil {
				w.look(list.Items)
			}
		}
	})
}

// forged is the annotation of a Service that a test gives another Service's address.
const forged = "test/forged"

func (w *auditor) look(list []corev1.Service) {
	w.looks++
	owners := make(map[netip.Addr]*corev1.Service)
	for i := range list {
		s := &list[i]
		if s.Annotations[forged] != "" {
			continue
		}
		for _, a := range addressesOf(s) {
			other := owners[a]
			if owners[a] = s; other == nil {
				continue
			}
			if key := s.Annotations["herald.dev/share"]; key == "" || key != other.Annotations["herald.dev/share"] {
				bad := fmt.Sprintf("%s/%s and %s/%s both have %s", other.Namespace, other.Name, s.Namespace, s.Name, a)
				if !slices.Contains(w.bad, bad) {
					w.bad = append(w.bad, bad)
				}
			}
		}
	}
}
