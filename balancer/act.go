package balancer

import (
	"context"
	"log/slog"
	"net/netip"
	"reflect"
	"slices"
	"time"
)

const (
	// settling is how long the kernel is left alone at the start, at most, while some balancer's
	// backends are not known yet, unless none at all is: what a predecessor has left there goes on
	// meanwhile, and knows better.
	settling = 3 * time.Second
	// retry is when a plane is tried again.
	retry = time.Second
)

// carrier is a plane and what it carries.
type carrier struct {
	plane Plane     // nil if there is none
	tried []Service // last
	err   error     // of that
	again time.Time // when to try after an error
}

// act judges all backends and has planes carry what follows. The mutex is held, and released while
// a plane is told. It returns what is to be told once it is released for good: a log may be slow.
func (s *Set) act() []news {
	if s.closed {
		return nil
	}
	now := time.Now()
	var all []news
	s.next = time.Time{}
	for _, r := range s.running {
		r.backends.see(now, s.sightings(r))
		known := len(r.backends.known)
		changed, next := r.backends.judge(now)
		for _, b := range changed {
			all = append(all, backendNews(r.config.Name, b))
		}
		s.outdated = s.outdated || len(r.backends.known) < known && r.config.Check != nil
		s.next = earlier(s.next, next)
	}
	all = append(all, s.carry()...)
	select {
	case s.wake <- struct{}{}:
	default:
	}
	return all
}

// sightings are what is known now of a balancer's backends.
func (s *Set) sightings(r *running) []sighting {
	if r.config.Members != nil {
		return r.config.Members.sightings(s.members, func(addr netip.AddrPort) bool { return r.backends.known[addr] != nil })
	}
	var all []sighting
	for _, addr := range r.watched() {
		_, listed := slices.BinarySearchFunc(r.listed, addr, netip.AddrPort.Compare)
		verdict, found := s.verdicts[checkName(r.config.Name, addr)]
		if !found {
			verdict.Reason = "not probed yet"
		}
		all = append(all, watched(r.config, addr, listed, verdict))
	}
	return all
}

// carry has each plane carry what it should, if that is not what it does. The mutex is held, but not
// while a plane is told, which may take it a while. Planes are told one at a time; who comes
// meanwhile has changed what is known, and leaves it to the first to tell them of that, too.
func (s *Set) carry() (all []news) {
	if s.started.IsZero() {
		return nil
	}
	s.settle(time.Now())
	select {
	case s.carrying <- struct{}{}:
	default:
		return nil
	}
	defer func() {
		<-s.carrying
		close(s.told)
		s.told = make(chan struct{})
	}()
	for mode := s.due(); mode >= 0; mode = s.due() {
		c, services := &s.planes[mode], s.services(mode)
		s.mu.Unlock()
		err := c.plane.Apply(services)
		s.mu.Lock()
		all = append(all, planeNews(mode, c.err, err)...)
		c.tried, c.err, c.again = services, err, time.Now().Add(retry)
	}
	for mode := range s.planes {
		if c := &s.planes[mode]; c.err != nil {
			s.next = earlier(s.next, c.again)
		}
	}
	return all
}

// settle finds out whether it is time to tell the kernel anything.
func (s *Set) settle(now time.Time) {
	if s.settled {
		return
	}
	deadline := s.started.Add(settling)
	switch {
	case s.unheard():
	case s.unknown() && now.Before(deadline):
		s.next = earlier(s.next, deadline)
	default:
		s.settled = true
	}
}

// due is the next plane that is to be told something; -1 if none is.
func (s *Set) due() Mode {
	for _, mode := range s.order() {
		c := &s.planes[mode]
		if mode == Kernel && !s.settled {
			continue // a proxy has no predecessor whose work goes on
		}
		again := c.err != nil && !time.Now().Before(c.again)
		if !s.closed && c.plane != nil && (again || !same(s.services(mode), c.tried)) {
			return mode
		}
	}
	return -1
}

// order is that in which planes are told: the one that is to listen where another does comes
// first, lest nobody listen there for a moment. Where both do, the kernel's has the connections.
func (s *Set) order() []Mode {
	kernel := places(s.planes[Kernel].tried)
	if slices.ContainsFunc(places(s.services(Proxy)), func(place netip.AddrPort) bool { return slices.Contains(kernel, place) }) {
		return []Mode{Proxy, Kernel}
	}
	return []Mode{Kernel, Proxy}
}

// places are where services listen.
func places(services []Service) []netip.AddrPort {
	var all []netip.AddrPort
	for _, s := range services {
		all = append(all, s.Listen...)
	}
	return all
}

// unheard reports whether there are balancers that listen, and nothing has been heard of any backend:
// that is more likely this node's fault than theirs.
func (s *Set) unheard() bool {
	listening := false
	for _, r := range s.running {
		if len(r.backends.known) > 0 {
			return false
		}
		listening = listening || len(r.config.Listen) > 0
	}
	return listening
}

// unknown reports whether a balancer that listens has nobody to give connections to.
func (s *Set) unknown() bool {
	return slices.ContainsFunc(s.running, func(r *running) bool { return len(r.config.Listen) > 0 && !r.serves() })
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
	for _, r := range s.running {
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

// news is what the log is to be told.
type news struct {
	level slog.Level
	text  string
	attrs []any
}

func backendNews(balancer string, b Backend) news {
	n := news{slog.LevelInfo, "backend is " + b.State.String(),
		[]any{"balancer", balancer, "backend", b.Name, "address", b.Addr, "reason", b.Reason}}
	if b.State == Dead {
		n.level = slog.LevelWarn
	}
	return n
}

// planeNews is what is new about a plane: not an error that was there before.
func planeNews(mode Mode, before, err error) []news {
	switch {
	case err != nil && (before == nil || before.Error() != err.Error()):
		return []news{{slog.LevelError, "connections cannot be balanced as they should", []any{"mode", mode, "err", err, "retry", retry}}}
	case err == nil && before != nil:
		return []news{{slog.LevelInfo, "connections are balanced as they should again", []any{"mode", mode}}}
	}
	return nil
}

// tell logs news. The mutex is not held.
func (s *Set) tell(all []news) {
	for _, n := range all {
		s.log.Log(context.Background(), n.level, n.text, n.attrs...)
	}
}

// earlier is the earlier of two times; zero is never.
func earlier(x, y time.Time) time.Time {
	if x.IsZero() || !y.IsZero() && y.Before(x) {
		return y
	}
	return x
}
