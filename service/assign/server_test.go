package assign

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/service"
	"github.com/herald-vip/herald/service/kube"
	"github.com/herald-vip/herald/service/pool"
)

// server is an API server in memory and virtual time.
type server struct {
	t      *testing.T
	random *rand.Rand

	mu       sync.Mutex
	version  int
	services map[string]*corev1.Service
	edited   map[string]time.Time // time of the last edit of a Service by a test
	pools    map[string]*v1alpha1.AddressPool
	spaces   map[string]*corev1.Namespace
	nodes    map[string]*corev1.Node
	states   map[string]*v1alpha1.NodeStatus // by node
	events   []string
	writes   map[string]int // writes of statuses, by the key of the Service, or "pool " and the name
	watch    func(func(*state))

	unsettled bool // an edit by the test was not waited for

	// doubles are addresses that two Services had at once without sharing.
	doubles []string
	// under counts the pending requests, most is its maximum.
	under, most int
	// trouble returns errors of a request before or after it takes effect.
	trouble func(key string) (before, after error)
	late    sync.WaitGroup // requests that take effect after their sender gave up
}

func newServer(t *testing.T) *server {
	return &server{
		t: t, random: rand.New(rand.NewPCG(1, 2)), services: make(map[string]*corev1.Service), edited: make(map[string]time.Time),
		pools: make(map[string]*v1alpha1.AddressPool), spaces: make(map[string]*corev1.Namespace),
		nodes: make(map[string]*corev1.Node), states: make(map[string]*v1alpha1.NodeStatus),
		writes: make(map[string]int), watch: func(func(*state)) {},
	}
}

var options = Options{Scope: service.Scope{Class: "herald.dev/vip", Default: true}, Identity: "n1"}

// start runs a writer until stop is called. It receives changes in order, with a short
// delay.
func (s *server) start() (stop func()) {
	log := slog.New(slog.NewTextHandler(s.t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	d := newWriter(log, s, options, new(counts))
	ctx, cancel := context.WithCancel(s.t.Context())
	news := make(chan func(*state), 100_000)
	s.mu.Lock()
	now := time.Now()
	for _, o := range s.services {
		d.state.setService(o, now)
	}
	for _, o := range s.pools {
		d.state.setPool(o, now)
	}
	for _, o := range s.spaces {
		d.state.setNamespace(o, now)
	}
	for _, o := range s.nodes {
		d.state.setNode(o, now)
	}
	for _, o := range s.states {
		d.state.setNodeStatus(o, now)
	}
	s.watch = func(f func(*state)) {
		select {
		case news <- f:
		default:
			panic("the writer does not receive events")
		}
	}
	d.latest = func(key string) (*corev1.Service, bool) {
		s.mu.Lock()
		defer s.mu.Unlock()
		o, ok := s.services[key]
		return o, ok
	}
	s.mu.Unlock()
	var wg sync.WaitGroup
	wg.Go(func() { d.run(ctx) })
	wg.Go(func() {
		for {
			select {
			case f := <-news:
				time.Sleep(time.Millisecond)
				d.change(f)
			case <-ctx.Done():
				return
			}
		}
	})
	return func() { cancel(); wg.Wait() }
}

// put stores a new version of a Service, as the API server would.
func (s *server) put(o *corev1.Service) *corev1.Service {
	o = o.DeepCopy()
	s.version++
	o.ResourceVersion = strconv.Itoa(s.version)
	if o.UID == "" {
		o.UID = types.UID("u" + o.ResourceVersion)
		o.CreationTimestamp = metav1.NewTime(time.Now())
	}
	if o.Spec.Type != corev1.ServiceTypeLoadBalancer {
		o.Status.LoadBalancer.Ingress = nil
	}
	prev := s.services[kube.Key(o)]
	s.services[kube.Key(o)] = o
	s.watch(func(st *state) { st.setService(o, time.Now()) })
	s.check(prev, o)
	return o
}

// check looks for another Service that has a new address of this one.
func (s *server) check(prev, o *corev1.Service) {
	for key, other := range s.services {
		// The writer cannot have received the latest edits yet.
		if key == kube.Key(o) || time.Since(s.edited[key]) < 50*time.Millisecond {
			continue
		}
		for _, addr := range service.StatusAddresses(o) {
			if slices.Contains(service.StatusAddresses(other), addr) && !(prev != nil && slices.Contains(service.StatusAddresses(prev), addr)) && collide(o, other) {
				s.doubles = append(s.doubles, fmt.Sprintf("%s of %s and %s", addr, kube.Key(o), key))
			}
		}
	}
}

// collide reports whether two Services cannot have the same address, even while one
// of them is about to get another.
func collide(a, b *corev1.Service) bool {
	x, _ := service.Scope{}.ClaimOf(a)
	y, _ := service.Scope{}.ClaimOf(b)
	return x.Share == "" && y.Share == "" || slices.ContainsFunc(x.Ports, func(p pool.Port) bool { return slices.Contains(y.Ports, p) })
}

// edit locks the server for an edit by the test.
func (s *server) edit() (unlock func()) {
	s.mu.Lock()
	s.unsettled = true
	return s.mu.Unlock
}

// settle waits for the writer after an edit.
func (s *server) settle() {
	if s.unsettled {
		s.wait()
	}
}

// create creates or changes a Service.
func (s *server) create(name string, edit ...func(*corev1.Service)) {
	defer s.edit()()
	o := s.services["default/"+name]
	if o == nil {
		o = &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
		o.Spec.Type = corev1.ServiceTypeLoadBalancer
		o.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol}
		o.Spec.Ports = []corev1.ServicePort{{Port: 80}}
	}
	o = o.DeepCopy()
	for _, e := range edit {
		e(o)
	}
	s.edited[kube.Key(o)] = time.Now()
	s.put(o)
}

func (s *server) delete(name string) {
	defer s.edit()()
	if o := s.services["default/"+name]; o != nil {
		delete(s.services, "default/"+name)
		s.watch(func(st *state) { st.deleteService(o, time.Now()) })
	}
}

// createPool creates or changes a pool.
func (s *server) createPool(name string, edit func(*v1alpha1.AddressPoolSpec), addresses ...v1alpha1.AddressRange) {
	defer s.edit()()
	o := s.pools[name]
	if o == nil {
		o = &v1alpha1.AddressPool{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), CreationTimestamp: metav1.NewTime(time.Now())}}
	}
	o = o.DeepCopy()
	o.Generation++
	o.Spec.Addresses = addresses
	if edit != nil {
		edit(&o.Spec)
	}
	s.putPool(o)
}

func (s *server) putPool(o *v1alpha1.AddressPool) {
	s.version++
	o.ResourceVersion = strconv.Itoa(s.version)
	s.pools[o.Name] = o
	s.watch(func(st *state) { st.setPool(o, time.Now()) })
}

func (s *server) label(space string, labels map[string]string) {
	defer s.edit()()
	o := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: space, Labels: labels}}
	s.spaces[space] = o
	s.watch(func(st *state) { st.setNamespace(o, time.Now()) })
}

func (s *server) deletePool(name string) {
	defer s.edit()()
	o := s.pools[name]
	delete(s.pools, name)
	s.watch(func(st *state) { st.deletePool(o, time.Now()) })
}

var (
	errConflict = apierrors.NewConflict(schema.GroupResource{Resource: "services"}, "", errors.New("not the newest version"))
	errGone     = apierrors.NewNotFound(schema.GroupResource{Resource: "services"}, "")
	errCut      = errors.New("the connection was cut")
	errLate     = errors.New("the connection was cut, and the request takes effect later")
)

// spoil sets the source of errors; nil ends them.
func (s *server) spoil(trouble func(key string) (before, after error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trouble = trouble
}

// request performs a request after a delay, with possible errors.
func (s *server) request(ctx context.Context, key string, do func() error) error {
	var before, after error
	s.mu.Lock()
	s.under++
	s.most = max(s.most, s.under)
	defer func() {
		s.mu.Lock()
		s.under--
		s.mu.Unlock()
	}()
	pause := time.Duration(1+s.random.IntN(5)) * time.Millisecond
	if s.trouble != nil {
		before, after = s.trouble(key)
	}
	s.mu.Unlock()
	select {
	case <-time.After(pause):
	case <-ctx.Done():
		return ctx.Err()
	}
	if errors.Is(before, errLate) {
		s.late.Go(func() {
			time.Sleep(time.Second)
			s.mu.Lock()
			defer s.mu.Unlock()
			_ = do() // the result is lost
		})
	}
	if before != nil {
		return before
	}
	s.mu.Lock()
	s.writes[key]++
	err := do()
	s.mu.Unlock()
	if err != nil {
		return err
	}
	return after
}

func (s *server) WriteServiceStatus(ctx context.Context, read *corev1.Service, status corev1.ServiceStatus) (written *corev1.Service, err error) {
	key := kube.Key(read)
	err = s.request(ctx, key, func() error {
		o := s.services[key]
		switch {
		case o == nil:
			return errGone
		case o.ResourceVersion != read.ResourceVersion:
			return errConflict
		}
		o = o.DeepCopy()
		o.Status.LoadBalancer, o.Status.Conditions = status.LoadBalancer, status.Conditions
		written = s.put(o)
		return nil
	})
	return written, err
}

func (s *server) WriteStatus(ctx context.Context, read kube.Object, status any) error {
	return s.request(ctx, "pool "+read.GetName(), func() error {
		o := s.pools[read.GetName()]
		if o == nil || o.ResourceVersion != read.GetResourceVersion() {
			return errConflict
		}
		o = o.DeepCopy()
		o.Status = status.(v1alpha1.AddressPoolStatus)
		s.putPool(o)
		return nil
	})
}

func (s *server) WriteEvent(ctx context.Context, e kube.Event) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = append(s.events, fmt.Sprintf("%s %s %s: %s", e.Type, e.About.GetName(), e.Reason, e.Message))
	return nil
}

// has returns the addresses and the condition's reason of a Service.
func (s *server) has(name string) string {
	s.settle()
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.services["default/"+name]
	if o == nil {
		return "gone"
	}
	words := []string{}
	for _, addr := range service.StatusAddresses(o) {
		words = append(words, addr.String())
	}
	if c := conditionOf(o); c != nil {
		words = append(words, c.Reason)
	}
	return strings.Join(words, " ")
}

// explains checks the message of a Service's condition.
func (s *server) explains(name, want string) {
	s.t.Helper()
	s.settle()
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := conditionOf(s.services["default/"+name]); c == nil || c.Message != want {
		s.t.Errorf("condition of %s: %+v, want the message %q", name, c, want)
	}
}

func (s *server) want(name, want string) {
	s.t.Helper()
	if got := s.has(name); got != want {
		s.t.Errorf("%s has %q, want %q", name, got, want)
	}
}

func (s *server) pool(name string) *v1alpha1.AddressPool {
	s.settle()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pools[name]
}

// written counts the writes of the status of a Service, or of a pool by "pool " and its name.
func (s *server) written(key string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.writes[key]
}

// total counts all writes and events.
func (s *server) total() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.writes {
		n += w
	}
	return n + len(s.events)
}

// idle fails the test if a writer sends requests during do.
func (s *server) idle(do func()) {
	s.t.Helper()
	before := s.total()
	do()
	if n := s.total() - before; n != 0 {
		s.t.Errorf("%d requests without a change", n)
	}
}

// wait lets time pass until all work is done.
func (s *server) wait() { s.sleep(5 * time.Second) }

// sleep lets time pass, then waits for pending work.
func (s *server) sleep(d time.Duration) {
	s.unsettled = false
	time.Sleep(d)
	synctest.Wait()
}
