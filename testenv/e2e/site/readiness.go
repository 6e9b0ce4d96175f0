//go:build e2e

package site

import (
	"context"
	"crypto/tls"
	"io"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/herald-vip/herald/testenv/lab"
)

// Readiness observes one apiserver's /readyz directly, independently of herald.
type Readiness struct {
	mu sync.Mutex
	// ready is when the first answer of 200 was complete.
	ready time.Time
	// lost is when the first other answer after that was complete.
	lost time.Time
	// status is the last answer's, 0 if there was none.
	status int
	// Alive reports other answers before.
	Alive bool
}

// ObserveReadiness probes the apiserver in the node's network every few milliseconds,
// until the test is over.
func ObserveReadiness(t *testing.T, n *lab.Node, client *tls.Config) *Readiness {
	t.Helper()
	const (
		pause   = 20 * time.Millisecond
		timeout = 10 * time.Second // the apiserver takes 4 s to detect a dead etcd
	)
	r := &Readiness{}
	transport := &http.Transport{DialContext: n.DialContext, TLSClientConfig: client}
	get := http.Client{Transport: transport, Timeout: timeout}
	Meanwhile(t, func(ctx context.Context) {
		defer transport.CloseIdleConnections()
		ticker := time.NewTicker(pause)
		defer ticker.Stop()
		for {
			r.note(Ask(ctx, &get, "https://127.0.0.1:6443/readyz"))
			select {
			case <-ticker.C:
			case <-ctx.Done():
				return
			}
		}
	})
	return r
}

// Ask returns the status of a whole answer, 0 if there is none.
func Ask(ctx context.Context, client *http.Client, url string) int {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return 0
	}
	return resp.StatusCode
}

func (r *Readiness) note(status int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status = status
	switch {
	case status == http.StatusOK:
		if r.ready.IsZero() {
			r.ready = time.Now()
		}
	case r.ready.IsZero():
		r.Alive = r.Alive || status != 0
	case r.lost.IsZero():
		r.lost = time.Now()
	}
}

// Seen returns when the apiserver was first ready, and when it first was not after
// that; zero if never. It also returns the status of the last answer, 0 if there was
// none.
func (r *Readiness) Seen() (ready, lost time.Time, status int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ready, r.lost, r.status
}
