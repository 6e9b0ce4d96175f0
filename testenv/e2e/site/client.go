//go:build e2e

package site

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/herald-vip/herald/internal/probe"
	"github.com/herald-vip/herald/internal/wake"
	"github.com/herald-vip/herald/testenv/e2e/witness"
	"github.com/herald-vip/herald/testenv/lab"
)

// Client repeatedly opens connections to one or several addresses.
type Client struct {
	// End ends the client before the test is over.
	End      func()
	witness  *witness.Witness
	mu       sync.Mutex
	attempts []Attempt
}

// Attempt is a completed attempt to connect.
type Attempt struct {
	probe.Attempt
	At time.Time // of its start
}

func (a Attempt) String() string { return fmt.Sprintf("%v at %s", a.Outcome, a.At.Format("05.000")) }

// Connect makes probers connect until the end of the test.
func Connect(t *testing.T, probers ...*probe.Prober) *Client {
	t.Helper()
	c := &Client{witness: StartWitness(t)}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	for _, p := range probers {
		began := sync.OnceValue(func() time.Time { return p.Snapshot().Began })
		p.Keep = -1
		p.OnEvent = func(e probe.Event) {
			if !e.Attempt.Outcome.Inconclusive() {
				c.mu.Lock()
				defer c.mu.Unlock()
				c.attempts = append(c.attempts, Attempt{e.Attempt, began().Add(e.Attempt.Start)})
			}
		}
		running.Go(func() {
			if _, err := p.Run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	c.End = sync.OnceFunc(func() { cancel(); running.Wait() })
	t.Cleanup(c.End)
	return c
}

// Since returns the attempts that began after an instant, each prober's in order.
func (c *Client) Since(at time.Time) []Attempt {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(c.attempts), func(a Attempt) bool { return a.At.Before(at) })
}

// Failed returns the failed ones of these.
func (c *Client) Failed(since time.Time) []Attempt {
	return slices.DeleteFunc(c.Since(since), func(a Attempt) bool { return !a.Outcome.Failed() })
}

// GoesOn waits until that many further attempts have begun and ended.
func (c *Client) GoesOn(t *testing.T, many int) {
	t.Helper()
	now := time.Now()
	Eventually(t, Soon, func() error {
		n := len(c.Since(now))
		return ErrorIf(n < many, "%d connections were tried, want %d", n, many)
	})
}

// Starved describes how the machine has starved its processes since an instant, empty if it has
// not.
func (c *Client) Starved(since time.Time) string { return c.witness.Starved(since) }

// None checks that no connection has failed since an instant, out of ten at least.
func (c *Client) None(t *testing.T, since time.Time) {
	t.Helper()
	c.Few(t, since, 0)
}

// Few checks that at most this many connections have failed.
func (c *Client) Few(t *testing.T, since time.Time, most int) {
	t.Helper()
	all, failed := c.Since(since), c.Failed(since)
	if len(failed) > most || len(all) < 10 {
		FailTiming(t, c.Starved(since), "of %d connections %d failed: %v", len(all), len(failed), failed)
	}
}

// Connect connects to both addresses of the VIP from c1 until the end of the test.
func (f *Flat) Connect(t *testing.T) *Client {
	t.Helper()
	var probers []*probe.Prober
	for _, vip := range f.Vips() {
		probers = append(probers, &probe.Prober{
			Target: net.JoinHostPort(vip.String(), "6443"), Dial: f.Node("c1").DialContext,
			// For a busy machine.
			Interval: 10 * time.Millisecond, Timeout: 500 * time.Millisecond,
		})
	}
	return Connect(t, probers...)
}

// Conn is a connection to a stub server that stays open.
type Conn struct {
	net.Conn
	Server  string // its name
	answers *bufio.Reader
}

// Open opens a connection from a node.
func Open(ctx context.Context, n *lab.Node, address string) (*Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	conn, err := n.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	c := &Conn{Conn: conn, answers: bufio.NewReader(conn)}
	if c.Server, err = c.Ask(); err != nil { // immediately: a server closes silent connections
		return nil, errors.Join(err, conn.Close())
	}
	return c, nil
}

// Ask asks the server for its name.
func (c *Conn) Ask() (string, error) {
	const patience = 30 * time.Second           // TCP's timeout; most losses are immediate resets
	_ = c.SetDeadline(time.Now().Add(patience)) // a write reports a closed connection
	if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: vip\r\n\r\n"); err != nil {
		return "", err
	}
	answer, err := http.ReadResponse(c.answers, nil)
	if err != nil {
		return "", err
	}
	return answer.Header.Get("X-Served-By"), answer.Body.Close()
}

// Servers counts connections by server.
func Servers(conns []*Conn) map[string]int {
	servers := make(map[string]int)
	for _, c := range conns {
		servers[c.Server]++
	}
	return servers
}

// Readiness observes one apiserver's /readyz directly, independently of herald.
type Readiness struct {
	mu sync.Mutex
	// ready is when the first answer of 200 was complete.
	ready time.Time
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
		for wake.Pause(ctx, pause) {
			r.note(Ask(ctx, &get, "https://127.0.0.1:6443/readyz"))
		}
	})
	return r
}

// HTTPClient returns a client in a node, which makes a connection for each request, by TLS for
// https.
func HTTPClient(n *lab.Node, config *tls.Config) *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: n.DialContext, TLSClientConfig: config, DisableKeepAlives: true}, Timeout: 10 * time.Second}
}

// Fetch returns the status and the text of the answer to a client in a node.
func Fetch(t *testing.T, n *lab.Node, url string) (status int, text string) {
	t.Helper()
	response := Get[*http.Response](t)(HTTPClient(n, nil).Get(url))
	defer response.Body.Close()
	return response.StatusCode, string(Get[[]byte](t)(io.ReadAll(response.Body)))
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
	}
}

// Seen returns when the apiserver was first ready, zero if never, and the status of the
// last answer, 0 if there was none.
func (r *Readiness) Seen() (ready time.Time, status int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ready, r.status
}
