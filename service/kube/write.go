package kube

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/herald-vip/herald/api/v1alpha1"
)

// WriteServiceStatus replaces the status of a Service. It returns the new version of
// the Service, trimmed like in the informers. It fails with a conflict if the Service no
// longer has the version read.
func (c *Cluster) WriteServiceStatus(ctx context.Context, read *corev1.Service, s corev1.ServiceStatus) (*corev1.Service, error) {
	now := new(corev1.Service)
	// Lists that a merge patch omits stay unchanged, so nil must be written.
	err := c.writeStatus(ctx, c.core, read, map[string]any{
		"loadBalancer": map[string]any{"ingress": s.LoadBalancer.Ingress}, "conditions": s.Conditions,
	}, now)
	if err != nil {
		return nil, err
	}
	trimService(now)
	return now, nil
}

// WriteStatus replaces the status of an object, or the fields of it that a map has. It fails with a conflict if the object
// no longer has the version read.
func (c *Cluster) WriteStatus(ctx context.Context, read Object, status any) error {
	fields, partial := status.(map[string]any)
	if !partial { // Fields that a merge patch omits stay unchanged, so all are written.
		fields = make(map[string]any)
		for f, value := range reflect.ValueOf(status).Fields() {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			fields[name] = value.Interface()
		}
	}
	return c.writeStatus(ctx, c.herald, read, fields, nil)
}

// writeStatus merges fields into the status of an object that still has the version read.
func (c *Cluster) writeStatus(ctx context.Context, client rest.Interface, read Object, fields map[string]any, now runtime.Object) error {
	err := patch(ctx, client, types.MergePatchType, append(c.path(read), "status"), map[string]any{
		"metadata": map[string]any{"uid": read.GetUID(), "resourceVersion": read.GetResourceVersion()}, "status": fields,
	}, now)
	if err != nil {
		return fmt.Errorf("write the status of %s: %w", Key(read), err)
	}
	return nil
}

// Event is an event about an object.
type Event struct {
	// About is the object, of Kind and APIVersion.
	About            metav1.Object
	Kind, APIVersion string
	// Type is [corev1.EventTypeNormal] or [corev1.EventTypeWarning].
	Type string
	// Reason is one word in CamelCase, Message a sentence.
	Reason, Message string
	// Reporter is the node name of the Herald instance that reports it.
	Reporter string
}

// WriteEvent creates an event, which servers keep for an hour by default. The caller
// must avoid repetitions.
func (c *Cluster) WriteEvent(ctx context.Context, e Event) error {
	now := metav1.Now()
	namespace := cmp.Or(e.About.GetNamespace(), metav1.NamespaceDefault) // as Kubernetes does for objects without a namespace
	event := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: e.About.GetName() + "."},
		InvolvedObject: corev1.ObjectReference{
			Kind: e.Kind, APIVersion: e.APIVersion, Namespace: e.About.GetNamespace(), Name: e.About.GetName(), UID: e.About.GetUID(),
		},
		Type: e.Type, Reason: e.Reason, Message: e.Message, Count: 1, FirstTimestamp: now, LastTimestamp: now,
		Source:              corev1.EventSource{Component: "herald", Host: e.Reporter},
		ReportingController: v1alpha1.Group + "/herald", ReportingInstance: e.Reporter,
	}
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	if err := c.core.Post().Namespace(namespace).Resource("events").Body(event).Do(ctx).Error(); err != nil {
		return fmt.Errorf("write an event about %s: %w", Key(e.About), err)
	}
	return nil
}
