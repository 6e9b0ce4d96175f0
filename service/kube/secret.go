package kube

import (
	"context"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// WatchSecret calls set with one Secret, at first and whenever it changes, and
// with nil while there is none, until ctx ends. A server that is away changes
// nothing.
func (c *Cluster) WatchSecret(ctx context.Context, log *slog.Logger, namespace, name string, set func(*corev1.Secret)) {
	i := newInformerOfOne(c.core, "secrets", namespace, name, func(s *corev1.Secret) { trimMeta(&s.ObjectMeta) }, set)
	i.about = "Secret " + namespace + "/" + name
	i.run(ctx, c.trouble(log))
	c.said.replace(time.Now(), i.about, "") // nobody asks any more
}
