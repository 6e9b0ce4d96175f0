package balancer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/herald-vip/herald/health"
)

// Set runs balancers: it knows the state of their backends, and has planes carry their
// connections accordingly. A change of a backend reaches the plane on the goroutine that tells of it,
// or if a plane is being told of another by then, once that has ended. Its methods may be called from any
// goroutine, and but for Close none waits for what another has a plane do.
type Set struct {
	log      *slog.Logger
	resolver resolver
	monitor  monitor
	wake     chan struct{} // tells Run that something may be due earlier
	carrying chan struct{} // holds one while planes are told something
	told     chan struct{} // closed when they have been, and made anew; guarded by mu

	configuring sync.Mutex // one change of what is checked at a time; taken before mu

	counting sync.Mutex // guards tally; taken before those of planes, and without mu
	tally    tally

	mu       sync.Mutex
	running  []*running // sorted by name
	members  []Member
	verdicts map[string]health.Verdict // by check
	planes   [2]carrier                // by Mode
	settled  bool
	started  time.Time // of the first Apply
	next     time.Time // when something is to be judged again; zero for never
	outdated bool      // a backend is checked that has been forgotten
	closed   bool
}

// resolver looks names up, as [net.Resolver] does.
type resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// monitor watches backends, as [health.Monitor] does.
type monitor interface {
	Apply([]health.Check) error
	Verdicts() []health.Verdict
	Close()
}

// running is a balancer.
type running struct {
	config   Config
	backends backends
	listed   []netip.AddrPort // by the configuration, or by DNS
	lookUp   lookUp
}

// New returns a Set without balancers. A plane that is nil is one that this node does not have.
func New(log *slog.Logger, kernel, proxy Plane) *Set {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	s := &Set{
		log:      log,
		resolver: net.DefaultResolver,
		wake:     make(chan struct{}, 1),
		carrying: make(chan struct{}, 1),
		told:     make(chan struct{}),
		verdicts: make(map[string]health.Verdict),
		planes:   [...]carrier{Kernel: {plane: kernel}, Proxy: {plane: proxy}},
	}
	s.monitor = health.NewMonitor(log, s.observe)
	return s
}

// Apply makes the given balancers the ones that run. What is unchanged runs on undisturbed, and
// what is established stays so. Configuration that cannot work is an error that says
// why, and changes nothing; a plane's fault is no error, it shows in Status while it is tried again.
func (s *Set) Apply(configs []Config) error {
	if err := s.configure(configs); err != nil {
		return err
	}
	s.carryOn()
	return nil
}

func (s *Set) configure(configs []Config) error {
	s.configuring.Lock()
	defer s.configuring.Unlock()

	s.mu.Lock()
	wanted, err := s.prepare(configs)
	list := checks(wanted)
	s.mu.Unlock()
	if err != nil {
		return err
	}
	if err := s.monitor.Apply(list); err != nil {
		return fmt.Errorf("balancer: %w", err)
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	s.running = wanted
	if s.started.IsZero() {
		s.started = time.Now()
	}
	s.checked()
	return nil
}

// carryOn acts on what is known now.
func (s *Set) carryOn() {
	s.mu.Lock()
	news := s.act()
	s.mu.Unlock()
	s.tell(news)
}

// Close stops watching backends, and closes the planes: a successor loses no connection. Run has
// to have ended.
func (s *Set) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.monitor.Close()
	s.carrying <- struct{}{} // what a plane is being told ends before
	defer func() { <-s.carrying }()
	var errs []error
	for mode := range s.planes {
		if plane := s.planes[mode].plane; plane != nil {
			errs = append(errs, plane.Close())
		}
	}
	return errors.Join(errs...)
}

// prepare makes what is to run from configuration and from what runs already.
func (s *Set) prepare(configs []Config) ([]*running, error) {
	var wanted []*running
	for _, c := range configs {
		err := c.validate()
		switch {
		case slices.ContainsFunc(wanted, func(r *running) bool { return r.config.Name == c.Name }):
			err = errors.New("there are two of this name")
		case err != nil:
		case s.planes[c.Mode].plane == nil && c.Mode == Kernel:
			err = errors.New("this node's kernel cannot balance: set mode: proxy")
		case s.planes[c.Mode].plane == nil:
			err = errors.New("there is no proxy")
		}
		if err != nil {
			return nil, fmt.Errorf("balancer %q: %w", c.Name, err)
		}
		wanted = append(wanted, s.find(c.Name).configured(c))
	}
	slices.SortFunc(wanted, func(x, y *running) int { return cmp.Compare(x.config.Name, y.config.Name) })
	return wanted, nil
}

// configured is a balancer's successor with another configuration; that of nil is a new one.
func (r *running) configured(c Config) *running {
	next := &running{config: c, listed: addresses(c.Static), backends: newBackends(c.Forget)}
	if r == nil {
		return next
	}
	next.backends.known = r.backends.known
	if !reflect.DeepEqual(c.Members, r.config.Members) {
		next.backends.orphan()
	}
	if r.config.DNS != nil && c.DNS != nil && r.config.DNS.Name == c.DNS.Name && r.config.DNS.Port == c.DNS.Port {
		next.listed, next.lookUp = r.listed, r.lookUp
	}
	return next
}

func (s *Set) find(name string) *running {
	for _, r := range s.running {
		if r.config.Name == name {
			return r
		}
	}
	return nil
}

// checks are those of all backends that are listed or not forgotten yet.
func checks(all []*running) []health.Check {
	var list []health.Check
	for _, r := range all {
		if r.config.Check == nil {
			continue
		}
		for _, addr := range r.watched() {
			list = append(list, checkFor(r.config, addr))
		}
	}
	return list
}

// watched are the addresses that are listed, and those that were and are not forgotten yet.
func (r *running) watched() []netip.AddrPort {
	list := slices.Clone(r.listed)
	for addr := range r.backends.known {
		list = append(list, addr)
	}
	return addresses(list)
}

// Offered tells what all members say of themselves now. The first call should come as soon as
// that is known.
func (s *Set) Offered(members []Member) {
	s.mu.Lock()
	s.members = slices.Clone(members)
	news := s.act()
	s.mu.Unlock()
	s.tell(news)
}

// observe takes a verdict and acts on it, on the check's own goroutine.
func (s *Set) observe(v health.Verdict) {
	s.mu.Lock()
	s.verdicts[v.Check] = v
	news := s.act()
	s.mu.Unlock()
	s.tell(news)
}

// checked takes the verdicts of all that is checked, and of nothing else, after that has changed.
// The mutex is held.
func (s *Set) checked() {
	s.outdated = false
	clear(s.verdicts)
	for _, v := range s.monitor.Verdicts() {
		s.verdicts[v.Check] = v
	}
}
