package balancer

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/herald-vip/herald/health"
	"github.com/herald-vip/herald/testenv/must"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakePlane records the services of Apply.
type fakePlane struct {
	mu      sync.Mutex
	applied []Service
	applies int
	fault   error
	counts  []Count
	noCount error // of Counts
	closed  bool
	after   func() // called after each Apply
}

func (p *fakePlane) Apply(services []Service) error {
	p.mu.Lock()
	if p.after != nil {
		defer p.after() // after the unlock
	}
	defer p.mu.Unlock()
	p.applies++
	if p.fault != nil {
		return p.fault
	}
	p.applied = services
	return nil
}

func (p *fakePlane) Counts() ([]Count, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.counts, p.noCount
}

func (p *fakePlane) Close() error {
	p.closed = true
	return nil
}

// afterEach calls f after each Apply.
func (p *fakePlane) afterEach(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.after = f
}

func (p *fakePlane) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault = err
}

// failCounts makes Counts fail.
func (p *fakePlane) failCounts(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.noCount = err
}

// tries returns how often Apply was called, before time passes.
func (p *fakePlane) tries() int {
	synctest.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.applies
}

func (p *fakePlane) count(counts ...Count) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.counts = counts
}

// String describes the services, such as "api@127.0.0.1:9443: 10.0.0.1:6443 serving".
func (p *fakePlane) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []string
	for _, s := range p.applied {
		line := s.Name
		for _, l := range s.Listen {
			line += "@" + l.String()
		}
		line += ":"
		for _, b := range s.Backends {
			line += " " + b.Addr.String() + " " + string(b.State)
		}
		all = append(all, line)
	}
	return strings.Join(all, "; ")
}

// fakeMonitor has results set by a test.
type fakeMonitor struct {
	notify func(health.Verdict)

	mu       sync.Mutex
	checks   []health.Check
	verdicts map[string]health.Verdict
	closed   bool
}

func (m *fakeMonitor) Apply(checks []health.Check) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range checks {
		if c.Interval <= 0 {
			return fmt.Errorf("check %q: interval must be positive", c.Name)
		}
	}
	m.checks = checks
	return nil
}

func (m *fakeMonitor) Verdicts() []health.Verdict {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []health.Verdict
	for _, c := range m.checks {
		v, found := m.verdicts[c.Name]
		if !found {
			v = health.Verdict{Name: c.Name, Reason: "not probed yet"}
		}
		all = append(all, v)
	}
	return all
}

func (m *fakeMonitor) Close() { m.closed = true }

// find sets the result of a check, and reports it if the check runs.
func (m *fakeMonitor) find(check string, state health.State, reason string) {
	m.findVerdict(health.Verdict{Name: check, State: state, Reason: reason})
}

func (m *fakeMonitor) findVerdict(v health.Verdict) {
	m.mu.Lock()
	m.verdicts[v.Name] = v
	runs := slices.ContainsFunc(m.checks, func(c health.Check) bool { return c.Name == v.Name })
	m.mu.Unlock()
	if runs {
		m.notify(v)
	}
}

func (m *fakeMonitor) names() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []string
	for _, c := range m.checks {
		all = append(all, c.Name)
	}
	return strings.Join(all, " ")
}

// fakeResolver knows one name.
type fakeResolver struct {
	mu      sync.Mutex
	answers []netip.Addr
	network string
	asked   int
}

func (r *fakeResolver) LookupNetIP(_ context.Context, network, name string) ([]netip.Addr, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked++
	r.network = network
	if r.answers == nil {
		return nil, &net.DNSError{Err: "no such host", Name: name, Server: "10.0.0.53:53", IsNotFound: true}
	}
	return r.answers, nil
}

func (r *fakeResolver) answer(addrs ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answers = nil
	for _, a := range addrs {
		r.answers = append(r.answers, netip.MustParseAddr(a))
	}
}

// queries returns how often it was asked, and the network of the last query.
func (r *fakeResolver) queries() (asked int, network string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.asked, r.network
}

// site is a Set with fakes.
type site struct {
	*Set
	kernel, proxy *fakePlane
	monitor       *fakeMonitor
	resolver      *fakeResolver
}

// onSite calls f with a running Set in a synctest bubble.
func onSite(t *testing.T, f func(t *testing.T, x *site)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, newSite(t)) })
}

func newSite(t *testing.T) *site {
	t.Helper()
	kernel, proxy := new(fakePlane), new(fakePlane)
	s := &site{kernel: kernel, proxy: proxy, resolver: new(fakeResolver)}
	s.Set = newSet(slog.New(slog.DiscardHandler), kernel, proxy, s.resolver, func(observe func(health.Verdict)) monitor {
		s.monitor = &fakeMonitor{notify: observe, verdicts: make(map[string]health.Verdict)}
		return s.monitor
	})
	t.Cleanup(func() {
		must.Do(t, s.Close())
		if !kernel.closed || !proxy.closed || !s.monitor.closed {
			t.Error("Close left a data plane or the monitor open")
		}
	})
	return s
}

// serves reports whether a balancer has a serving backend.
func (s *site) serves(name string) bool {
	return slices.ContainsFunc(s.Backends(name), func(b Backend) bool { return b.State == Serving })
}

func (s *site) apply(t *testing.T, configs ...Config) {
	t.Helper()
	must.Do(t, s.Apply(configs))
}

// carries checks the services of the kernel's data plane before time passes.
func (s *site) carries(t *testing.T, want string) {
	t.Helper()
	synctest.Wait()
	if got := s.kernel.String(); got != want {
		t.Errorf("services %q, want %q", got, want)
	}
}

// listen returns listeners at addresses.
func listen(places ...string) []Listener {
	var all []Listener
	for _, addr := range addrPorts(places...) {
		all = append(all, Listener{Address: addr})
	}
	return all
}

func addrPorts(list ...string) []netip.AddrPort {
	var all []netip.AddrPort
	for _, a := range list {
		all = append(all, netip.MustParseAddrPort(a))
	}
	return all
}

const s = time.Second
