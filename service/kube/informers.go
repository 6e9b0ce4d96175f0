package kube

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/herald-vip/herald/api/v1alpha1"
)

// Informers cache the objects of all kinds that have handlers.
type Informers struct {
	// Services have their labels, owners, specification and status, and the annotations that Herald reads. Services
	// that neither are of type LoadBalancer nor have such an address keep only the type.
	Services *Informer[*corev1.Service]
	// Slices have the conditions and nodes of endpoints, and the name of their
	// Service. Slices of headless Services are omitted.
	Slices *Informer[*discoveryv1.EndpointSlice]
	// Nodes have their labels, addresses, taints and Unschedulable, and the conditions
	// NetworkUnavailable if it is true and Ready if it is not.
	Nodes *Informer[*corev1.Node]
	// Namespaces have their labels.
	Namespaces *Informer[*corev1.Namespace]
	Pools      *Informer[*v1alpha1.AddressPool]
	Peers      *Informer[*v1alpha1.BGPPeer]
	// NodeStatuses have the nodes' reports about addresses of Services. A server need not have the kind.
	NodeStatuses *Informer[*v1alpha1.NodeStatus]
	group
}

// Informers returns informers. They are empty until they run.
func (c *Cluster) Informers(log *slog.Logger) *Informers {
	i := &Informers{
		Services:   newInformer(c.core, "services", metav1.ListOptions{}, trimService),
		Slices:     newInformer(c.discovery, "endpointslices", metav1.ListOptions{LabelSelector: "!" + corev1.IsHeadlessService}, trimSlice),
		Nodes:      newInformer(c.core, "nodes", metav1.ListOptions{}, trimNode),
		Namespaces: newInformer(c.core, "namespaces", metav1.ListOptions{}, trimNamespace),
		Pools:      newInformer(c.herald, "addresspools", metav1.ListOptions{}, func(p *v1alpha1.AddressPool) { trimMeta(&p.ObjectMeta) }),
		Peers:      newInformer(c.herald, "bgppeers", metav1.ListOptions{}, func(p *v1alpha1.BGPPeer) { trimMeta(&p.ObjectMeta) }),
	}
	i.NodeStatuses = newInformer(c.herald, nodeStatuses, metav1.ListOptions{}, func(s *v1alpha1.NodeStatus) {
		trimMeta(&s.ObjectMeta)
		s.Status = v1alpha1.NodeState{Services: s.Status.Services}
	})
	i.NodeStatuses.about, i.NodeStatuses.optional, i.NodeStatuses.newer = "NodeStatuses", true, true
	i.group = c.group(log, i.Services, i.Slices, i.Nodes, i.Namespaces, i.Pools, i.Peers, i.NodeStatuses)
	return i
}

// group is a set of informers that run together.
type group struct {
	log     *slog.Logger
	cluster *Cluster
	kinds   []informer
	synced  chan struct{}
}

func (c *Cluster) group(log *slog.Logger, kinds ...informer) group {
	return group{log: log, cluster: c, kinds: kinds, synced: make(chan struct{})}
}

// Synced is closed once all handlers have received all objects of the first lists.
func (g *group) Synced() <-chan struct{} { return g.synced }

// Run keeps the objects of all handled kinds current until ctx ends, and retries while
// the server is away. It calls no handler after it has returned.
func (g *group) Run(ctx context.Context) {
	trouble := g.cluster.trouble(g.log)
	if !g.cluster.awaitVersion(ctx, trouble) {
		return
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	var wanted []informer
	for _, kind := range g.kinds {
		if kind.handled() {
			wanted = append(wanted, kind)
			wg.Go(func() { kind.run(ctx, trouble) })
		}
	}
	for _, kind := range wanted {
		select {
		case <-kind.Synced():
		case <-ctx.Done():
			return
		}
	}
	close(g.synced)
	<-ctx.Done()
}

// informer is an [Informer] of any kind.
type informer interface {
	handled() bool
	run(context.Context, *trouble)
	Synced() <-chan struct{}
}

// UnstructuredInformers cache objects of kinds without Go types, by kind. Without the kind on the server there are no objects.
type UnstructuredInformers map[string]*Informer[*unstructured.Unstructured]

// unstructured returns informers of the objects that only selects.
func (c *Cluster) unstructured(kinds []schema.GroupVersionKind, only metav1.ListOptions) (UnstructuredInformers, []informer) {
	out := make(UnstructuredInformers)
	var all []informer
	for _, kind := range kinds {
		i := c.unstructuredOf(kind, only)
		i.optional = true
		out[kind.Kind], all = i, append(all, i)
	}
	return out, all
}

func (c *Cluster) unstructuredOf(kind schema.GroupVersionKind, only metav1.ListOptions) *Informer[*unstructured.Unstructured] {
	return newInformer(c.untyped(kind.GroupVersion()), pluralOf(kind.Kind), only, func(o *unstructured.Unstructured) {
		o.SetGroupVersionKind(kind) // items of a list lack it
		if m, ok := o.Object["metadata"].(map[string]any); ok {
			delete(m, "managedFields")
		}
	})
}

// untyped returns a client for objects of a group without Go types.
func (c *Cluster) untyped(group schema.GroupVersion) rest.Interface {
	config := dynamic.ConfigFor(c.config)
	config.GroupVersion, config.APIPath = &group, "/apis"
	client, err := rest.RESTClientForConfigAndClient(config, c.web)
	if err != nil {
		panic(err) // impossible: the other clients have the same configuration
	}
	return client
}

// pluralOf returns the name of a kind in paths: its plural in lower case. TenantNodes is a plural already.
func pluralOf(kind string) string {
	resource := strings.ToLower(kind)
	if strings.HasSuffix(resource, "ss") || strings.HasSuffix(resource, "us") {
		return resource + "es"
	}
	return strings.TrimSuffix(resource, "s") + "s"
}

// absent returns a watch without events, for a kind that the server does not have. It ends after a while, so that the
// reflector checks again.
func absent() watch.Interface {
	idle := watch.NewFake()
	time.AfterFunc(15*time.Second, idle.Stop)
	return idle
}

// Secret returns a Secret; nil if there is none.
func (c *Cluster) Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	s := new(corev1.Secret)
	err := c.core.Get().Namespace(namespace).Resource("secrets").Name(name).Do(ctx).Into(s)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read Secret %s/%s: %w", namespace, name, err)
	}
	return s, nil
}
