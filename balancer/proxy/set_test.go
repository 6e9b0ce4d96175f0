package proxy_test

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/herald-vip/herald/balancer"
	"github.com/herald-vip/herald/balancer/proxy"
	"github.com/herald-vip/herald/health"
	"github.com/herald-vip/herald/testenv/must"
	"github.com/herald-vip/herald/testenv/wait"
)

// TestSet lets a backend die and return with real checks and connections.
func TestSet(t *testing.T) {
	a, b, addr := newServer(t), newServer(t), free(t)
	healthy := newHealthPort(t)
	set := balancer.New(nil, proxy.New(proxy.Options{}), proxy.New(proxy.Options{}))
	defer func() { must.Do(t, set.Close()) }()
	config := balancer.Config{
		Name: "api", Listen: []balancer.Listener{{Address: addr}}, Mode: balancer.Proxy, Forget: time.Hour,
		Backends: balancer.Backends{Static: &balancer.Static{Addresses: []netip.AddrPort{a.addr, b.addr}}},
		Check: &balancer.Probe{
			TCP: &health.TCP{Address: healthy.addr.String()}, Pace: health.Pace{Interval: 10 * time.Millisecond, Timeout: patience, Rise: 1, Fall: 1},
		},
	}
	states := func() string {
		out := ""
		for _, status := range set.Status() {
			for _, b := range status.Backends {
				out += string(b.State) + " "
			}
		}
		return out
	}
	must.Do(t, set.Apply([]balancer.Config{config}))
	wait.Until(t, "both serve", func() bool { return states() == "serving serving " })
	client := dial(t, addr)
	for i := range 100 { // reloads keep connections
		config.Method = []balancer.Method{balancer.SourceHash, balancer.RoundRobin}[i%2]
		must.Do(t, set.Apply([]balancer.Config{config}))
	}

	healthy.close()
	if _, err := io.Copy(io.Discard, client); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("error %v of a connection to a dead backend, want a reset", err)
	}
	wait.Until(t, "no backend serves", func() bool { return !strings.Contains(states(), "serving") })
	healthy.open(t)
	wait.Until(t, "both serve again", func() bool { return states() == "serving serving " })
	dial(t, addr)
}

// healthPort is a port that answers or refuses.
type healthPort struct {
	addr     netip.AddrPort
	listener net.Listener
	serving  sync.WaitGroup
}

func newHealthPort(t *testing.T) *healthPort {
	t.Helper()
	h := &healthPort{addr: free(t)}
	h.open(t)
	t.Cleanup(h.close)
	return h
}

func (h *healthPort) open(t *testing.T) {
	t.Helper()
	l := must.Get[net.Listener](t)(net.Listen("tcp", h.addr.String()))
	h.listener = l
	h.serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			// The check closes it.
			h.serving.Go(func() {
				_, _ = io.Copy(io.Discard, conn)
				_ = conn.Close()
			})
		}
	})
}

// close refuses new connections. Established ones end with their checks.
func (h *healthPort) close() { _ = h.listener.Close() }
