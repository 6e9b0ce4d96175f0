package kube

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/herald-vip/herald/testenv/wait"
)

// Health reports failures while they last, and counts requests.
func TestHealth(t *testing.T) {
	s, c := newStub(t, "36")
	s.refuse[poolsAt] = http.StatusForbidden
	if h := c.Health(); h.Troubles != nil || h.Requests != (Requests{}) || !h.Answered.IsZero() {
		t.Errorf("before any request: %+v", h)
	}
	i := c.Informers(slog.New(slog.DiscardHandler))
	i.Pools.Handle((&ear{}).handlers())
	wait.Go(t, i.Run)

	wait.Until(t, "Health reports the trouble", func() bool { return len(c.Health().Troubles) == 1 })
	first := c.Health().Troubles[0]
	if first.About != "addresspools" || !strings.HasPrefix(first.Reason, "the server forbids it: ") || time.Since(first.Since) > time.Minute {
		t.Errorf("trouble: %+v", first)
	}
	wait.Until(t, "the request is retried", func() bool { return c.Health().Requests.Failed > 1 })
	if again := c.Health().Troubles[0]; !again.Since.Equal(first.Since) {
		t.Errorf("the start of the trouble changed from %v to %v", first.Since, again.Since)
	}
	s.set(func() { delete(s.refuse, poolsAt) })
	wait.Until(t, "the pools are watched", func() bool { return c.Health().Requests.Watches > 0 && len(c.Health().Troubles) == 0 })
	if h := c.Health(); h.Requests.Writes != 0 || h.Requests.Reads < 2 || h.Answered.IsZero() {
		t.Errorf("in the end: %+v", h)
	}
}

// A balancer without a server behind it closes the connection. That must not count as the regular end of a watch.
func TestHangUpIsTrouble(t *testing.T) {
	s, c := newStub(t, "36")
	s.refuse[poolsAt] = hangUp
	i := c.Informers(slog.New(slog.DiscardHandler))
	i.Pools.Handle((&ear{}).handlers())
	wait.Go(t, i.Run)
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
	s, c := newStub(t, "36")
	s.http.Close()
	var log strings.Builder
	stop := wait.Go(t, func(ctx context.Context) {
		c.WatchSecret(ctx, slog.New(slog.NewTextHandler(&log, nil)), "a", "b", func(*corev1.Secret) {})
	})
	wait.Until(t, "retries last long enough to be logged", func() bool {
		h := c.Health()
		return h.Requests.Failed > 4 && len(h.Troubles) == 1 && time.Since(h.Troubles[0].Since) > 6*time.Second
	})
	stop()
	if said := log.String(); strings.Count(said, "\n") != 1 || !strings.Contains(said, "connection refused") || strings.Contains(said, "?") {
		t.Errorf("the log is:\n%s", said)
	}
	if left := c.Health().Troubles; len(left) > 0 {
		t.Errorf("obsolete trouble: %v", left)
	}
}
