// Package proxy is the data plane of balancers in user space. It accepts TCP connections, opens one to a backend for
// each, and lets the kernel copy the bytes (splice(2)).
package proxy

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/balancer"
)

// Options adjust a DataPlane. Zero values mean the defaults.
type Options struct {
	// Log is the logger; nil discards logs.
	Log *slog.Logger
	// Seed is the node's name, so that nodes start with different backends.
	Seed string
	// DialTimeout limits the dial of one backend, before the next one; 2 s by default.
	DialTimeout time.Duration
	// MaxConnections limits the connections at a time, as does the process's limit of descriptors; 20,000 by default. Further
	// connections wait in the listener's backlog.
	MaxConnections int
	// Linger is how long Close waits for established connections to end; 0 by default.
	Linger time.Duration
}

// descriptors is the number of file descriptors per connection: two sockets and, during splice, a pipe in each
// direction. spared is the number for other uses.
const (
	descriptors = 6
	spared      = 1000
)

// DataPlane implements [balancer.DataPlane] in user space.
type DataPlane struct {
	options Options
	slots   chan struct{}  // holds one element for each connection
	running sync.WaitGroup // connections

	applying sync.Mutex // held during Apply and Close; locked before mu
	closed   bool       // guarded by applying

	mu        sync.Mutex
	services  map[string]*service
	listeners map[netip.AddrPort]*listener
	work      map[place]*work
	logged    time.Time // last log line about a single connection
}

// service is a service with its buckets.
type service struct {
	balancer.Service
	buckets []string // address of the backend of each bucket; nil if no backend serves
	turn    int      // next bucket of round-robin
}

// place is a backend of a service.
type place struct {
	service string
	backend netip.AddrPort
}

// work are the connections of a backend.
type work struct {
	assigned uint64
	open     map[*connection]struct{}
}

// New returns a DataPlane without services.
func New(options Options) *DataPlane {
	options.Log = cmp.Or(options.Log, slog.New(slog.DiscardHandler))
	options.DialTimeout = cmp.Or(options.DialTimeout, 2*time.Second)
	capacity := cmp.Or(options.MaxConnections, 20_000)
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err == nil && limit.Cur < uint64(capacity*descriptors+spared) {
		capacity = max(int(limit.Cur)-spared, descriptors) / descriptors
	}
	options.MaxConnections = capacity
	return &DataPlane{
		options:   options,
		slots:     make(chan struct{}, capacity),
		services:  make(map[string]*service),
		listeners: make(map[netip.AddrPort]*listener),
		work:      make(map[place]*work),
	}
}

// Apply implements [balancer.DataPlane]. An address that it cannot listen at is an error and does not affect the rest. The same
// holds for a backend at which a service listens, as connections would loop.
func (p *DataPlane) Apply(services []balancer.Service) error {
	p.applying.Lock()
	defer p.applying.Unlock()
	if p.closed {
		return errors.New("proxy is closed")
	}

	listening := balancer.Places(services)
	var refused []error
	p.mu.Lock()
	before := p.services
	p.services = make(map[string]*service)
	for _, s := range services {
		next := &service{Service: s}
		var buckets []string
		if old := before[s.Name]; old != nil {
			buckets, next.turn = old.buckets, old.turn
		}
		var serving []string
		for _, b := range s.Backends {
			if other, ok := listening[b.Addr]; ok {
				refused = append(refused, &balancer.ServiceError{
					Service: s.Name, Err: fmt.Errorf("cannot have %s as a backend: balancer %s listens there", b.Addr, other),
				})
				continue
			}
			switch b.State {
			case balancer.Serving:
				serving = append(serving, b.Addr.String())
			case balancer.Dead:
				p.end(place{s.Name, b.Addr})
			}
		}
		next.buckets = balancer.Assign(buckets, serving, p.options.Seed)
		p.services[s.Name] = next
	}
	maps.DeleteFunc(p.work, func(where place, w *work) bool {
		s := p.services[where.service]
		known := s != nil && slices.ContainsFunc(s.Backends, func(b balancer.Backend) bool { return b.Addr == where.backend })
		return !known && len(w.open) == 0
	})
	p.mu.Unlock()
	return errors.Join(append(refused, p.listen(listening))...)
}

// end resets the connections of a backend. p.mu is held.
func (p *DataPlane) end(where place) {
	if w := p.work[where]; w != nil {
		for c := range w.open {
			c.end()
		}
	}
}

// Counts implements [balancer.DataPlane].
func (p *DataPlane) Counts() ([]balancer.Count, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make([]balancer.Count, 0, len(p.work))
	for where, w := range p.work {
		all = append(all, balancer.Count{
			Service: where.service, Backend: where.backend, Connections: w.assigned, Open: len(w.open),
		})
	}
	slices.SortFunc(all, func(x, y balancer.Count) int {
		return cmp.Or(cmp.Compare(x.Service, y.Service), x.Backend.Compare(y.Backend))
	})
	return all, nil
}

// Close closes the listeners, and waits at most Linger for established connections to end.
func (p *DataPlane) Close() error {
	p.applying.Lock()
	defer p.applying.Unlock()
	if p.closed {
		return nil
	}
	p.closed = true
	err := p.listen(nil)

	ended := make(chan struct{})
	go func() {
		defer close(ended)
		p.running.Wait()
	}()
	select {
	case <-ended:
		return err
	case <-time.After(p.options.Linger):
	}
	p.mu.Lock()
	left := 0
	for where, w := range p.work {
		left += len(w.open)
		p.end(where)
	}
	p.services = nil // no connection is dialled again
	p.mu.Unlock()
	<-ended
	if left > 0 {
		p.options.Log.Warn("proxy reset connections that did not end in time", "connections", left, "after", p.options.Linger)
	}
	return err
}

// listen opens and closes listeners, so that the wanted addresses, with the names of their services, remain.
func (p *DataPlane) listen(wanted map[netip.AddrPort]string) error {
	p.mu.Lock()
	var idle []*listener
	for addr, l := range p.listeners {
		if _, ok := wanted[addr]; !ok {
			idle = append(idle, l)
			delete(p.listeners, addr)
		}
	}
	var missing []netip.AddrPort
	for addr, name := range wanted {
		if l := p.listeners[addr]; l != nil {
			l.service = name
		} else {
			missing = append(missing, addr)
		}
	}
	p.mu.Unlock()

	stop(idle)
	var errs []error
	slices.SortFunc(missing, netip.AddrPort.Compare)
	for _, addr := range missing {
		l, err := open(addr, wanted[addr])
		if err != nil {
			errs = append(errs, err)
			continue
		}
		p.mu.Lock()
		p.listeners[addr] = l
		p.mu.Unlock()
		go p.accept(l)
	}
	return errors.Join(errs...)
}
