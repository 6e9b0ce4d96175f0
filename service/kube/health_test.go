package kube_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/service/kube"
	"github.com/herald-vip/herald/testenv/wait"
)

// server is an API server without pools. It forbids listing pools until allowed.
func server(t *testing.T, allowed *atomic.Bool) (kubeconfig string) {
	t.Helper()
	return serverOf(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.URL.Path == "/version":
			fmt.Fprint(w, `{"major": "1", "minor": "33"}`)
		case !allowed.Load():
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprint(w, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "message": "no", "code": 403}`)
		case r.URL.Query().Get("watch") == "true":
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		default:
			fmt.Fprint(w, `{"kind": "AddressPoolList", "apiVersion": "herald.dev/v1alpha1", "metadata": {"resourceVersion": "1"}, "items": []}`)
		}
	})
}

// serverOf serves until the test ends.
func serverOf(t *testing.T, handle http.HandlerFunc) (kubeconfig string) {
	t.Helper()
	s := httptest.NewServer(handle)
	t.Cleanup(s.Close)
	return kubeconfigOf(t, s.URL)
}

func kubeconfigOf(t *testing.T, url string) (kubeconfig string) {
	t.Helper()
	kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`{"apiVersion": "v1", "kind": "Config", "current-context": "c",
		"clusters": [{"name": "c", "cluster": {"server": %q}}], "contexts": [{"name": "c", "context": {"cluster": "c"}}]}`, url)
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return kubeconfig
}

// Health reports failures while they last, and counts requests.
func TestHealth(t *testing.T) {
	var allowed atomic.Bool
	c, err := kube.Connect(server(t, &allowed), "test")
	if err != nil {
		t.Fatal(err)
	}
	if h := c.Health(); h.Troubles != nil || h.Requests != (kube.Requests{}) || !h.Answered.IsZero() {
		t.Errorf("before any request: %+v", h)
	}
	i := c.Informers(slog.New(slog.DiscardHandler))
	i.Pools.Handle(kube.Handlers[*v1alpha1.AddressPool]{Set: func(*v1alpha1.AddressPool) {}, Delete: func(*v1alpha1.AddressPool) {}})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { i.Run(ctx) })
	defer running.Wait()
	defer cancel()

	wait.Until(t, "Health reports the trouble", func() bool { return len(c.Health().Troubles) == 1 })
	first := c.Health().Troubles[0]
	if first.About != "addresspools" || !strings.HasPrefix(first.Reason, "the server forbids it: ") || time.Since(first.Since) > time.Minute {
		t.Errorf("trouble: %+v", first)
	}
	wait.Until(t, "the request is retried", func() bool { return c.Health().Requests.Failed > 1 })
	if again := c.Health().Troubles[0]; !again.Since.Equal(first.Since) {
		t.Errorf("the start of the trouble changed from %v to %v", first.Since, again.Since)
	}
	allowed.Store(true)
	wait.Until(t, "the pools are watched", func() bool { return c.Health().Requests.Watches > 0 && len(c.Health().Troubles) == 0 })
	if h := c.Health(); h.Requests.Writes != 0 || h.Requests.Reads < 2 || h.Answered.IsZero() {
		t.Errorf("in the end: %+v", h)
	}
}

// A balancer without a server behind it closes the connection. That must not count as the regular end of a watch.
func TestHangUpIsTrouble(t *testing.T) {
	c, err := kube.Connect(serverOf(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/version" {
			fmt.Fprint(w, `{"major": "1", "minor": "33"}`)
			return
		}
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		conn.Close()
	}), "test")
	if err != nil {
		t.Fatal(err)
	}
	i := c.Informers(slog.New(slog.DiscardHandler))
	i.Pools.Handle(kube.Handlers[*v1alpha1.AddressPool]{Set: func(*v1alpha1.AddressPool) {}, Delete: func(*v1alpha1.AddressPool) {}})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { i.Run(ctx) })
	defer running.Wait()
	defer cancel()
	wait.Until(t, "Health reports the trouble", func() bool { return len(c.Health().Troubles) == 1 })
	if got := c.Health().Troubles[0].Reason; got != "EOF" {
		t.Errorf("the reason is %q, want one without changing parts", got)
	}
	failed := c.Health().Requests.Failed
	wait.Until(t, "the trouble stays during retries", func() bool {
		if len(c.Health().Troubles) == 0 {
			t.Fatal("the trouble ended")
		}
		return c.Health().Requests.Failed > failed
	})
}

// Changing parts of an error must not cause a log line each time.
func TestReasonIsTheSameEachTime(t *testing.T) {
	s := httptest.NewServer(http.NotFoundHandler())
	url := s.URL
	s.Close()
	c, err := kube.Connect(kubeconfigOf(t, url), "test")
	if err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		c.WatchSecret(ctx, slog.New(slog.NewTextHandler(&log, nil)), "a", "b", func(*corev1.Secret) {})
	})
	wait.Until(t, "retries last long enough to be logged", func() bool {
		h := c.Health()
		return h.Requests.Failed > 4 && len(h.Troubles) == 1 && time.Since(h.Troubles[0].Since) > 6*time.Second
	})
	cancel()
	running.Wait()
	if said := log.String(); strings.Count(said, "\n") != 1 || !strings.Contains(said, "connection refused") || strings.Contains(said, "?") {
		t.Errorf("the log is:\n%s", said)
	}
	if left := c.Health().Troubles; len(left) > 0 {
		t.Errorf("obsolete trouble: %v", left)
	}
}
