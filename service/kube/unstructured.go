package kube

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

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

// absentAgain is the interval of checks whether a server has gained a kind.
const absentAgain = 15 * time.Second

// absent returns a watch without events, for a kind that the server does not have. It ends after [absentAgain].
func absent() watch.Interface {
	idle := watch.NewFake()
	time.AfterFunc(absentAgain, idle.Stop)
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
