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

	"github.com/go-logr/logr"
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
)

// listTimeout is how long a list may take: it may be large, and the server slow.
const listTimeout = time.Minute

// Object is what all objects have, whatever their kind.
type Object interface {
	metav1.Object
	runtime.Object
}

// Key is how an object is called among those of its kind: its namespace and name
// with a slash between, or its name alone.
func Key(o metav1.Object) string {
	if o.GetNamespace() == "" {
		return o.GetName()
	}
	return o.GetNamespace() + "/" + o.GetName()
}

// split is a [Key] in its parts.
func split(key string) (namespace, name string) {
	if namespace, name, ok := strings.Cut(key, "/"); ok {
		return namespace, name
	}
	return "", key
}

// Handlers hear of the objects of one kind. They are called one after the other,
// those of different kinds at the same time, and should return soon. The objects
// belong to the [Informer]: they are to be read only.
type Handlers[T Object] struct {
	// Set is called for every object that there is and whenever one changes in
	// what the informer keeps.
	Set func(T)
	// Delete is called with the last that was known of an object that is gone.
	Delete func(T)
	// Listed is called once, after Set for all objects that there were. It may be
	// nil.
	Listed func()
}

// Informer knows the objects of one kind, less what Herald has no use for. While
// the server is away they stay as they were; what has changed by the time it is
// back is told then, and nothing else.
type Informer[T Object] struct {
	about     string // the kind, for the log
	client    rest.Interface
	resource  string
	namespace string             // of all objects, if that is not empty
	only      metav1.ListOptions // its selectors
	optional  bool               // whether the server need not have the kind
	newer     bool               // nor let it be read, as one that is older than this program
	trim      func(T)

	mu       sync.RWMutex
	objects  map[string]map[string]T // by namespace and name
	handlers []Handlers[T]
	listed   bool
	synced   chan struct{}
}

// isAbsent reports whether the answer of a server is that it does not have the kind.
func (i *Informer[T]) isAbsent(err error) bool {
	return i.optional && apierrors.IsNotFound(err) || i.newer && !i.listed && apierrors.IsForbidden(err)
}

func newInformer[T Object](client rest.Interface, resource string, only metav1.ListOptions, trim func(T)) *Informer[T] {
	return &Informer[T]{
		about: resource, client: client, resource: resource, only: only, trim: trim,
		objects: make(map[string]map[string]T), synced: make(chan struct{}),
	}
}

// newInformerOfOne is an informer of one object, with which it calls set, at first and whenever
// that changes, and with nil while there is none.
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

// Handle adds handlers. It is for before the informer runs, and only a kind with
// handlers is watched.
func (i *Informer[T]) Handle(h Handlers[T]) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.handlers = append(i.handlers, h)
}

// HandleChanges adds one handler for objects that are set and for those that are gone.
func (i *Informer[T]) HandleChanges(changed func(T)) {
	i.Handle(Handlers[T]{Set: changed, Delete: changed})
}

// Synced is closed once the handlers have heard of all objects there were.
func (i *Informer[T]) Synced() <-chan struct{} { return i.synced }

// Get is the object with a [Key].
func (i *Informer[T]) Get(key string) (T, bool) {
	namespace, name := split(key)
	i.mu.RLock()
	defer i.mu.RUnlock()
	o, ok := i.objects[namespace][name]
	return o, ok
}

// In are the objects of a namespace at the time of the call, in no order.
func (i *Informer[T]) In(namespace string) iter.Seq[T] {
	i.mu.RLock()
	defer i.mu.RUnlock()
	return slices.Values(slices.Collect(maps.Values(i.objects[namespace])))
}

// All are the objects at the time of the call, in no order.
func (i *Informer[T]) All() iter.Seq[T] {
	i.mu.RLock()
	defer i.mu.RUnlock()
	var out []T
	for _, of := range i.objects {
		out = slices.AppendSeq(out, maps.Values(of))
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
			ctx, cancel := context.WithTimeout(ctx, listTimeout)
			defer cancel()
			if o.ResourceVersion == "0" {
				o.ResourceVersion = "" // as it is now, not as some server remembers it
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
			w, err := i.request(o).Watch(observed(ctx, &unanswered))
			if i.isAbsent(err) && o.SendInitialEvents == nil { // else a list follows
				w, err = absent(), nil
			}
			if err == nil && unanswered != nil { // which client-go takes for a watch that has ended
				w.Stop()
				err = unanswered
			}
			if o.SendInitialEvents == nil || !listFollows(err) {
				trouble.note(ctx, i.about, err)
			}
			return w, err
		},
	}
	quiet := logr.Discard() // trouble has its own words
	var kind T
	reflector := cache.NewReflectorWithOptions(lw, reflect.New(reflect.TypeOf(kind).Elem()).Interface(), (*sink[T])(i), cache.ReflectorOptions{
		Logger: &quiet, Name: i.about,
		// A server that is back is noticed within 1.5 s.
		Backoff: &wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 5, Cap: time.Second},
	})
	reflector.RunWithContext(logr.NewContext(ctx, quiet))
}

// listFollows reports whether client-go asks for a list after this end of a watch that was
// to begin with all objects, rather than for another such watch.
func listFollows(err error) bool {
	return err != nil && !utilnet.IsConnectionRefused(err) && !apierrors.IsTooManyRequests(err)
}

func (i *Informer[T]) request(o metav1.ListOptions) *rest.Request {
	o.LabelSelector, o.FieldSelector = i.only.LabelSelector, i.only.FieldSelector
	// The reflector tries again by itself, and sooner.
	return i.client.Get().MaxRetries(0).NamespaceIfScoped(i.namespace, i.namespace != "").Resource(i.resource).VersionedParams(&o, metav1.ParameterCodec)
}

// set stores an object, and tells the handlers if it is not what it was.
func (i *Informer[T]) set(o T) {
	was, known := i.Get(Key(o))
	changed := !known || !same(was, o)
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
	was, known := i.objects[namespace][name]
	if delete(i.objects[namespace], name); len(i.objects[namespace]) == 0 {
		delete(i.objects, namespace)
	}
	i.mu.Unlock()
	if !known {
		return
	}
	for _, h := range i.handlers {
		h.Delete(was)
	}
}

// same reports whether nothing has changed but the version. Nobody else has o yet.
func same[T Object](was, o T) bool {
	version := o.GetResourceVersion()
	o.SetResourceVersion(was.GetResourceVersion())
	defer o.SetResourceVersion(version)
	return reflect.DeepEqual(was, o)
}

// sink is the side of an informer that a reflector puts objects into.
type sink[T Object] Informer[T]

// Transformer has what is of no use dropped while a long list arrives.
func (s *sink[T]) Transformer() cache.TransformFunc {
	return func(o any) (any, error) {
		if t, ok := o.(T); ok {
			s.trim(t)
		}
		return o, nil
	}
}

// Add is for a new object.
func (s *sink[T]) Add(o any) error { return s.Update(o) }

// Update is for an object that has changed.
func (s *sink[T]) Update(o any) error {
	t, ok := o.(T)
	if !ok {
		return fmt.Errorf("the server sent a %T in place of %s", o, s.about)
	}
	s.trim(t)
	(*Informer[T])(s).set(t)
	return nil
}

// Delete is for an object that is gone.
func (s *sink[T]) Delete(o any) error {
	t, ok := o.(T)
	if !ok {
		return fmt.Errorf("the server sent a %T in place of %s", o, s.about)
	}
	(*Informer[T])(s).remove(Key(t))
	return nil
}

// Replace is for a list of all objects. Its order is that of their keys, so that
// a start is the same each time.
func (s *sink[T]) Replace(list []any, _ string) error {
	i := (*Informer[T])(s)
	there := make(map[string]T, len(list))
	for _, o := range list {
		t, ok := o.(T)
		if !ok {
			return fmt.Errorf("the server sent a %T in place of %s", o, s.about)
		}
		s.trim(t)
		there[Key(t)] = t
	}
	for gone := range i.All() {
		if _, still := there[Key(gone)]; !still {
			i.remove(Key(gone))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(there)) {
		i.set(there[key])
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

// Resync does nothing: there is no period after which all is told again.
func (s *sink[T]) Resync() error { return nil }
