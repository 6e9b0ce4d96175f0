//go:build e2e

package services

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/service"
	"github.com/herald-vip/herald/service/assign"
	"github.com/herald-vip/herald/service/kube"
	"github.com/herald-vip/herald/testenv/e2e/site"
	"github.com/herald-vip/herald/testenv/services"
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
		got := eventsOf(t, k.API, "second")
		return site.ErrorIf(!slices.Equal(got, want), "events %q, want %q", got, want)
	})
	if got := eventsOf(t, k.API, "first"); got != nil {
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

// register watches every version of every Service, and remembers the addresses that each ever had.
type register struct {
	mu  sync.Mutex
	had map[string]map[string]bool // by Service
}

// watchAddresses starts a register, which lasts until the end of the test.
func watchAddresses(t *testing.T, k *site.APIServer) *register {
	t.Helper()
	w := &register{had: make(map[string]map[string]bool)}
	i := k.Connect(t).Informers(site.Log(t))
	i.Services.Handle(kube.Handlers[*corev1.Service]{
		Set: func(s *corev1.Service) {
			w.mu.Lock()
			defer w.mu.Unlock()
			for _, in := range s.Status.LoadBalancer.Ingress {
				if w.had[s.Name] == nil {
					w.had[s.Name] = make(map[string]bool)
				}
				w.had[s.Name][in.IP] = true
			}
		},
		Delete: func(*corev1.Service) {},
	})
	site.Meanwhile(t, i.Run)
	<-i.Synced()
	return w
}

// count returns how many Services have had an address.
func (w *register) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.had)
}

// single checks that each of n Services has had exactly one address.
func (w *register) single(t *testing.T, n int) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	owner := make(map[string]string)
	for name, addrs := range w.had {
		if len(addrs) != 1 {
			t.Errorf("%s has had %v", name, addrs)
		}
		for addr := range addrs {
			if other := owner[addr]; other != "" {
				t.Errorf("%s belongs to %s and to %s", addr, other, name)
			}
			owner[addr] = name
		}
	}
	if len(w.had) != n {
		t.Errorf("%d Services have addresses, want %d", len(w.had), n)
	}
}

// create makes a Service without requests. It may be called from any goroutine.
func create(t *testing.T, k *site.APIServer, name string) {
	body := fmt.Appendf(nil, "{apiVersion: v1, kind: Service, metadata: {name: %s}, spec: {type: LoadBalancer, allocateLoadBalancerNodePorts: false, ports: [{port: 80}]}}", name)
	if err := k.API.Create(t.Context(), servicesPath, body); err != nil {
		t.Error(err)
	}
}

// TestAssignerKilled runs three candidate processes, and repeatedly kills the assigner
// while 500 Services are created.
func TestAssignerKilled(t *testing.T) {
	const services, kills = 500, 4
	k := site.StartAPIServer(t)
	createPool(t, k, "main", "{addresses: [10.0.0.0/22]}")
	w := watchAddresses(t, k)
	assigners := make(map[string]*exec.Cmd)
	for n := range 3 {
		name := fmt.Sprint("n", n)
		assigners[name] = assignerProcess(t, k, name)
	}
	var creation sync.WaitGroup
	var killed string
	for kill := range kills {
		const batch = services / kills
		creation.Wait()
		creation.Go(func() {
			for n := range batch {
				create(t, k, fmt.Sprint("s", kill*batch+n))
			}
		})
		var name string
		site.Eventually(t, site.Soon, func() (err error) {
			if had, want := w.count(), kill*batch+batch/5; had < want {
				return fmt.Errorf("%d Services have addresses, want %d", had, want)
			}
			name, killed, err = holder(k)
			return err
		})
		site.Must(t, assigners[name].Process.Signal(os.Kill))
		_ = assigners[name].Wait() // it was killed
		assigners[name] = assignerProcess(t, k, name)
	}
	creation.Wait()
	site.Eventually(t, 2*site.Soon, func() error {
		had := w.count()
		return site.ErrorIf(had < services, "%d Services have addresses", had)
	})
	w.single(t, services)
	poolBecomes(t, k, "main", fmt.Sprintf("%d/1024", services))

	// A stopped assigner releases the Lease.
	var name string
	site.Eventually(t, 2*site.Soon, func() error {
		holds, identity, err := holder(k)
		name = holds
		return site.Check(err, identity == killed, "the killed %s has the Lease", name)
	})
	site.Must(t, assigners[name].Process.Signal(syscall.SIGTERM))
	site.Must(t, assigners[name].Wait())
	site.Eventually(t, site.Soon, func() error {
		now, _, err := holder(k)
		return site.Check(err, now == name, "%s is still the assigner", name)
	})
	var list corev1.ServiceList
	k.Do(t, http.MethodGet, servicesPath, nil, &list)
	for _, s := range list.Items {
		if n := len(s.Status.LoadBalancer.Ingress); s.Spec.Type == corev1.ServiceTypeLoadBalancer && n != 1 {
			t.Errorf("%s has %d addresses", s.Name, n)
		}
	}
}

// TestManyAtOnce starts an assigner with many waiting Services, and counts the cost of each.
func TestManyAtOnce(t *testing.T) {
	const services = 1000
	k := site.StartAPIServer(t)
	createPool(t, k, "main", "{addresses: [10.0.0.0/16]}")
	w := watchAddresses(t, k)
	var wg sync.WaitGroup
	for worker := range 16 {
		wg.Go(func() {
			for n := worker; n < services; n += 16 {
				create(t, k, fmt.Sprint("s", n))
			}
		})
	}
	wg.Wait()
	before := requests(t, k)
	startAssigner(t, k)
	site.Eventually(t, 2*site.Soon, func() error {
		had := w.count()
		return site.ErrorIf(had < services, "%d Services have addresses", had)
	})
	w.single(t, services)
	poolBecomes(t, k, "main", fmt.Sprintf("%d/65536", services))
	if n := requests(t, k)["PATCH services"] - before["PATCH services"]; n != services {
		t.Errorf("%d writes of the status of %d Services", n, services)
	}
	var events corev1.EventList // Herald's: the API server writes some of its own
	k.Do(t, http.MethodGet, "/api/v1/events?fieldSelector=source=herald", nil, &events)
	if len(events.Items) > 0 {
		t.Errorf("events although each Service got its addresses: %v", events.Items)
	}
	createBalancer(t, k, "refused", "herald.dev/pool: none", "")
	becomes(t, k, "refused", "NoPool")
	t.Run("no requests without changes", func(t *testing.T) { testIdle(t, k) })
}

// TestKube writes statuses to a real API server as Herald does, also over outdated versions.
func TestKube(t *testing.T) {
	k := site.StartAPIServer(t)
	c := k.Connect(t)
	createBalancer(t, k, "w", "herald.dev/pool: p, example.com/else: x", "")
	createPool(t, k, "p", "{addresses: [10.0.0.0/24]}")
	read := new(corev1.Service)
	k.Do(t, http.MethodGet, servicesPath+"/w", nil, read)
	mode := corev1.LoadBalancerIPModeVIP
	status := corev1.ServiceStatus{
		LoadBalancer: corev1.LoadBalancerStatus{Ingress: []corev1.LoadBalancerIngress{{IP: "10.0.0.1", IPMode: &mode}}},
		Conditions:   []metav1.Condition{{Type: "herald.dev/AddressAssigned", Status: metav1.ConditionTrue, Reason: "Assigned", LastTransitionTime: metav1.NewTime(time.Now())}},
	}
	written := site.Get[*corev1.Service](t)(c.WriteServiceStatus(t.Context(), read, status))
	if got := state(written); got != "10.0.0.1 Assigned" || len(written.Annotations) != 1 {
		t.Errorf("the Service is %q, the error %v", got, written.Annotations)
	}
	if _, err := c.WriteServiceStatus(t.Context(), read, corev1.ServiceStatus{}); !apierrors.IsConflict(err) {
		t.Errorf("for an old version: %v, want a conflict", err)
	}
	written = site.Get[*corev1.Service](t)(c.WriteServiceStatus(t.Context(), written, corev1.ServiceStatus{}))
	if len(written.Status.Conditions)+len(written.Status.LoadBalancer.Ingress) != 0 {
		t.Errorf("the status is %+v, want it empty", written.Status)
	}
	k.Do(t, http.MethodDelete, servicesPath+"/w", nil, nil)
	if _, err := c.WriteServiceStatus(t.Context(), written, status); !apierrors.IsNotFound(err) {
		t.Errorf("for a deleted Service: %v", err)
	}

	pool, fresh := new(v1alpha1.AddressPool), new(v1alpha1.AddressPool)
	k.Do(t, http.MethodGet, site.HeraldPath("addresspools")+"/p", nil, pool)
	site.Must(t, c.WriteStatus(t.Context(), pool, v1alpha1.AddressPoolStatus{Usage: "1/256", IPv4: &v1alpha1.Usage{Capacity: "256", Used: 1}, Conflicts: []string{"x"}}))
	if err := c.WriteStatus(t.Context(), pool, v1alpha1.AddressPoolStatus{}); !apierrors.IsConflict(err) {
		t.Errorf("for an old version: %v, want a conflict", err)
	}
	k.Do(t, http.MethodGet, site.HeraldPath("addresspools")+"/p", nil, pool)
	site.Must(t, c.WriteStatus(t.Context(), pool, v1alpha1.AddressPoolStatus{Usage: "0/256"}))
	k.Do(t, http.MethodGet, site.HeraldPath("addresspools")+"/p", nil, fresh)
	if s := fresh.Status; s.Usage != "0/256" || s.IPv4 != nil || s.Conflicts != nil {
		t.Errorf("the status is %+v", s)
	}

	k.Apply(t, site.HeraldPath("bgppeers"), "{apiVersion: herald.dev/v1alpha1, kind: BGPPeer, metadata: {name: r}, spec: {address: 10.0.1.254, asn: 64500}}")
	peer := new(v1alpha1.BGPPeer)
	k.Do(t, http.MethodGet, site.HeraldPath("bgppeers")+"/r", nil, peer)
	site.Must(t, c.WriteEvent(t.Context(), kube.Event{About: peer, Kind: "BGPPeer", APIVersion: "herald.dev/v1alpha1", Type: corev1.EventTypeWarning, Reason: "NoPassword", Message: "no", Reporter: "n1"}))
	var events corev1.EventList
	k.Do(t, http.MethodGet, "/api/v1/namespaces/default/events?fieldSelector=involvedObject.kind=BGPPeer", nil, &events)
	if len(events.Items) != 1 || events.Items[0].InvolvedObject.UID != peer.UID {
		t.Errorf("the events are %v", events.Items)
	}
}

const (
	servicesPath = "/api/v1/namespaces/default/services"
	leasePath    = "/apis/coordination.k8s.io/v1/namespaces/default/leases/" + assign.LeaseName
	// assignerVariable makes the test binary run as an assigner with that kubeconfig.
	assignerVariable = "HERALD_E2E_ASSIGNER"
	assignerName     = "HERALD_E2E_ASSIGNER_NAME"
)

func assignOptions(identity string) assign.Options {
	return assign.Options{Scope: service.Scope{Class: "herald.dev/vip", Default: true}, Namespace: "default", Identity: identity}
}

// startAssigner runs an Assigner until the test is over.
func startAssigner(t *testing.T, k *site.APIServer) *assign.Assigner {
	t.Helper()
	a := assign.New(site.Log(t), k.Connect(t), assignOptions("n1"))
	site.Meanwhile(t, a.Run)
	site.Eventually(t, site.Soon, func() error {
		return site.ErrorIf(!a.Status().Writes, "there is no assigner")
	})
	return a
}

// assignerProcess starts a separate process that is a candidate for assigner.
func assignerProcess(t *testing.T, k *site.APIServer, name string) *exec.Cmd {
	t.Helper()
	return k.Start(t, name, "/usr/bin/env", assignerVariable+"="+k.Kubeconfig, assignerName+"="+name, os.Args[0])
}

// holder returns the assigner named in the Lease: its node, and the unique identity of its
// process.
func holder(k *site.APIServer) (name, identity string, err error) {
	var lease struct {
		Spec struct{ HolderIdentity string }
	}
	if err := k.API.Get(context.Background(), leasePath, &lease); err != nil {
		return "", "", err
	}
	name, _, _ = strings.Cut(lease.Spec.HolderIdentity, "_")
	if name == "" {
		return "", "", fmt.Errorf("there is no assigner")
	}
	return name, lease.Spec.HolderIdentity, nil
}

// createPool creates an AddressPool with a specification in YAML.
func createPool(t *testing.T, k *site.APIServer, name, spec string) {
	t.Helper()
	k.Apply(t, site.HeraldPath("addresspools"), fmt.Sprintf("{apiVersion: herald.dev/v1alpha1, kind: AddressPool, metadata: {name: %s}, spec: %s}", name, spec))
}

// createBalancer creates a Service of type LoadBalancer with annotations and further
// specification in YAML.
func createBalancer(t *testing.T, k *site.APIServer, name, annotations, spec string) {
	t.Helper()
	if spec != "" {
		spec = ", " + spec
	}
	if !strings.Contains(spec, "ports:") {
		spec += ", ports: [{port: 80}]"
	}
	k.Apply(t, servicesPath, fmt.Sprintf("{apiVersion: v1, kind: Service, metadata: {name: %s, annotations: {%s}}, spec: {type: LoadBalancer%s}}", name, annotations, spec))
}

// state returns the addresses of a Service and the reason of Herald's condition.
func state(s *corev1.Service) string {
	var words []string
	for _, i := range s.Status.LoadBalancer.Ingress {
		words = append(words, i.IP)
		if i.IPMode == nil || *i.IPMode != corev1.LoadBalancerIPModeVIP {
			words = append(words, "without ipMode VIP")
		}
	}
	for _, c := range s.Status.Conditions {
		if c.Type == service.ConditionAssigned {
			words = append(words, c.Reason)
		}
	}
	return strings.Join(words, " ")
}

// becomes waits until a Service has addresses and a reason.
func becomes(t *testing.T, k *site.APIServer, name, want string) *corev1.Service {
	t.Helper()
	s := new(corev1.Service)
	site.Eventually(t, site.Soon, func() error {
		*s = corev1.Service{}
		if err := k.API.Get(t.Context(), servicesPath+"/"+name, s); err != nil {
			return err
		}
		got := state(s)
		return site.ErrorIf(got != want, "%s: %q, want %q (%v)", name, got, want, s.Status.Conditions)
	})
	return s
}

// poolBecomes waits until a pool has a usage and these conflicts.
func poolBecomes(t *testing.T, k *site.APIServer, name, usage string, conflicts ...string) {
	t.Helper()
	site.Eventually(t, site.Soon, func() error {
		var p v1alpha1.AddressPool
		err := k.API.Get(t.Context(), site.HeraldPath("addresspools")+"/"+name, &p)
		return site.Check(err, p.Status.Usage != usage || !slices.Equal(p.Status.Conflicts, conflicts),
			"pool %s: %+v, want %q and %q", name, p.Status, usage, conflicts)
	})
}

// eventsOf returns the events about a Service, in alphabetical order.
func eventsOf(t *testing.T, api *services.API, name string) []string {
	t.Helper()
	var list corev1.EventList
	site.Must(t, api.Get(t.Context(), "/api/v1/namespaces/default/events?fieldSelector=involvedObject.kind=Service,involvedObject.name="+name, &list))
	var said []string
	for _, e := range list.Items {
		said = append(said, fmt.Sprintf("%s %s: %s", e.Type, e.Reason, e.Message))
	}
	slices.Sort(said)
	return said
}

// requests returns the server's request counts so far, by verb and resource, except
// watches and the server's own.
func requests(t *testing.T, k *site.APIServer) map[string]int {
	t.Helper()
	_, text, err := k.API.Ask(t.Context(), http.MethodGet, "/metrics", nil)
	site.Must(t, err)
	counts := make(map[string]int)
	for line := range strings.Lines(text) {
		labels, ok := strings.CutPrefix(line, "apiserver_request_total{")
		if !ok {
			continue
		}
		var n float64
		label := func(name string) string {
			_, rest, _ := strings.Cut(labels, name+`="`)
			value, _, _ := strings.Cut(rest, `"`)
			return value
		}
		if _, err := fmt.Sscan(labels[strings.LastIndex(labels, "}")+1:], &n); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if label("verb") != "WATCH" && slices.Contains([]string{"services", "addresspools", "events", "nodes", "namespaces"}, label("resource")) {
			counts[label("verb")+" "+label("resource")] += int(n)
		}
	}
	return counts
}

// runAssigner runs a process that gives Services their addresses.
func runAssigner(kubeconfig string) int {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	cluster, err := kube.Connect(kubeconfig, "herald-test")
	if err != nil {
		log.Error("cannot start", "reason", err)
		return 1
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	assign.New(log, cluster, assignOptions(os.Getenv(assignerName))).Run(ctx)
	return 0
}

func TestMain(m *testing.M) {
	if kubeconfig := os.Getenv(assignerVariable); kubeconfig != "" {
		os.Exit(runAssigner(kubeconfig)) // this is a process that a test has started
	}
	os.Exit(m.Run())
}
