// Package dataplane tests with real connections that a [balancer.DataPlane] satisfies its
// interface's contract.
package dataplane

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/herald-vip/herald/balancer"
	"github.com/herald-vip/herald/testenv/must"
)

// patience bounds each wait before a test fails.
const patience = 20 * time.Second

// Site is the environment of a test.
type Site struct {
	// Listen and Dial open sockets where the data plane carries connections, such as in a namespace.
	Listen func(netip.AddrPort) (net.Listener, error)
	Dial   func(netip.AddrPort) (net.Conn, error)
	// At is the service's address, and Backends are three addresses for its backends.
	At       netip.AddrPort
	Backends []netip.AddrPort
}

// Test takes a data plane without services through all changes of a service. It does
// not close the data plane.
func Test(t *testing.T, p balancer.DataPlane, site Site) {
	if len(site.Backends) != 3 {
		t.Fatalf("%d backends, want 3", len(site.Backends))
	}
	for _, addr := range site.Backends {
		site.serve(t, addr)
	}
	// One after the other: each begins with the state that the previous one left.
	for _, test := range []struct {
		name string
		run  func(*testing.T, balancer.DataPlane, Site)
	}{
		{"spread", spread},
		{"source hash", sourceHash},
		{"drain", drain},
		{"death", death},
		{"no server", noServer},
		{"no listener", noListener},
		{"removal", removal},
		{"counts", counts},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.run(t, p, site)
			apply(t, p)
		})
	}
}

// spread checks that connections are spread as evenly as possible, also when backends
// come and go.
func spread(t *testing.T, p balancer.DataPlane, site Site) {
	const rounds = 100
	for _, states := range []string{"sss", "ss-", "s--", "sss", "-ss"} {
		apply(t, p, site.service(balancer.RoundRobin, states))
		serving := strings.Count(states, "s")
		got := site.spread(t, rounds*serving)
		if len(got) != serving {
			t.Errorf("%s: connections went to %v", states, got)
		}
		for backend, n := range got {
			if n < rounds*85/100 || n > rounds*115/100 {
				t.Errorf("%s: %s has %d connections, want %d", states, backend, n, rounds)
			}
		}
	}
}

// sourceHash checks that a client stays on its backend while that serves.
func sourceHash(t *testing.T, p balancer.DataPlane, site Site) {
	apply(t, p, site.service(balancer.SourceHash, "sss"))
	always := func(serving string) string {
		t.Helper()
		got := site.spread(t, 20)
		if len(got) != 1 {
			t.Errorf("%s: one client reached %v", serving, got)
		}
		return slices.Collect(maps.Keys(got))[0]
	}
	first := always("sss")
	i := slices.Index(site.Backends, netip.MustParseAddrPort(first))
	states := []byte("sss")
	states[(i+1)%3] = '-'
	apply(t, p, site.service(balancer.SourceHash, string(states)))
	if got := always(string(states)); got != first {
		t.Errorf("the client moved from %s to %s although the former still serves", first, got)
	}
	states = []byte("sss")
	states[i] = 'd'
	apply(t, p, site.service(balancer.SourceHash, string(states)))
	if got := always(string(states)); got == first {
		t.Errorf("the client is still sent to %s, which drains", got)
	}
}

// drain checks that a drain keeps established connections and brings no new ones, and
// that its end keeps them too.
func drain(t *testing.T, p balancer.DataPlane, site Site) {
	apply(t, p, site.service(balancer.RoundRobin, "sss"))
	held := site.hold(t, 12)
	for _, states := range []string{"dss", "sds", "d-s", "sss"} {
		apply(t, p, site.service(balancer.RoundRobin, states))
		for backend := range site.spread(t, 20) {
			if i := slices.Index(site.Backends, netip.MustParseAddrPort(backend)); states[i] != 's' {
				t.Errorf("%s: a new connection went to %s", states, backend)
			}
		}
		alive(t, held)
	}
}

// death checks that only the connections to a dead backend end, immediately.
func death(t *testing.T, p balancer.DataPlane, site Site) {
	apply(t, p, site.service(balancer.RoundRobin, "sss"))
	held := site.hold(t, 12)
	apply(t, p, site.service(balancer.RoundRobin, "sxs"))
	dead := site.Backends[1].String()
	for _, c := range held {
		err := c.echo()
		switch {
		case c.backend == dead && err == nil:
			t.Error("a connection to a dead backend goes on")
		case c.backend == dead && errors.Is(err, os.ErrDeadlineExceeded):
			t.Error("a connection to a dead backend hangs")
		case c.backend != dead && err != nil:
			t.Errorf("a connection to %s has ended: %v", c.backend, err)
		}
	}
	if n := site.spread(t, 20)[dead]; n > 0 {
		t.Errorf("%d new connections went to a dead backend", n)
	}
}

// noServer checks that clients are refused immediately without a serving backend.
func noServer(t *testing.T, p balancer.DataPlane, site Site) {
	for _, states := range []string{"xxx", "dxd", "---"} {
		apply(t, p, site.service(balancer.RoundRobin, states))
		c, err := site.try()
		switch {
		case err == nil:
			t.Errorf("%s: a connection went to %s", states, c.backend)
		case errors.Is(err, os.ErrDeadlineExceeded):
			t.Errorf("%s: a client hangs", states)
		}
	}
	apply(t, p, site.service(balancer.RoundRobin, "s--"))
	site.connect(t)
}

// noListener checks that without a listener established connections stay, and that
// connections to dead backends still end.
func noListener(t *testing.T, p balancer.DataPlane, site Site) {
	apply(t, p, site.service(balancer.RoundRobin, "sss"))
	held := site.hold(t, 12)
	silent := site.service(balancer.RoundRobin, "sss")
	silent.Listen = nil
	apply(t, p, silent)
	if c, err := site.try(); err == nil {
		t.Errorf("a connection went to %s although no service listens", c.backend)
	}
	alive(t, held)
	silent.Backends[0].State = balancer.Dead
	apply(t, p, silent)
	for _, c := range held {
		if err := c.echo(); (err == nil) == (c.backend == site.Backends[0].String()) {
			t.Errorf("%s: %v, and the first backend is dead", c.backend, err)
		}
	}
}

// removal checks that removing a service keeps established connections.
func removal(t *testing.T, p balancer.DataPlane, site Site) {
	apply(t, p, site.service(balancer.RoundRobin, "sss"))
	held := site.hold(t, 6)
	apply(t, p)
	if c, err := site.try(); err == nil {
		t.Errorf("a connection went to %s although the service is gone", c.backend)
	}
	apply(t, p, site.service(balancer.RoundRobin, "sss"))
	alive(t, held)
}

// counts checks the counters of each backend's connections.
func counts(t *testing.T, p balancer.DataPlane, site Site) {
	s := site.service(balancer.RoundRobin, "ss-")
	s.Name = "counted"
	apply(t, p, s)
	want := make(map[string]uint64)
	for _, c := range site.hold(t, 12) {
		want[c.backend]++
	}
	all := must.Get[[]balancer.Count](t)(p.Counts())
	got := make(map[string]uint64)
	for _, n := range all {
		if n.Service == s.Name && n.Connections > 0 {
			got[n.Backend.String()] = n.Connections
			if n.Open != -1 && n.Open != int(n.Connections) {
				t.Errorf("%s has %d open connections, want %d", n.Backend, n.Open, n.Connections)
			}
		}
	}
	if !maps.Equal(got, want) {
		t.Errorf("counts are %v, want %v", got, want)
	}
}

// alive checks that connections still work.
func alive(t *testing.T, held []*client) {
	t.Helper()
	for _, c := range held {
		if err := c.echo(); err != nil {
			t.Errorf("an established connection to %s has ended: %v", c.backend, err)
		}
	}
}

func apply(t *testing.T, p balancer.DataPlane, services ...balancer.Service) {
	t.Helper()
	must.Do(t, p.Apply(services))
}

// service has a backend for each letter: s serves, d drains, x is dead, - is absent.
func (s Site) service(method balancer.Method, states string) balancer.Service {
	service := balancer.Service{Name: "tested", Listen: []netip.AddrPort{s.At}, Method: method}
	stateOf := map[rune]balancer.State{'s': balancer.Serving, 'd': balancer.Draining, 'x': balancer.Dead}
	for i, letter := range states {
		if state, ok := stateOf[letter]; ok {
			service.Backends = append(service.Backends, balancer.Backend{Name: fmt.Sprintf("m%d", i+1), Addr: s.Backends[i], State: state})
		}
	}
	return service
}

// serve starts a server that sends its own address and then echoes.
func (s Site) serve(t *testing.T, addr netip.AddrPort) {
	t.Helper()
	l := must.Get[net.Listener](t)(s.Listen(addr))
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() {
				defer func() { _ = conn.Close() }()
				defer context.AfterFunc(t.Context(), func() { _ = conn.Close() })()
				if _, err := fmt.Fprintln(conn, addr); err == nil {
					_, _ = io.Copy(conn, conn)
				}
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		running.Wait()
	})
}

// client is a connection to a backend.
type client struct {
	conn    net.Conn
	in      *bufio.Reader
	backend string
}

// try connects, and learns the backend's address.
func (s Site) try() (*client, error) {
	conn, err := s.Dial(s.At)
	if err != nil {
		return nil, err
	}
	_ = conn.SetDeadline(time.Now().Add(patience))
	c := &client{conn: conn, in: bufio.NewReader(conn)}
	line, err := c.in.ReadString('\n')
	if err != nil {
		c.close()
		return nil, err
	}
	c.backend = strings.TrimSpace(line)
	return c, nil
}

// connect is a try that must succeed. The connection is closed when the test ends.
func (s Site) connect(t *testing.T) *client {
	t.Helper()
	c := must.Get[*client](t)(s.try())
	t.Cleanup(c.close)
	return c
}

// spread opens this many connections, one after the other, and counts them by backend.
func (s Site) spread(t *testing.T, connections int) map[string]int {
	t.Helper()
	got := make(map[string]int)
	for range connections {
		c := s.connect(t)
		got[c.backend]++
		c.close()
	}
	return got
}

// hold opens connections to keep, and expects each serving backend to get some.
func (s Site) hold(t *testing.T, n int) []*client {
	t.Helper()
	var all []*client
	for range n {
		all = append(all, s.connect(t))
	}
	return all
}

// echo reports whether the backend still answers.
func (c *client) echo() error {
	_ = c.conn.SetDeadline(time.Now().Add(patience))
	if _, err := fmt.Fprintln(c.conn, "hello"); err != nil {
		return err
	}
	line, err := c.in.ReadString('\n')
	if err == nil && line != "hello\n" {
		err = fmt.Errorf("it said %q", line)
	}
	return err
}

func (c *client) close() { _ = c.conn.Close() }
