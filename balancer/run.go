package balancer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"
)

const (
	// maxAddresses is how many addresses of a name are used.
	maxAddresses = 64
	// lookUpTimeout bounds a look-up, and impatience is when one that failed is tried again, at
	// the latest.
	lookUpTimeout = 10 * time.Second
	impatience    = 5 * time.Second
)

// lookUp is the looking up of a name.
type lookUp struct {
	next    time.Time
	running bool
	err     error // of the last one
}

// Run looks names up, forgets backends and tries planes again, until ctx ends. It is to run once.
func (s *Set) Run(ctx context.Context) {
	var lookUps sync.WaitGroup
	defer lookUps.Wait()
	for {
		idle := time.Hour
		if next := s.tend(ctx, &lookUps); !next.IsZero() {
			idle = time.Until(next)
		}
		timer := time.NewTimer(idle)
		select {
		case <-timer.C:
		case <-s.wake:
		case <-ctx.Done():
			timer.Stop()
			return
		}
		timer.Stop()
	}
}

// tend does what is due, and returns when there is something to do next; zero for never.
func (s *Set) tend(ctx context.Context, lookUps *sync.WaitGroup) time.Time {
	now := time.Now()
	s.mu.Lock()
	var all []news
	if !s.next.IsZero() && !now.Before(s.next) {
		all = s.act()
	}
	next := s.next
	for _, r := range s.running {
		switch {
		case r.config.DNS == nil || r.lookUp.running:
		case now.Before(r.lookUp.next):
			next = earlier(next, r.lookUp.next)
		default:
			r.lookUp.running = true
			name, dns, network := r.config.Name, *r.config.DNS, r.network()
			lookUps.Go(func() { s.resolve(ctx, name, dns, network) })
		}
	}
	outdated := s.outdated
	s.mu.Unlock()
	s.tell(all)
	if outdated {
		s.recheck(func() {})
	}
	return next
}

// network is the family of addresses to look up: the kernel cannot translate one into the other.
func (r *running) network() string {
	is4 := func(a netip.AddrPort) bool { return a.Addr().Unmap().Is4() }
	is6 := func(a netip.AddrPort) bool { return !is4(a) }
	listen := r.config.Listen
	switch {
	case r.config.Mode == Proxy || len(listen) == 0:
		return "ip"
	case !slices.ContainsFunc(listen, is6):
		return "ip4"
	case !slices.ContainsFunc(listen, is4):
		return "ip6"
	default:
		return "ip"
	}
}

// resolve looks a balancer's name up, once, and makes known what came of it.
func (s *Set) resolve(ctx context.Context, balancer string, dns DNS, network string) {
	bounded, cancel := context.WithTimeout(ctx, lookUpTimeout)
	defer cancel()
	ips, err := s.resolver.LookupNetIP(bounded, network, dns.Name)
	if ctx.Err() != nil {
		return
	}
	s.recheck(func() {
		r := s.find(balancer)
		if r == nil || r.config.DNS == nil || r.config.DNS.Name != dns.Name || r.config.DNS.Port != dns.Port {
			return // configured otherwise meanwhile
		}
		r.lookUp = lookUp{next: time.Now().Add(r.config.DNS.Interval), err: err}
		if err != nil {
			var named *net.DNSError // which says of which name
			if !errors.As(err, &named) {
				err = fmt.Errorf("look up %s: %w", dns.Name, err)
			}
			r.lookUp.err = err
			r.lookUp.next = time.Now().Add(min(r.config.DNS.Interval, impatience))
			return
		}
		var list []netip.AddrPort
		for _, ip := range ips {
			list = append(list, netip.AddrPortFrom(ip.Unmap(), dns.Port))
		}
		list = addresses(list)
		r.listed = list[:min(len(list), maxAddresses)]
	})
}

// recheck makes a change to what is listed, has exactly that checked, and acts on it.
func (s *Set) recheck(change func()) {
	s.relist(change)
	s.carryOn()
}

func (s *Set) relist(change func()) {
	s.configuring.Lock()
	defer s.configuring.Unlock()

	s.mu.Lock()
	change()
	list := checks(s.running)
	s.mu.Unlock()

	// The list differs from a valid one by addresses only.
	if err := s.monitor.Apply(list); err != nil {
		s.log.Error("backends cannot be checked", "err", err)
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	s.checked()
}

// Serves reports whether a balancer of this name has a backend for new connections.
func (s *Set) Serves(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.find(name)
	return r != nil && r.serves()
}

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
	counts, errs := s.counts()
	enough := time.After(time.Second)
	s.mu.Lock()
	defer s.mu.Unlock()
	for waiting := true; waiting && len(s.carrying) > 0; {
		told := s.told
		s.mu.Unlock()
		select {
		case <-told:
		case <-enough:
			waiting = false
		}
		s.mu.Lock()
	}
	var list []Status
	for _, r := range s.running {
		c := r.config
		status := Status{Name: c.Name, Listen: slices.Clone(c.Listen), Method: c.Method, Mode: c.Mode}
		for _, err := range []error{concerning(c.Name, s.planes[c.Mode].err), r.lookUp.err, errs[c.Mode]} {
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

// counted is what connections are counted by.
type counted struct {
	balancer string
	backend  netip.AddrPort
}

// tally is what the planes counted, begun at a time.
type tally struct {
	begun  time.Time
	counts map[counted]Count
	last   [2][]Count // what each plane has told
	errs   [2]error
}

// counts asks the planes. The mutex is not held: it may take them a while. They are asked once at a
// time, and who waited for long enough shares the answer: anybody may ask for a status, as often
// as they like, and that must not be in the way of a change or of the bridge.
func (s *Set) counts() (map[counted]Count, [2]error) {
	asked := time.Now()
	s.counting.Lock()
	defer s.counting.Unlock()
	if !s.tally.begun.After(asked) {
		s.tally = s.count(s.tally.last)
	}
	return s.tally.counts, s.tally.errs
}

// count asks all planes. What one that does not answer has told last counts still: who reads counters
// takes a smaller one for a beginning.
func (s *Set) count(before [2][]Count) tally {
	t := tally{begun: time.Now(), counts: make(map[counted]Count), last: before}
	for mode := range s.planes {
		plane := s.planes[mode].plane
		if plane == nil {
			continue
		}
		counts, err := plane.Counts()
		if err != nil {
			t.errs[mode] = fmt.Errorf("connections cannot be counted: %w", err)
		} else {
			t.last[mode] = counts
		}
		for _, n := range t.last[mode] {
			key := counted{n.Service, n.Backend}
			n.Connections += t.counts[key].Connections
			t.counts[key] = n
		}
	}
	return t
}
