package balancer

import (
	"cmp"
	"fmt"
	"net/netip"
	"sync"
	"time"
)

// Backends returns the backends of a balancer, sorted by address. Unlike Status it reads no counters, which is slow
// in the kernel.
func (s *Set) Backends(name string) []Backend {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.find(name)
	if r == nil {
		return nil
	}
	var list []Backend
	for _, b := range r.backends.sorted() {
		list = append(list, b.Backend)
	}
	return list
}

// Status returns all balancers, sorted by name. It waits at most a second for a change of the data planes, so that a backend
// that it reports as serving also gets connections.
func (s *Set) Status() []Status {
	counts, errs := s.counter.read()
	s.awaitDataPlanes(time.Second)
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []Status
	for _, r := range s.balancers {
		c := r.config
		status := Status{Name: c.Name, Mode: c.Mode, Method: c.Method}
		if err := cmp.Or(faultOf(c.Name, s.carriers[c.Mode].err), r.lookUp.err, errs[c.Mode]); err != nil {
			status.Error = err.Error()
		}
		for _, b := range r.backends.sorted() {
			n := counts[counted{c.Name, b.Addr}]
			if errs[c.Mode] != nil {
				n.Open = -1
			}
			status.Backends = append(status.Backends, BackendStatus{
				Backend: b.Backend, Since: b.since, Connections: n.Connections, Open: n.Open,
			})
		}
		list = append(list, status)
	}
	return list
}

// awaitDataPlanes waits until the data planes are up to date, at most for limit.
func (s *Set) awaitDataPlanes(limit time.Duration) {
	enough := time.After(limit)
	done := make(chan struct{})
	select {
	case s.awaiting <- done:
	case <-s.stopped:
		return
	case <-enough:
		return
	}
	select {
	case <-done:
	case <-enough:
	}
}

// counter reads the counters of the data planes, one at a time and while no other lock is held, as they may be slow.
type counter struct {
	planes map[Mode]DataPlane

	mu     sync.Mutex
	begun  time.Time // start of the last read, with the results below
	counts map[counted]Count
	last   map[Mode][]Count // last successful results
	errs   map[Mode]error
}

// counted is the key of counters.
type counted struct {
	balancer string
	backend  netip.AddrPort
}

// read reads the counters. Callers that waited during a complete read share its result: frequent requests for the status must not
// delay changes or the bridge. If a data plane fails its last counters stay, as a falling counter looks like a
// restarted one.
func (c *counter) read() (map[counted]Count, map[Mode]error) {
	asked := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.begun.After(asked) {
		return c.counts, c.errs
	}
	c.begun, c.counts, c.errs = time.Now(), make(map[counted]Count), make(map[Mode]error)
	for mode, plane := range c.planes {
		counts, err := plane.Counts()
		if err != nil {
			c.errs[mode] = fmt.Errorf("cannot count connections: %w", err)
		} else {
			c.last[mode] = counts
		}
		for _, n := range c.last[mode] {
			key := counted{n.Service, n.Backend}
			n.Connections += c.counts[key].Connections
			c.counts[key] = n
		}
	}
	return c.counts, c.errs
}
