package balancer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/herald-vip/herald/health"
	"github.com/herald-vip/herald/internal/wake"
)

// Set runs balancers: it tracks the state of their backends and keeps the data planes up to date. Its own goroutine calls
// the data planes. Only Close waits for them, and Status for at most a second. Its methods are safe for concurrent use.
type Set struct {
	log      *slog.Logger
	resolver resolver
	monitor  monitor
	planes   map[Mode]DataPlane
	counter  counter

	wake     chan struct{}      // wakes run
	awaiting chan chan struct{} // channels for run to close when the data planes are up to date
	stop     context.CancelFunc // ends run
	stopped  chan struct{}      // closed when run has ended

	configuring sync.Mutex // held while the checks change; locked before mu

	mu        sync.Mutex
	balancers []*running // sorted by name
	members   []Member
	verdicts  map[string]health.Verdict // by check
	started   time.Time                 // time of the first Apply
	next      time.Time                 // when to update backends again; zero means never
	outdated  bool                      // a forgotten backend is still checked
	carriers  map[Mode]carrier          // what data planes have
	ready     bool                      // the kernel may be changed, see undisturbed
}

// resolver looks up names, as [net.Resolver] does.
type resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// monitor watches backends, as [health.Monitor] does.
type monitor interface {
	Apply([]health.Check) error
	Verdicts() []health.Verdict
	Close()
}

// running is a configured balancer.
type running struct {
	config   Config
	listen   []netip.AddrPort
	backends backends
	listed   []netip.AddrPort // static backends or the addresses of a name, in order
	lookUp   lookUp
}

// New returns a Set without balancers. Close it after use.
func New(log *slog.Logger, kernel, proxy DataPlane) *Set {
	log = cmp.Or(log, slog.New(slog.DiscardHandler))
	return newSet(log, kernel, proxy, net.DefaultResolver, func(observe func(health.Verdict)) monitor {
		return health.NewMonitor(log, observe)
	})
}

func newSet(log *slog.Logger, kernel, proxy DataPlane, resolver resolver, watch func(observe func(health.Verdict)) monitor) *Set {
	ctx, stop := context.WithCancel(context.Background())
	planes := map[Mode]DataPlane{Kernel: kernel, Proxy: proxy}
	s := &Set{
		log: log, resolver: resolver, planes: planes, counter: counter{planes: planes, last: make(map[Mode][]Count)},
		wake: make(chan struct{}, 1), awaiting: make(chan chan struct{}), stop: stop, stopped: make(chan struct{}),
		verdicts: make(map[string]health.Verdict),
		carriers: make(map[Mode]carrier),
	}
	s.monitor = watch(s.observe)
	go s.run(ctx)
	return s
}

// Apply replaces the balancers. Unchanged ones and established connections are not affected. An invalid check is an error and
// changes nothing. Errors of data planes are retried and appear in Status.
func (s *Set) Apply(configs []Config) error {
	if err := s.recheck(func() []*running { return s.prepare(configs) }); err != nil {
		return fmt.Errorf("balancer: %w", err)
	}
	return nil
}

// recheck replaces the running balancers, checks exactly their backends, and updates states.
func (s *Set) recheck(wanted func() []*running) error {
	err := s.replace(wanted)
	s.update(func() {})
	return err
}

func (s *Set) replace(wanted func() []*running) error {
	s.configuring.Lock()
	defer s.configuring.Unlock()

	s.mu.Lock()
	s.outdated = false
	next := wanted()
	list := checks(next)
	s.mu.Unlock()
	if err := s.monitor.Apply(list); err != nil {
		return err
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	s.balancers = next
	if s.started.IsZero() {
		s.started = time.Now()
	}
	clear(s.verdicts)
	for _, v := range s.monitor.Verdicts() {
		s.verdicts[v.Name] = v
	}
	return nil
}

// Close stops the checks and closes the data planes. A successor loses no connection.
func (s *Set) Close() error {
	s.stop()
	<-s.stopped // no call of a data plane is under way
	s.monitor.Close()
	return errors.Join(s.planes[Kernel].Close(), s.planes[Proxy].Close())
}

// prepare returns balancers for configs, which keep the state of running ones. s.mu is held.
func (s *Set) prepare(configs []Config) []*running {
	var wanted []*running
	for _, c := range configs {
		wanted = append(wanted, s.find(c.Name).configured(c))
	}
	slices.SortFunc(wanted, func(x, y *running) int { return cmp.Compare(x.config.Name, y.config.Name) })
	return wanted
}

// configured returns r with another configuration, or a new balancer if r is nil.
func (r *running) configured(c Config) *running {
	next := &running{config: c, listen: c.addresses(), backends: newBackends(c.Forget)}
	if s := c.Backends.Static; s != nil {
		next.listed = addresses(s.Addresses)
	}
	if r == nil {
		return next
	}
	next.backends.known = r.backends.known
	if !reflect.DeepEqual(c.Backends.Members, r.config.Backends.Members) {
		for _, b := range next.backends.known {
			b.orphan = true // if the new source lacks it, it drains instead of dying
		}
	}
	if prev, dns := r.config.Backends.DNS, c.Backends.DNS; prev != nil && dns != nil && prev.Name == dns.Name && prev.Port == dns.Port {
		next.listed, next.lookUp = r.listed, r.lookUp
	}
	return next
}

func (s *Set) find(name string) *running {
	if i := slices.IndexFunc(s.balancers, func(r *running) bool { return r.config.Name == name }); i >= 0 {
		return s.balancers[i]
	}
	return nil
}

// checks returns the checks of all backends that are listed or not forgotten yet.
func checks(all []*running) []health.Check {
	var list []health.Check
	for _, r := range all {
		if r.config.Check == nil {
			continue
		}
		for _, addr := range r.watched() {
			check := *r.config.Check.HealthCheck()
			check.Name = checkName(r.config.Name, addr)
			list = append(list, CheckAt(check, addr, r.config.Backends.DNS))
		}
	}
	return list
}

// watched returns the addresses that are listed or not forgotten yet.
func (r *running) watched() []netip.AddrPort {
	return addresses(slices.AppendSeq(slices.Clone(r.listed), maps.Keys(r.backends.known)))
}

// SetMembers sets the state of all members. Call it early: until the first call the kernel may wait.
func (s *Set) SetMembers(members []Member) {
	s.update(func() { s.members = slices.Clone(members) })
}

func (s *Set) observe(v health.Verdict) {
	s.update(func() { s.verdicts[v.Name] = v })
}

// update makes a change and updates the states of all backends.
func (s *Set) update(change func()) {
	s.mu.Lock()
	change()
	now := time.Now()
	s.next = time.Time{}
	type event struct {
		balancer string
		Backend
	}
	var events []event
	for _, r := range s.balancers {
		r.backends.observe(now, s.observations(r))
		known := len(r.backends.known)
		changed, next := r.backends.update(now)
		for _, b := range changed {
			events = append(events, event{r.config.Name, b})
		}
		s.outdated = s.outdated || len(r.backends.known) < known && r.config.Check != nil
		s.next = wake.Earlier(s.next, next)
	}
	s.mu.Unlock()
	wake.Up(s.wake)
	for _, e := range events {
		level := slog.LevelInfo
		if e.State == Dead {
			level = slog.LevelWarn
		}
		s.log.Log(context.Background(), level, "backend is "+string(e.State),
			"balancer", e.balancer, "backend", e.Name, "address", e.Addr, "reason", e.Reason)
	}
}

// observations returns the current observations of a balancer's backends. s.mu is held.
func (s *Set) observations(r *running) []observation {
	if m := r.config.Backends.Members; m != nil {
		return m.observations(s.members, func(addr netip.AddrPort) bool { return r.backends.known[addr] != nil })
	}
	var all []observation
	for _, addr := range r.watched() {
		_, listed := slices.BinarySearchFunc(r.listed, addr, netip.AddrPort.Compare)
		verdict, found := s.verdicts[checkName(r.config.Name, addr)]
		if !found {
			verdict.Reason = "not probed yet"
		}
		all = append(all, checked(r.config, addr, listed, verdict))
	}
	return all
}
