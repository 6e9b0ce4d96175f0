package kube

import (
	"context"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
)

// WatchSecret calls set with one Secret, at first and whenever it changes, and
// with nil while there is none, until ctx ends. A server that is away changes
// nothing.
func (c *Cluster) WatchSecret(ctx context.Context, log *slog.Logger, namespace, name string, set func(*corev1.Secret)) {
	i := newInformer(c.core, "secrets", metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, name).String(),
	}, func(s *corev1.Secret) { trimMeta(&s.ObjectMeta) })
	i.namespace, i.about = namespace, "Secret "+namespace+"/"+name
	found := false
	i.Handle(Handlers[*corev1.Secret]{
		Set:    func(s *corev1.Secret) { found = true; set(s) },
		Delete: func(*corev1.Secret) { set(nil) },
		Listed: func() {
			if !found {
				set(nil)
			}
		},
	})
	i.run(ctx, c.trouble(log))
	c.said.replace(time.Now(), i.about, "") // nobody asks any more
}
