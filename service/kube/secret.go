package kube

import (
	"context"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// WatchSecret calls set with one Secret, at first and after each change, until ctx
// ends. It calls set with nil while there is none. While the server is away it does
// not call set.
func (c *Cluster) WatchSecret(ctx context.Context, log *slog.Logger, namespace, name string, set func(*corev1.Secret)) {
	i := newInformerOfOne(c.core, "secrets", namespace, name, func(s *corev1.Secret) { trimMeta(&s.ObjectMeta) }, set)
	i.about = "Secret " + namespace + "/" + name
	i.run(ctx, c.trouble(log))
	c.said.replace(time.Now(), i.about, "") // end its trouble: no request follows
}
