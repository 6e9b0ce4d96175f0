// Package proxy is a plane in user space: it accepts TCP connections, opens one to a backend for
// each, and has the kernel move the bytes between the two (splice(2)).
package proxy

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/balancer"
)

// Options set up a DataPlane. Zero values stand for the defaults.
type Options struct {
	// Log is told of what an operator should know; nil discards it.
	Log *slog.Logger
	// Seed is the node's name, so that nodes begin with different backends.
	Seed string
	// DialTimeout bounds the dialling of one backend, before the next is tried; 2 s by default.
	DialTimeout time.Duration
	// MaxConnections is how many connections are carried at once, if this process may have
	// as many descriptors; 20,000 by default. Those beyond it wait in the listener's backlog.
	MaxConnections int
	// Linger is how long Close lets established connections go on; none by default.
	Linger time.Duration
}

// descriptors is how many one connection takes: two sockets and, while splice is at
// work, a pipe each way. Some are spared for everything else.
const (
	descriptors = 6
	spared      = 1000
)

// DataPlane carries connections by itself.
type DataPlane struct {
	options Options
	slots   chan struct{}  // holds one element for each connection
	running sync.WaitGroup // connections

	applying sync.Mutex // one Apply or Close at a time; taken before mu
	closed   bool       // guarded by applying

	mu        sync.Mutex
	services  map[string]*service
	listeners map[netip.AddrPort]*listener
	work      map[place]*work
	logged    time.Time // when the log last had a line of what may happen at each connection
}

// service is one that is carried.
type service struct {
	balancer.Service
	buckets []string // of backends by their addresses; nil if nobody serves
	turn    int      // of round-robin
}

// place is a backend of a service.
type place struct {
	service string
	backend netip.AddrPort
}

// work is what a backend has been given.
type work struct {
	given uint64
	open  map[*connection]struct{}
}

var _ balancer.DataPlane = (*DataPlane)(nil)

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

// Apply makes services the ones that are carried. An address that cannot be listened at is an
// error, and no obstacle to the rest; so is a backend at which a service listens, to which
// connections would come back for ever.
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
	p.tidy()
	p.mu.Unlock()
	return errors.Join(append(refused, p.listen(listening))...)
}

// tidy forgets the work of backends that are not known any more and have none.
func (p *DataPlane) tidy() {
	for where, w := range p.work {
		s := p.services[where.service]
		known := s != nil && slices.ContainsFunc(s.Backends, func(b balancer.Backend) bool { return b.Addr == where.backend })
		if !known && len(w.open) == 0 {
			delete(p.work, where)
		}
	}
}

// end ends the connections to a backend. The mutex is held.
func (p *DataPlane) end(where place) {
	if w := p.work[where]; w != nil {
		for c := range w.open {
			c.end()
		}
	}
}

// Counts tells how many connections each backend has been given, and has.
func (p *DataPlane) Counts() ([]balancer.Count, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make([]balancer.Count, 0, len(p.work))
	for where, w := range p.work {
		all = append(all, balancer.Count{
			Service: where.service, Backend: where.backend, Connections: w.given, Open: len(w.open),
		})
	}
	slices.SortFunc(all, func(x, y balancer.Count) int {
		return cmp.Or(cmp.Compare(x.Service, y.Service), x.Backend.Compare(y.Backend))
	})
	return all, nil
}

// Close stops listening, and lets established connections end, for Linger at most.
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
	deadline := time.NewTimer(p.options.Linger)
	defer deadline.Stop()
	select {
	case <-ended:
		return err
	case <-deadline.C:
	}
	p.mu.Lock()
	left := 0
	for where, w := range p.work {
		left += len(w.open)
		p.end(where)
	}
	p.services = nil // so that none is dialled anew
	p.mu.Unlock()
	<-ended
	if left > 0 {
		p.options.Log.Warn("proxy ends connections", "connections", left, "after", p.options.Linger)
	}
	return err
}

// listen makes addresses, of services, and no others those that are listened at.
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
