package daemon_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/herald-vip/herald/status/admin"
	"github.com/herald-vip/herald/testenv/must"
	"github.com/herald-vip/herald/testenv/wait"
)

// masterConfig is of a master without a VIP: it has a vote, and tells others what its check says.
const masterConfig = `apiVersion: herald.dev/v1alpha1
kind: Speaker
nodeName: m1
checks:
- name: apiserver
  http: {url: "http://127.0.0.1:6443/readyz"}
  interval: 20ms
election:
  members: {m1: "10.4.0.1:7946"}
  keyFile: DIR/gossip.key
admin: {socket: DIR/herald.sock}
metrics: {listen: "127.0.0.1:9474"}
`

// workerConfig is of another node that has neither, and a balancer for its own clients.
const workerConfig = `apiVersion: herald.dev/v1alpha1
kind: Speaker
nodeName: w1
loadBalancer: {type: internal}
balancers:
- name: api
  listen: [{address: "127.0.0.1:9443"}]
  backends: {members: {port: 6443, checks: [apiserver]}}
  mode: MODE
election:
  bind: 10.4.0.2:7946
  members: {m1: "10.4.0.1:7946"}
  keyFile: DIR/gossip.key
admin: {socket: DIR/herald.sock}
metrics: {listen: "127.0.0.1:9474"}
`

// worker is a node without a vote and a VIP.
type worker struct {
	*node
	mode string
}

// write writes the worker's file, with changes to it.
func (w *worker) write(changes ...string) {
	w.t.Helper()
	w.node.write(strings.NewReplacer(append(changes, "MODE", w.mode)...).Replace(workerConfig))
}

// await waits until the worker is ready with reason why, or is not.
func (w *worker) await(ready bool, why string) {
	w.t.Helper()
	w.awaitStatus(fmt.Sprintf("ready is %t: %s", ready, why), func(s admin.Status) bool {
		got, because := s.Ready()
		return got == ready && strings.Contains(because, why)
	})
}

// client makes requests from the node, over a single connection if it keeps it.
func (n *node) client(keep bool) *http.Client {
	transport := &http.Transport{DisableKeepAlives: !keep, DialContext: func(ctx context.Context, network, address string) (conn net.Conn, err error) {
		n.in(func() error {
			conn, err = new(net.Dialer).DialContext(ctx, network, address)
			return nil
		})
		return conn, err
	}}
	n.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: 20 * time.Second} // a caller that wants a success tries again
}

// get is the answer to a GET, or why there is none.
func get(t *testing.T, c *http.Client, url string) (code int, body string) {
	t.Helper()
	resp, err := c.Get(url)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, strings.TrimSpace(string(b))
}

func (n *node) awaitGet(c *http.Client, url string, want int) {
	n.t.Helper()
	wait.Until(n.t, fmt.Sprintf("%s answers %d", url, want), func() bool {
		code, _ := get(n.t, c, url)
		return code == want
	})
}

const (
	balanced = "http://127.0.0.1:9443/readyz"
	healthz  = "http://127.0.0.1:9474/healthz/"
)

// A worker learns of masters from their advertisements, and keeps established connections until their backend dies.
func TestWorker(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			n, w := newNode(t), &worker{newNode(t), mode}
			n.addLink("eth0", "10.4.0.1/24")
			n.giveEnd("eth0", w.node, "10.4.0.2/24")
			n.serve("10.4.0.1:6443")
			for _, dir := range []string{n.dir, w.dir} {
				n.writeFile(filepath.Join(dir, "gossip.key"), base64.StdEncoding.EncodeToString(make([]byte, 32)))
			}
			n.write(masterConfig)
			w.write()
			once, kept, onMaster := w.client(false), w.client(true), n.client(false)

			h := w.start()
			w.await(false, "election: no packet from a voter yet")
			master := n.start()
			w.await(true, "balancing")
			w.awaitGet(once, balanced, http.StatusOK)
			w.awaitGet(kept, balanced, http.StatusOK)
			s, err := w.status()
			if err != nil || len(s.Balancers) != 1 || len(s.Balancers[0].Backends) != 1 {
				t.Fatalf("status %+v, %v", s.Balancers, err)
			}
			if b := s.Balancers[0].Backends[0]; b.Name != "m1" || b.Addr.String() != "10.4.0.1:6443" || b.Connections == 0 {
				t.Errorf("the backend is %+v", b)
			}
			if o := s.Election.Offers; len(o) != 1 || o[0].Member != "m1" || !o[0].Checks["apiserver"] {
				t.Errorf("offers are %+v", o)
			}
			for _, ask := range []struct {
				subject *http.Client
				name    string
				want    int
			}{{once, "api", http.StatusOK}, {onMaster, "apiserver", http.StatusOK}, {once, "apiserver", http.StatusNotFound}} {
				if code, body := get(t, ask.subject, healthz+ask.name); code != ask.want {
					t.Errorf("%s: %d %s", ask.name, code, body)
				}
			}

			wait.Until(t, "the worker remembers the master", func() bool {
				b, err := os.ReadFile(filepath.Join(w.dir, "herald.members"))
				return err == nil && strings.Contains(string(b), "m1 10.4.0.1:7946")
			})

			// The user's own balancer for a while.
			w.write("internal", "external")
			w.awaitGet(once, balanced, 0)
			w.wantKept(kept)
			w.await(true, "nothing to announce")
			w.write()
			w.awaitGet(once, balanced, http.StatusOK)
			w.wantKept(kept)

			// The master is drained, and there is no other backend.
			must.Do(t, admin.NewClient(filepath.Join(n.dir, "herald.sock")).Drain(t.Context(), "upgrade", false, 0, 0))
			n.awaitGet(onMaster, healthz+"apiserver", http.StatusServiceUnavailable)
			w.awaitBackend("is draining, but no other backend serves")
			w.wantKept(kept)
			must.Do(t, admin.NewClient(filepath.Join(n.dir, "herald.sock")).Undrain(t.Context()))
			w.awaitBackend("healthy: apiserver")

			// Its Herald is upgraded.
			master.stop(t)
			w.awaitBackend("was drained or stopped, and has sent no advertisement since, but no other backend serves")
			w.wantKept(kept)
			n.start()
			w.awaitBackend("healthy: apiserver")
			w.wantKept(kept)

			// The worker's own is upgraded, or crashes: the kernel goes on without it.
			if mode == "kernel" {
				for _, end := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
					h.signal(t, end)
					h.wait(t)
					w.wantKept(kept)
					w.awaitGet(once, balanced, http.StatusOK)
					h = w.start()
					w.await(true, "balancing")
					w.wantKept(kept)
				}
				if code, _ := get(t, once, balanced); code != http.StatusOK {
					t.Errorf("the adopted table refuses")
				}
			}

			// Its apiserver fails.
			n.apiserver.Store(http.StatusInternalServerError)
			w.await(false, "balancer api: no backend serves: m1: unhealthy: apiserver")
			w.awaitGet(once, healthz+"api", http.StatusServiceUnavailable)
			n.apiserver.Store(http.StatusOK)
			w.await(true, "balancing")
			w.awaitGet(once, balanced, http.StatusOK)

			h.stop(t)
		})
	}
}

// Without the right to use nftables, the status names the cure.
func TestWorkerWithoutRights(t *testing.T) {
	n := newNode(t)
	n.write(`apiVersion: herald.dev/v1alpha1
kind: Speaker
nodeName: w1
balancers:
- name: api
  listen: [{address: "127.0.0.1:9443"}]
  backends: {static: {addresses: ["192.0.2.1:6443"]}}
admin: {socket: DIR/herald.sock}
`)
	n.startAs("setpriv", "--bounding-set=-net_admin", binary, "run", "--config", n.file())
	n.awaitStatus("it is not ready and says what to do", func(s admin.Status) bool {
		ready, why := s.Ready()
		return !ready && strings.HasPrefix(why, "balancer api: no balancing in the kernel") && strings.Contains(why, "mode: proxy")
	})
}

// wantKept makes a request over the connection that is kept.
func (w *worker) wantKept(c *http.Client) {
	w.t.Helper()
	dial := c.Transport.(*http.Transport).DialContext
	c.Transport.(*http.Transport).DialContext = func(context.Context, string, string) (net.Conn, error) {
		return nil, fmt.Errorf("the connection is gone")
	}
	defer func() { c.Transport.(*http.Transport).DialContext = dial }()
	if code, body := get(w.t, c, balanced); code != http.StatusOK {
		w.t.Errorf("over the connection that is kept: %d %s", code, body)
	}
}

// awaitBackend waits until the worker says this of its only backend.
func (w *worker) awaitBackend(reason string) {
	w.t.Helper()
	said := ""
	defer func() {
		if w.t.Failed() {
			w.t.Logf("it said %q last", said)
		}
	}()
	w.awaitStatus("its backend: "+reason, func(s admin.Status) bool {
		if len(s.Balancers) != 1 || len(s.Balancers[0].Backends) != 1 {
			return false
		}
		said = s.Balancers[0].Backends[0].Reason
		return said == reason
	})
}

// modes are the modes of balancers.
var modes = []string{"kernel", "proxy"}
