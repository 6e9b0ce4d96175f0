//go:build e2e

package controlplane

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/herald-vip/herald/testenv/e2e/site"
)

// testEstablished makes clients watch namespaces of real apiservers through the VIP,
// while another master starts to announce it and a third is drained. No watch ends,
// although routers move many to another master. A drain ends when the last watch does.
func (c *controlPlane) testEstablished(t *testing.T) {
	comes, goes := c.Masters[2], c.Masters[0]
	site.MustRun(t, comes.Speaker(), "herald", "drain")
	c.Announces(t, c.Others(comes)...)
	n := 150
	if site.Nightly() {
		n = 1000
	}
	w := c.watch(t, n)
	w.see(t, "all-begin")
	site.MustRun(t, comes.Speaker(), "herald", "undrain")
	c.Announces(t, c.Masters...)
	w.see(t, "another-announces")

	drained := make(chan error, 1)
	go func() {
		_, err := goes.Speaker().Run(t.Context(), "herald", "drain", "--deadline", "1h")
		drained <- err
	}()
	site.Eventually(t, site.Soon, func() error {
		return errors.Join(site.LeadsTo(c.Routers[0], c.Others(goes)...), site.LeadsTo(c.Routers[1], c.Others(goes)...))
	})
	w.see(t, "one-is-drained")
	passed, answered := counts(t, c.Cluster)
	if passed == 0 {
		t.Error("no packet was forwarded: the test does not prove that routers move connections")
	}
	select {
	case err := <-drained:
		t.Errorf("the drain ended with connections left, %v", err)
	default:
	}
	w.end()
	site.Must(t, <-drained) // long before its deadline
	t.Logf("%d watches: none ended; %d packets forwarded, %d answered", n, passed, answered)
	site.MustRun(t, goes.Speaker(), "herald", "undrain")
	c.Announces(t, c.Masters...)
	acquainted(t, c.Cluster)
}

// counts returns how many packets the masters have forwarded, and answered without an owner.
func counts(t *testing.T, c *site.Cluster) (passed, answered uint64) {
	t.Helper()
	for _, m := range c.Masters {
		status, err := m.Status(t)
		site.Must(t, err)
		if p := status.Passing; p != nil {
			passed, answered = passed+p.Passed, answered+p.Answered
		}
	}
	return passed, answered
}

// watches are watches of namespaces.
type watches struct {
	*controlPlane
	admin *tls.Config
	end   func()

	mu   sync.Mutex
	lost []error
	seen map[string]int // number of watches that have seen the namespace
	n    int
}

// watch begins n watches from behind r1.
func (c *controlPlane) watch(t *testing.T, n int) *watches {
	t.Helper()
	w := &watches{controlPlane: c, admin: c.pki.Client(t), seen: make(map[string]int), n: n}
	w.admin.Certificates = []tls.Certificate{c.pki.Pair(t, "admin")}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	w.end = sync.OnceFunc(func() { cancel(); running.Wait() })
	t.Cleanup(w.end)
	for range n {
		running.Go(func() {
			err := w.follow(ctx)
			w.mu.Lock()
			defer w.mu.Unlock()
			if ctx.Err() == nil {
				w.lost = append(w.lost, err)
			}
		})
	}
	return w
}

// follow runs one watch on its own connection, until it ends.
func (w *watches) follow(ctx context.Context) error {
	get, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+net.JoinHostPort(site.VIP4, fmt.Sprint(apiPort))+"/api/v1/namespaces?watch=true", nil)
	if err != nil {
		return err
	}
	transport := &http.Transport{DialContext: w.Node("client").DialContext, TLSClientConfig: w.admin, DisableKeepAlives: true}
	answer, err := transport.RoundTrip(get)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	for events := json.NewDecoder(answer.Body); ; {
		var event struct {
			Type   string
			Object struct{ Metadata struct{ Name string } }
		}
		if err := events.Decode(&event); err != nil {
			return err
		}
		if event.Type == "ADDED" {
			w.mu.Lock()
			w.seen[event.Object.Metadata.Name]++
			w.mu.Unlock()
		}
	}
}

// see creates a namespace at each apiserver for all watches to see, and then another:
// the answers to the first have reached the routers' current next hops by then.
func (w *watches) see(t *testing.T, name string) {
	t.Helper()
	for _, name := range []string{name, name + "-again"} {
		for _, m := range w.Masters {
			client := http.Client{Transport: &http.Transport{DialContext: w.Node("client").DialContext, TLSClientConfig: w.admin, DisableKeepAlives: true}}
			at := net.JoinHostPort(m.Hop(w.Routers[0], site.VIP4).String(), fmt.Sprint(apiPort))
			answer, err := client.Post("https://"+at+"/api/v1/namespaces", "application/json",
				strings.NewReader(fmt.Sprintf(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":%q}}`, name)))
			site.Must(t, err)
			site.Must(t, answer.Body.Close())
			if answer.StatusCode != http.StatusCreated {
				t.Fatalf("%s answers %s", m, answer.Status)
			}
		}
		site.Eventually(t, site.Soon, func() error {
			w.mu.Lock()
			defer w.mu.Unlock()
			return site.ErrorIf(w.seen[name] < w.n, "%d of %d watches have seen %s; %v have ended", w.seen[name], w.n, name, w.lost)
		})
	}
}
