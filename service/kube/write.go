package kube

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/herald-vip/herald/api/v1alpha1"
)

// WriteServiceStatus replaces the status of a Service. It returns the new version of the Service, trimmed like in the
// informers. It fails with a conflict if the Service no longer has the version read.
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

// WriteEvent creates an event, which servers keep for an hour by default. The caller must avoid repetitions.
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

const nodeStatuses = "nodestatuses"

// WatchNodeStatus calls set with the NodeStatus of a node, at first and after each change, until ctx ends. It calls set
// with nil while there is none.
func (c *Cluster) WatchNodeStatus(ctx context.Context, log *slog.Logger, node string, set func(*v1alpha1.NodeStatus)) {
	i := newInformerOfOne(c.herald, nodeStatuses, "", node, func(*v1alpha1.NodeStatus) {}, set)
	i.about, i.optional, i.newer = "NodeStatus "+node, true, true
	i.run(ctx, c.trouble(log))
}

// ApplyNodeStatus writes the NodeStatus of a node and replaces all fields of its status. [Cluster.Health] reports failures.
func (c *Cluster) ApplyNodeStatus(ctx context.Context, log *slog.Logger, s *v1alpha1.NodeStatus) error {
	err := c.Apply(ctx, v1alpha1.Group+"/node", s)
	c.trouble(log).note(ctx, nodeStatuses, err)
	return err
}

// NodeStatuses returns the reports of all nodes from the server's cache, which is cheap but may be stale.
func (c *Cluster) NodeStatuses(ctx context.Context) ([]v1alpha1.NodeStatus, error) {
	var list v1alpha1.NodeStatusList
	if err := c.herald.Get().Resource(nodeStatuses).Param("resourceVersion", "0").Do(ctx).Into(&list); err != nil {
		return nil, errors.New(explain(nodeStatuses, err))
	}
	return list.Items, nil
}

// kindOf returns the kind of an object and its name in paths.
func (c *Cluster) kindOf(o Object) (schema.GroupVersionKind, string) {
	kinds, _, err := c.scheme.ObjectKinds(o)
	if err != nil {
		panic(err) // a mistake in the program, found by its first test
	}
	return kinds[0], pluralOf(kinds[0].Kind)
}

// path returns the path segments of an object.
func (c *Cluster) path(o Object) []string {
	kind, resource := c.kindOf(o)
	at := []string{"/apis", kind.Group, kind.Version}
	if kind.Group == "" {
		at = []string{"/api", kind.Version}
	}
	if o.GetNamespace() != "" {
		at = append(at, "namespaces", o.GetNamespace())
	}
	return append(at, resource, o.GetName())
}

// Apply creates or updates an object with the fields of o (server-side apply, forced), as the field manager owner. It
// removes fields that owner no longer sets. Fields of other managers stay unless o sets them too. Apply stores the result in o.
func (c *Cluster) Apply(ctx context.Context, owner string, o Object) error {
	kind, _ := c.kindOf(o)
	o.GetObjectKind().SetGroupVersionKind(kind)
	body, err := json.Marshal(o)
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, answerTimeout)
		defer cancel()
		err = c.herald.Patch(types.ApplyPatchType).AbsPath(c.path(o)...).Param("fieldManager", owner).Param("force", "true").Body(body).Do(ctx).Into(o)
	}
	if err != nil {
		return fmt.Errorf("write %s %s: %w", kind.Kind, Key(o), err)
	}
	return nil
}

// Delete deletes an object if it still has the UID read. A missing object is not an error.
func (c *Cluster) Delete(ctx context.Context, read Object) error {
	kind, _ := c.kindOf(read)
	uid := read.GetUID()
	options, err := json.Marshal(metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	if err == nil {
		err = c.send(ctx, c.herald.Delete().AbsPath(c.path(read)...).SetHeader("Content-Type", runtime.ContentTypeJSON).Body(options))
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete %s %s: %w", kind.Kind, Key(read), err)
	}
	return nil
}

// send sends a request with a JSON body and ignores the content of the answer.
func (c *Cluster) send(ctx context.Context, r *rest.Request) error {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	return r.Do(ctx).Error()
}

// patch sends a patch, and stores the changed object in now unless that is nil.
func patch(ctx context.Context, client rest.Interface, kind types.PatchType, path []string, body any, now runtime.Object) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	answer := client.Patch(kind).AbsPath(path...).Body(text).Do(ctx)
	if now == nil {
		return answer.Error()
	}
	return answer.Into(now)
}

// Annotate sets an annotation of a Service that still has the version read; an empty value removes the annotation.
func (c *Cluster) Annotate(ctx context.Context, read *corev1.Service, name, value string) error {
	set := any(value)
	if value == "" {
		set = nil
	}
	err := patch(ctx, c.core, types.MergePatchType, c.path(read), map[string]any{"metadata": map[string]any{
		"uid": read.UID, "resourceVersion": read.ResourceVersion, "annotations": map[string]any{name: set},
	}}, nil)
	if err != nil {
		return fmt.Errorf("annotate Service %s: %w", Key(read), err)
	}
	return nil
}

// Refuses reports whether err is a refusal by the server: by RBAC, a policy or a quota, or because the object is
// invalid.
func Refuses(err error) bool { return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) }

// Refusal returns the server's or policy's own sentence of a refusal, without the prefixes.
func Refusal(err error) string {
	text := err.Error()
	for _, before := range []string{" is forbidden: ", " is invalid: ", "denied request: "} {
		if _, after, ok := strings.Cut(text, before); ok {
			text = after
		}
	}
	return text
}
