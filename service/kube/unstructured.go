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

// UnstructuredInformers know objects of kinds that this program has no types of, by kind. A server need not have the kinds: then there are no objects.
type UnstructuredInformers map[string]*Informer[*unstructured.Unstructured]

// unstructured prepares them, of objects with some labels.
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
		o.SetGroupVersionKind(kind) // which the items of a list do not have
		if m, ok := o.Object["metadata"].(map[string]any); ok {
			delete(m, "managedFields")
		}
	})
}

// untyped is a client for objects of a group without types.
func (c *Cluster) untyped(group schema.GroupVersion) rest.Interface {
	config := dynamic.ConfigFor(c.config)
	config.GroupVersion, config.APIPath = &group, "/apis"
	client, err := rest.RESTClientForConfigAndClient(config, c.web)
	if err != nil {
		panic(err) // the same configuration has made the other clients
	}
	return client
}

// pluralOf is the name of a kind in paths: in small letters and the plural, which TenantNodes is.
func pluralOf(kind string) string {
	resource := strings.ToLower(kind)
	if strings.HasSuffix(resource, "ss") || strings.HasSuffix(resource, "us") {
		return resource + "es"
	}
	return strings.TrimSuffix(resource, "s") + "s"
}

// absentAgain is the time between two questions whether a server has a kind by now.
const absentAgain = 15 * time.Second

// absent is a watch of a kind that the server does not have, which ends after a while.
func absent() watch.Interface {
	idle := watch.NewFake()
	time.AfterFunc(absentAgain, idle.Stop)
	return idle
}

// WriteStatus replaces fields of the status of an object. It fails with a conflict if the object is not the version that was read any more.
func (c *Cluster) WriteStatus(ctx context.Context, read *unstructured.Unstructured, status map[string]any) error {
	kind := read.GroupVersionKind()
	return writeStatus(ctx, c.untyped(kind.GroupVersion()), pluralOf(kind.Kind), read, status, new(unstructured.Unstructured))
}

// Secret is one Secret, nil if there is none.
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
