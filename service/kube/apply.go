package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

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
