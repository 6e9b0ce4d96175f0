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
	// undisturbed is how long the kernel is left alone at the start, at most, while some balancer's
	// backends are not known yet, unless none at all is: what a predecessor has left there goes on
	// meanwhile, and knows better.
	undisturbed = 3 * time.Second
	// retry is when a plane is tried again.
	retry = time.Second
)

// carrier is what is remembered of a plane.
type carrier struct {
	tried []Service // last
	err   error     // of that
	again time.Time // when to try after an error
}

// run looks names up, forgets backends and calls the planes, until ctx ends.
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
		timer := time.NewTimer(idle)
		select {
		case <-timer.C:
		case <-s.wake:
		case asked = <-s.awaiting:
		case <-ctx.Done():
			timer.Stop()
			return
		}
		timer.Stop()
	}
}

// tend does what is due besides calling planes, and returns when there is something to do next; zero for never.
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
		case r.config.DNS == nil || r.lookUp.running:
		case now.Before(r.lookUp.next):
			next = wake.Earlier(next, r.lookUp.next)
		default:
			r.lookUp.running = true
			name, dns, network := r.config.Name, *r.config.DNS, r.network()
			lookUps.Go(func() { s.resolve(ctx, name, dns, network) })
		}
	}
	s.mu.Unlock()
	if outdated {
		s.noteUnchecked(s.recheck(func() []*running { return s.balancers }))
	}
	return next
}

// carry has each plane carry what it should, if that is not what it does, and returns when there is
// something to do next; zero for never.
func (s *Set) carry(ctx context.Context) (next time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for ctx.Err() == nil {
		mode, next := s.due()
		if mode < 0 {
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

// due is the next plane that is to be told something, -1 if none is, and when one will be. The mutex is held.
func (s *Set) due() (Mode, time.Time) {
	var next time.Time
	if s.started.IsZero() {
		return -1, next
	}
	now := time.Now()
	if !s.ready {
		next = s.mayTell(now)
	}
	for _, mode := range s.order() {
		of := s.carriers[mode]
		if mode == Kernel && !s.ready {
			continue // a proxy has no predecessor whose work goes on
		}
		if of.err != nil && !now.Before(of.again) || !same(s.services(mode), of.tried) {
			return mode, next
		}
		if of.err != nil {
			next = wake.Earlier(next, of.again)
		}
	}
	return -1, next
}

// mayTell finds out whether it is time to tell the kernel anything, or when it will be.
func (s *Set) mayTell(now time.Time) (next time.Time) {
	deadline := s.started.Add(undisturbed)
	switch {
	case s.unheard():
	case s.unknown() && now.Before(deadline):
		return deadline
	default:
		s.ready = true
	}
	return time.Time{}
}

// order is that in which planes are told: the one that is to listen where another does comes
// first, so that there is always one that listens there. Where both do, the kernel's has the connections.
func (s *Set) order() []Mode {
	kernel := Places(s.carriers[Kernel].tried)
	for place := range Places(s.services(Proxy)) {
		if _, ok := kernel[place]; ok {
			return []Mode{Proxy, Kernel}
		}
	}
	return []Mode{Kernel, Proxy}
}

// Places are where services listen, and which does.
func Places(services []Service) map[netip.AddrPort]string {
	all := make(map[netip.AddrPort]string)
	for _, s := range services {
		for _, place := range s.Listen {
			all[place] = s.Name
		}
	}
	return all
}

// unheard reports whether there are balancers that listen, and nothing has been heard of any backend:
// that is more likely this node's fault than theirs.
func (s *Set) unheard() bool {
	listening := false
	for _, r := range s.balancers {
		if len(r.backends.known) > 0 {
			return false
		}
		listening = listening || len(r.config.Listen) > 0
	}
	return listening
}

// unknown reports whether a balancer that listens has nobody to give connections to.
func (s *Set) unknown() bool {
	return slices.ContainsFunc(s.balancers, func(r *running) bool { return len(r.config.Listen) > 0 && !r.serves() })
}

func (r *running) serves() bool {
	for _, b := range r.backends.known {
		if b.State == Serving {
			return true
		}
	}
	return false
}

// services are those that a plane should carry.
func (s *Set) services(mode Mode) []Service {
	var list []Service
	for _, r := range s.balancers {
		if r.config.Mode != mode {
			continue
		}
		service := Service{
			Name:        r.config.Name,
			Listen:      addresses(r.config.Listen),
			Method:      r.config.Method,
			Transparent: r.config.Transparent,
		}
		for _, b := range r.backends.sorted() {
			service.Backends = append(service.Backends, b.Backend)
		}
		list = append(list, service)
	}
	return list
}

// same reports whether two lists of services are the same to a plane, to which reasons are nothing.
func same(x, y []Service) bool {
	return slices.EqualFunc(x, y, func(x, y Service) bool {
		alike := slices.EqualFunc(x.Backends, y.Backends, func(x, y Backend) bool {
			return x.Name == y.Name && x.Addr == y.Addr && x.State == y.State
		})
		x.Backends, y.Backends = nil, nil
		return alike && reflect.DeepEqual(x, y)
	})
}

// logFault tells of a plane's fault when it begins or changes, and of its end.
func (s *Set) logFault(mode Mode, before, err error) {
	switch {
	case err != nil && (before == nil || before.Error() != err.Error()):
		s.log.Error("connections cannot be balanced as they should", "mode", mode, "err", err, "retry", retry)
	case err == nil && before != nil:
		s.log.Info("connections are balanced as they should again", "mode", mode)
	}
}
