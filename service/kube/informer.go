package kube

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"
	"unique"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/herald-vip/herald/service"
)

// Object is an object of any kind.
type Object interface {
	metav1.Object
	runtime.Object
}

// Key returns the unique name of an object within its kind: namespace/name, or the name of an
// object without a namespace.
func Key(o metav1.Object) string {
	if o.GetNamespace() == "" {
		return o.GetName()
	}
	return o.GetNamespace() + "/" + o.GetName()
}

// split returns the parts of a [Key].
func split(key string) (namespace, name string) {
	if namespace, name, ok := strings.Cut(key, "/"); ok {
		return namespace, name
	}
	return "", key
}

// Handlers receive the objects of one kind. Calls for one kind are sequential, calls for different kinds concurrent.
// Handlers should return soon. The objects belong to the [Informer] and are read-only.
type Handlers[T Object] struct {
	// Set is called for every existing object, and for every change of the fields that the informer stores.
	Set func(T)
	// Delete is called with the last known version of a deleted object.
	Delete func(T)
	// Listed, if not nil, is called once, after Set for all objects of the first list.
	Listed func()
}

// Informer caches the objects of one kind, without the fields that Herald does not use. While the server is away the
// cache stays unchanged. When the server is back, handlers receive only the differences.
type Informer[T Object] struct {
	about     string // the kind, for the log
	client    rest.Interface
	resource  string
	namespace string             // limits it to one namespace; empty means all
	only      metav1.ListOptions // its selectors
	optional  bool               // the server need not have the kind
	newer     bool               // the server may forbid reading it: its RBAC may predate this version
	trim      func(T)

	mu       sync.RWMutex
	objects  map[string]map[string]T // by namespace and name
	handlers []Handlers[T]
	listed   bool
	synced   chan struct{}
}

// isAbsent reports whether err means that the server does not have the kind.
func (i *Informer[T]) isAbsent(err error) bool {
	return i.optional && apierrors.IsNotFound(err) || i.newer && !i.listed && apierrors.IsForbidden(err)
}

func newInformer[T Object](client rest.Interface, resource string, only metav1.ListOptions, trim func(T)) *Informer[T] {
	return &Informer[T]{
		about: resource, client: client, resource: resource, only: only, trim: trim,
		objects: make(map[string]map[string]T), synced: make(chan struct{}),
	}
}

// newInformerOfOne returns an informer of a single object. It calls set with the object, at first and
// after each change, and with nil while there is none.
func newInformerOfOne[T Object](client rest.Interface, resource, namespace, name string, trim, set func(T)) *Informer[T] {
	i := newInformer(client, resource, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, name).String(),
	}, trim)
	i.namespace = namespace
	var none T
	i.Handle(Handlers[T]{
		Set:    set,
		Delete: func(T) { set(none) },
		Listed: func() {
			if _, exists := i.Get(namespace + "/" + name); !exists {
				set(none)
			}
		},
	})
	return i
}

// Handle adds handlers. Call it before the informer runs. A kind without handlers is not watched.
func (i *Informer[T]) Handle(h Handlers[T]) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.handlers = append(i.handlers, h)
}

// HandleChanges adds one handler for set and deleted objects.
func (i *Informer[T]) HandleChanges(changed func(T)) {
	i.Handle(Handlers[T]{Set: changed, Delete: changed})
}

// Synced is closed once the handlers have received all objects of the first list.
func (i *Informer[T]) Synced() <-chan struct{} { return i.synced }

// Get returns the object with a [Key].
func (i *Informer[T]) Get(key string) (T, bool) {
	namespace, name := split(key)
	i.mu.RLock()
	defer i.mu.RUnlock()
	o, ok := i.objects[namespace][name]
	return o, ok
}

// In returns the objects of a namespace at the time of the call, in no particular order.
func (i *Informer[T]) In(namespace string) iter.Seq[T] {
	i.mu.RLock()
	defer i.mu.RUnlock()
	return slices.Values(slices.Collect(maps.Values(i.objects[namespace])))
}

// All returns the objects at the time of the call, in no particular order.
func (i *Informer[T]) All() iter.Seq[T] {
	i.mu.RLock()
	defer i.mu.RUnlock()
	var out []T
	for _, inNamespace := range i.objects {
		out = slices.AppendSeq(out, maps.Values(inNamespace))
	}
	return slices.Values(out)
}

func (i *Informer[T]) handled() bool {
	i.mu.RLock()
	defer i.mu.RUnlock()
	return len(i.handlers) > 0
}

// run keeps the objects current until ctx ends.
func (i *Informer[T]) run(ctx context.Context, trouble *trouble) {
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			ctx, cancel := context.WithTimeout(ctx, time.Minute) // lists may be large
			defer cancel()
			if o.ResourceVersion == "0" {
				o.ResourceVersion = "" // the current state, not a cached one
			}
			list, err := i.request(o).Do(ctx).Get()
			if i.isAbsent(err) {
				list, err = &unstructured.UnstructuredList{}, nil
			} else if untyped, ok := list.(*unstructured.Unstructured); ok {
				list, err = untyped.ToList()
			}
			trouble.note(ctx, i.about, err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.Watch = true
			var unanswered error
			w, err := i.request(o).Watch(context.WithValue(ctx, observer{}, &unanswered))
			if i.isAbsent(err) && o.SendInitialEvents == nil { // otherwise client-go lists next
				w, err = absent(), nil
			}
			if err == nil && unanswered != nil { // client-go would take it for the end of a watch
				w.Stop()
				err = unanswered
			}
			// After other errors of a streaming list (a watch that begins with all objects) client-go falls back to a list.
			repeats := err == nil || utilnet.IsConnectionRefused(err) || apierrors.IsTooManyRequests(err)
			if o.SendInitialEvents == nil || repeats {
				trouble.note(ctx, i.about, err)
			}
			return w, err
		},
	}
	quiet := logr.Discard() // trouble logs instead
	var kind T
	reflector := cache.NewReflectorWithOptions(lw, reflect.New(reflect.TypeOf(kind).Elem()).Interface(), (*sink[T])(i), cache.ReflectorOptions{
		Logger: &quiet, Name: i.about,
		// The return of the server is detected within 1.5 s.
		Backoff: &wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 5, Cap: time.Second},
	})
	reflector.RunWithContext(logr.NewContext(ctx, quiet))
}

func (i *Informer[T]) request(o metav1.ListOptions) *rest.Request {
	o.LabelSelector, o.FieldSelector = i.only.LabelSelector, i.only.FieldSelector
	// The reflector retries by itself, and sooner.
	return i.client.Get().MaxRetries(0).NamespaceIfScoped(i.namespace, i.namespace != "").Resource(i.resource).VersionedParams(&o, metav1.ParameterCodec)
}

// set stores an object and calls the handlers if it has changed.
func (i *Informer[T]) set(o T) {
	prev, known := i.Get(Key(o))
	changed := !known || !same(prev, o)
	i.mu.Lock()
	if i.objects[o.GetNamespace()] == nil {
		i.objects[o.GetNamespace()] = make(map[string]T)
	}
	i.objects[o.GetNamespace()][o.GetName()] = o
	i.mu.Unlock()
	if !changed {
		return
	}
	for _, h := range i.handlers {
		h.Set(o)
	}
}

func (i *Informer[T]) remove(key string) {
	namespace, name := split(key)
	i.mu.Lock()
	prev, known := i.objects[namespace][name]
	if delete(i.objects[namespace], name); len(i.objects[namespace]) == 0 {
		delete(i.objects, namespace)
	}
	i.mu.Unlock()
	if !known {
		return
	}
	for _, h := range i.handlers {
		h.Delete(prev)
	}
}

// same reports whether at most the version has changed. It modifies o for a moment, so o must not be shared yet.
func same[T Object](prev, o T) bool {
	version := o.GetResourceVersion()
	o.SetResourceVersion(prev.GetResourceVersion())
	defer o.SetResourceVersion(version)
	return reflect.DeepEqual(prev, o)
}

// sink is an informer as the store of a reflector.
type sink[T Object] Informer[T]

// Transformer drops unused fields while a long list arrives.
func (s *sink[T]) Transformer() cache.TransformFunc {
	return func(o any) (any, error) {
		if t, ok := o.(T); ok {
			s.trim(t)
		}
		return o, nil
	}
}

// Add stores a new object.
func (s *sink[T]) Add(o any) error { return s.Update(o) }

// Update stores a changed object.
func (s *sink[T]) Update(o any) error {
	t, ok := o.(T)
	if !ok {
		return fmt.Errorf("the server sent a %T instead of %s", o, s.about)
	}
	s.trim(t)
	(*Informer[T])(s).set(t)
	return nil
}

// Delete removes an object.
func (s *sink[T]) Delete(o any) error {
	t, ok := o.(T)
	if !ok {
		return fmt.Errorf("the server sent a %T instead of %s", o, s.about)
	}
	(*Informer[T])(s).remove(Key(t))
	return nil
}

// Replace stores a list of all objects, in the order of their keys, so that every start is the same.
func (s *sink[T]) Replace(list []any, _ string) error {
	i := (*Informer[T])(s)
	listed := make(map[string]T, len(list))
	for _, o := range list {
		t, ok := o.(T)
		if !ok {
			return fmt.Errorf("the server sent a %T instead of %s", o, s.about)
		}
		s.trim(t)
		listed[Key(t)] = t
	}
	for gone := range i.All() {
		if _, still := listed[Key(gone)]; !still {
			i.remove(Key(gone))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(listed)) {
		i.set(listed[key])
	}
	if !i.listed {
		i.listed = true
		for _, h := range i.handlers {
			if h.Listed != nil {
				h.Listed()
			}
		}
		close(i.synced)
	}
	return nil
}

// Resync does nothing: there are no periodic repetitions.
func (s *sink[T]) Resync() error { return nil }

// The functions below drop fields that Herald does not use. They may be called twice for an object.

// trimMeta keeps the names, versions, timestamps and labels of an object, and the annotations that Herald reads.
func trimMeta(m *metav1.ObjectMeta) {
	var annotations map[string]string
	for name, value := range m.Annotations {
		if service.Reads(name) {
			if annotations == nil {
				annotations = make(map[string]string)
			}
			annotations[name] = value
		}
	}
	*m = metav1.ObjectMeta{
		Name: m.Name, Namespace: m.Namespace, UID: m.UID, ResourceVersion: m.ResourceVersion, Generation: m.Generation,
		CreationTimestamp: m.CreationTimestamp, DeletionTimestamp: m.DeletionTimestamp,
		Labels: m.Labels, Annotations: annotations,
	}
}

func trimService(s *corev1.Service) {
	trimOwned(&s.ObjectMeta)
	if s.Spec.Type != corev1.ServiceTypeLoadBalancer && len(s.Status.LoadBalancer.Ingress) == 0 {
		s.Labels, s.Annotations, s.OwnerReferences = nil, nil, nil
		s.Spec = corev1.ServiceSpec{Type: s.Spec.Type}
	}
}

func trimSlice(s *discoveryv1.EndpointSlice) {
	name := s.Labels[discoveryv1.LabelServiceName]
	trimMeta(&s.ObjectMeta)
	s.Labels = map[string]string{discoveryv1.LabelServiceName: name}
	s.Ports = nil
	for n := range s.Endpoints {
		e := &s.Endpoints[n]
		*e = discoveryv1.Endpoint{NodeName: detached(e.NodeName), Conditions: discoveryv1.EndpointConditions{
			Ready: detached(e.Conditions.Ready), Serving: detached(e.Conditions.Serving), Terminating: detached(e.Conditions.Terminating),
		}}
	}
}

// detached returns a pointer to a copy of the value, so that the object around it can be freed.
// Equal strings share their bytes.
func detached[T comparable](value *T) *T {
	if value == nil {
		return nil
	}
	return new(unique.Make(*value).Value())
}

func trimNode(n *corev1.Node) {
	trimMeta(&n.ObjectMeta)
	n.Spec = corev1.NodeSpec{Unschedulable: n.Spec.Unschedulable, Taints: n.Spec.Taints}
	var conditions []corev1.NodeCondition
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeNetworkUnavailable && c.Status == corev1.ConditionTrue || c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue {
			conditions = append(conditions, corev1.NodeCondition{Type: c.Type, Status: c.Status})
		}
	}
	n.Status = corev1.NodeStatus{Addresses: n.Status.Addresses, Conditions: conditions}
}

func trimNamespace(n *corev1.Namespace) {
	trimMeta(&n.ObjectMeta)
	n.Spec, n.Status = corev1.NamespaceSpec{}, corev1.NamespaceStatus{}
}
