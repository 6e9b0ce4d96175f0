package balancer

import (
	"context"
	"net/netip"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/herald-vip/herald/internal/wake"
)

const (
	// undisturbed limits how long the kernel is left unchanged at the start while a balancer has no serving backend: a
	// predecessor's table works meanwhile and knows more. The limit does not apply while no backend is known at all.
	undisturbed = 3 * time.Second
	// retry is the pause after a failure of a data plane.
	retry = time.Second
)

// carrier is the memory of a data plane.
type carrier struct {
	tried []Service // by the last Apply
	err   error     // of the last Apply
	again time.Time // when to try again after an error
}

// run looks up names, forgets backends and calls the data planes, until ctx ends.
func (s *Set) run(ctx context.Context) {
	defer close(s.stopped)
	var lookUps sync.WaitGroup
	defer lookUps.Wait()
	var asked chan struct{}
	for {
		next := wake.Earlier(s.tend(ctx, &lookUps), s.carry(ctx))
		if asked != nil {
			close(asked)
			asked = nil
		}
		idle := time.Hour
		if !next.IsZero() {
			idle = time.Until(next)
		}
		select {
		case <-time.After(idle):
		case <-s.wake:
		case asked = <-s.awaiting:
		case <-ctx.Done():
			return
		}
	}
}

// tend updates backends and starts due look-ups. It returns when the next one is due; zero means never.
func (s *Set) tend(ctx context.Context, lookUps *sync.WaitGroup) time.Time {
	now := time.Now()
	s.mu.Lock()
	due := wake.Due(now, s.next)
	s.mu.Unlock()
	if due {
		s.update(func() {})
	}
	s.mu.Lock()
	next, outdated := s.next, s.outdated
	for _, r := range s.balancers {
		switch {
		case r.config.Backends.DNS == nil || r.lookUp.running:
		case now.Before(r.lookUp.next):
			next = wake.Earlier(next, r.lookUp.next)
		default:
			r.lookUp.running = true
			name, dns, network := r.config.Name, *r.config.Backends.DNS, r.network()
			lookUps.Go(func() { s.resolve(ctx, name, dns, network) })
		}
	}
	s.mu.Unlock()
	if outdated {
		s.noteUnchecked(s.recheck(func() []*running { return s.balancers }))
	}
	return next
}

// carry calls data planes until each has the current services. It returns when to try a failed one again; zero means
// never.
func (s *Set) carry(ctx context.Context) (next time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for ctx.Err() == nil {
		mode, next := s.due()
		if mode == "" {
			return next
		}
		services, before := s.services(mode), s.carriers[mode].err
		s.mu.Unlock()
		err := s.planes[mode].Apply(services)
		s.logFault(mode, before, err)
		s.mu.Lock()
		s.carriers[mode] = carrier{tried: services, err: err, again: time.Now().Add(retry)}
	}
	return time.Time{}
}

// due returns the next data plane to call, or none, and when the next call may be due. s.mu is held.
func (s *Set) due() (Mode, time.Time) {
	var next time.Time
	if s.started.IsZero() {
		return "", next
	}
	now := time.Now()
	switch deadline := s.started.Add(undisturbed); {
	case s.ready, s.knowsNone():
	case s.servesNone() && now.Before(deadline):
		next = deadline
	default:
		s.ready = true
	}
	for _, mode := range s.order() {
		c := s.carriers[mode]
		if mode == Kernel && !s.ready {
			continue // a proxy has no predecessor that still works
		}
		if c.err != nil && !now.Before(c.again) || !same(s.services(mode), c.tried) {
			return mode, next
		}
		if c.err != nil {
			next = wake.Earlier(next, c.again)
		}
	}
	return "", next
}

// order returns the order of calls. If the proxy takes over a listener of the kernel it comes first, so that one of them always
// listens. While both listen the kernel gets the connections.
func (s *Set) order() []Mode {
	kernel := Places(s.carriers[Kernel].tried)
	for place := range Places(s.services(Proxy)) {
		if _, ok := kernel[place]; ok {
			return []Mode{Proxy, Kernel}
		}
	}
	return []Mode{Kernel, Proxy}
}

// Places returns the name of the service of each listener.
func Places(services []Service) map[netip.AddrPort]string {
	all := make(map[netip.AddrPort]string)
	for _, s := range services {
		for _, place := range s.Listen {
			all[place] = s.Name
		}
	}
	return all
}

// knowsNone reports whether a balancer listens, but no backend is known at all: more likely this node's fault than theirs.
func (s *Set) knowsNone() bool {
	knows := func(r *running) bool { return len(r.backends.known) > 0 }
	return slices.ContainsFunc(s.balancers, (*running).listens) && !slices.ContainsFunc(s.balancers, knows)
}

// servesNone reports whether a balancer listens without a serving backend.
func (s *Set) servesNone() bool {
	serves := func(b *backend) bool { return b.State == Serving }
	return slices.ContainsFunc(s.balancers, func(r *running) bool {
		return r.listens() && !slices.ContainsFunc(r.backends.sorted(), serves)
	})
}

func (r *running) listens() bool { return len(r.listen) > 0 }

// services returns the services of a data plane. s.mu is held.
func (s *Set) services(mode Mode) []Service {
	var list []Service
	for _, r := range s.balancers {
		if r.config.Mode != mode {
			continue
		}
		service := Service{Name: r.config.Name, Listen: r.listen, Method: r.config.Method, Transparent: r.config.Transparent}
		for _, b := range r.backends.sorted() {
			service.Backends = append(service.Backends, b.Backend)
		}
		list = append(list, service)
	}
	return list
}

// same reports whether two lists of services are equal for a data plane, which ignores reasons.
func same(x, y []Service) bool {
	return slices.EqualFunc(x, y, func(x, y Service) bool {
		alike := slices.EqualFunc(x.Backends, y.Backends, func(x, y Backend) bool {
			return x.Name == y.Name && x.Addr == y.Addr && x.State == y.State
		})
		x.Backends, y.Backends = nil, nil
		return alike && reflect.DeepEqual(x, y)
	})
}

// logFault logs when an error of a data plane begins, changes or ends.
func (s *Set) logFault(mode Mode, before, err error) {
	switch {
	case err != nil && (before == nil || before.Error() != err.Error()):
		s.log.Error("cannot program the balancer", "mode", mode, "err", err, "retry", retry)
	case err == nil && before != nil:
		s.log.Info("balancer programmed again", "mode", mode)
	}
}
