package balancer

import (
	"fmt"
	"net/netip"
	"sync"
	"time"
)

// Backends are those of the balancer of this name, sorted by address. Unlike Status it asks no plane
// for what that counts, which takes the kernel's a while.
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

// Status tells of all balancers, sorted by name. For a plane that is being told something it waits for
// a second at most: what it says serves is to be what connections are given to.
func (s *Set) Status() []Status {
	counts, errs := s.counter.read()
	s.awaitPlanes(time.Second)
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []Status
	for _, r := range s.balancers {
		c := r.config
		status := Status{Name: c.Name}
		for _, err := range []error{faultOf(c.Name, s.carriers[c.Mode].err), r.lookUp.err, errs[c.Mode]} {
			if err != nil && status.Error == "" {
				status.Error = err.Error()
			}
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

// awaitPlanes waits until planes carry what is known now, or for so long.
func (s *Set) awaitPlanes(limit time.Duration) {
	enough := time.NewTimer(limit)
	defer enough.Stop()
	told := make(chan struct{})
	select {
	case s.awaiting <- told:
	case <-s.stopped:
		return
	case <-enough.C:
		return
	}
	select {
	case <-told:
	case <-enough.C:
	}
}

// counter asks planes for what they count: one at a time, and without any other lock, as it may
// take them a while.
type counter struct {
	planes [2]DataPlane // by Mode

	mu     sync.Mutex
	begun  time.Time // when the planes were asked for
	counts map[counted]Count
	last   [2][]Count // what each plane has told
	errs   [2]error
}

// counted is what connections are counted by.
type counted struct {
	balancer string
	backend  netip.AddrPort
}

// read asks the planes. A caller that waited for long enough shares the answer of another: anybody
// may ask for a status, as often as they like, and that must not be in the way of a change or of the
// bridge. What a plane that does not answer has told last counts still: a counter that falls would be
// taken for one that begins anew.
func (c *counter) read() (map[counted]Count, [2]error) {
	asked := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.begun.After(asked) {
		return c.counts, c.errs
	}
	c.begun, c.counts, c.errs = time.Now(), make(map[counted]Count), [2]error{}
	for mode, plane := range c.planes {
		counts, err := plane.Counts()
		if err != nil {
			c.errs[mode] = fmt.Errorf("connections cannot be counted: %w", err)
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
