//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/herald-vip/herald/kube"
)

// heard is what handlers were told, in order.
type heard struct {
	mu   sync.Mutex
	said []string
}

func (h *heard) add(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.said = append(h.said, fmt.Sprintf(format, args...))
}

func (h *heard) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.said)
}

// TestInformers follows Services of a real server through its absence.
func TestInformers(t *testing.T) {
	k := newKubeServer(t)
	service := func(name string) []byte {
		return fmt.Appendf(nil, "{apiVersion: v1, kind: Service, metadata: {name: %s, annotations: {a: b, herald.dev/pool: p}}, spec: {type: LoadBalancer, ports: [{port: 80}]}}", name)
	}
	const services = "/api/v1/namespaces/default/services"
	k.do(t, http.MethodPost, services, service("a"), nil)
	k.do(t, http.MethodPost, services, service("b"), nil)

	i := k.connect(t).Informers(testLog(t))
	var h heard
	i.Services.Handle(kube.Handlers[*corev1.Service]{
		Set:    func(s *corev1.Service) { h.add("set %s %v", kube.Key(s), s.Annotations) },
		Delete: func(s *corev1.Service) { h.add("delete %s", kube.Key(s)) },
	})
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { i.Run(ctx) })
	defer wg.Wait()
	defer cancel()
	<-i.Synced()
	t.Log(h.said)
	k.stopServer(t)
	before := h.count()
	k.startServer(t)
	k.do(t, http.MethodPost, services, service("c"), nil)
	k.do(t, http.MethodDelete, services+"/a", nil, nil)
	eventually(t, soon, func() error {
		if h.count() < before+2 {
			return fmt.Errorf("heard %d", h.count())
		}
		return nil
	})
	t.Log(h.said)
}
