package speaker_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/herald-vip/herald/bgp"
	"github.com/herald-vip/herald/health"
	"github.com/herald-vip/herald/netutil/route"
	"github.com/herald-vip/herald/speaker"
	"github.com/herald-vip/herald/testenv/must"
)

// node fakes routers and kernel, and records the speaker's calls in order.
type node struct {
	mu       sync.Mutex
	did      []string
	routes   map[netip.Prefix]bgp.Route
	bound    map[netip.Addr]bool
	lifetime time.Duration // of the last BindFor
	slow     time.Duration // duration of Bind
	stuck    netip.Addr    // Unbind fails for it
	held     int           // connections of each address
	counts   []int         // addresses in each call of Held
	listing  time.Duration // duration of Held
	listings atomic.Int32  // running calls of Held

	removed                        bool  // Try reports that bound addresses are missing
	bindErr, withdrawErr, countErr error // results of Bind, Withdraw and Held
}

func newNode() *node {
	return &node{routes: make(map[netip.Prefix]bgp.Route), bound: make(map[netip.Addr]bool)}
}

func (n *node) Announce(routes ...bgp.Route) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, r := range routes {
		if old, ok := n.routes[r.Prefix]; ok && reflect.DeepEqual(old, r) {
			continue
		}
		n.routes[r.Prefix] = r
		verb := "announce"
		if r.Draining {
			verb = "mark"
		}
		did := fmt.Sprintf("%s %s", verb, r.Prefix.Addr())
		if r.Peers != nil {
			did += fmt.Sprintf(" to %v", r.Peers)
		}
		if r.DrainingPeers != nil {
			did += fmt.Sprintf(" draining %v", r.DrainingPeers)
		}
		n.did = append(n.did, did)
	}
	return nil
}

func (n *node) Withdraw(prefixes ...netip.Prefix) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.withdrawErr != nil {
		return n.withdrawErr
	}
	for _, p := range prefixes {
		if _, ok := n.routes[p]; ok {
			delete(n.routes, p)
			n.did = append(n.did, fmt.Sprintf("withdraw %s", p.Addr()))
		}
	}
	return nil
}

func (n *node) Bind(link string, a netip.Addr) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.bindErr != nil {
		return n.bindErr
	}
	time.Sleep(n.slow)
	n.bound[a] = true
	n.did = append(n.did, fmt.Sprintf("bind %s", a))
	return nil
}

// Try implements [speaker.Binder].
func (n *node) Try(_ string, a netip.Addr) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.bound[a] && n.removed:
		return errors.New("address removed")
	case n.bound[a]:
		return nil
	}
	return n.bindErr
}

func (n *node) BindFor(link string, a netip.Addr, lifetime time.Duration) error {
	n.set(func() { n.lifetime = lifetime })
	return n.Bind(link, a)
}

func (n *node) Unbind(link string, addrs ...netip.Addr) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if slices.Contains(addrs, n.stuck) {
		return errors.New("no answer")
	}
	for _, a := range addrs {
		delete(n.bound, a)
		n.did = append(n.did, fmt.Sprintf("unbind %s", a))
	}
	return nil
}

func (n *node) record(format string, args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.did = append(n.did, fmt.Sprintf(format, args...))
}

// takeSteps returns the calls since it was last called.
func (n *node) takeSteps() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	did := n.did
	n.did = nil
	return did
}

// set calls change with the mutex held.
func (n *node) set(change func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	change()
}

// load returns *err.
func (n *node) load(err *error) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return *err
}

var (
	v4 = netip.MustParseAddr("10.99.0.10")
	v6 = netip.MustParseAddr("fd00:99::10")
)

func vip() speaker.VIP {
	return speaker.VIP{
		Name: "control-plane", Addresses: []netip.Addr{v4}, Interface: "lo",
		Checks: []string{"apiserver", "registry"}, Linger: time.Second,
	}
}

func verdict(check string, s health.State) health.Verdict {
	return health.Verdict{Name: check, State: s, Reason: "because", Since: time.Now(), Cause: time.Now()}
}

func peers() []string { return []string{"r1", "r2", "r3"} }

// unknown returns the verdicts before the first results.
func unknown() []health.Verdict {
	return []health.Verdict{{Name: "apiserver"}, {Name: "registry"}}
}

func passing() []health.Verdict {
	return []health.Verdict{verdict("apiserver", health.Healthy), verdict("registry", health.Healthy)}
}

// pass lets d pass, until all goroutines wait.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// whileRunning calls f while s runs.
func whileRunning(t *testing.T, s *speaker.Speaker, f func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { s.Run(ctx); close(done) }()
	f()
	cancel()
	<-done
}

// run calls f with a running speaker in virtual time.
func run(t *testing.T, f func(t *testing.T, s *speaker.Speaker, n *node)) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		s := speaker.New(slog.New(slog.NewTextHandler(io.Discard, nil)), n, route.New(), n, speaker.FlatParts{}, bridge{n}, nil)
		whileRunning(t, s, func() { f(t, s, n) })
	})
}

func expect(t *testing.T, n *node, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, n.takeSteps()); diff != "" {
		t.Errorf("wrong steps (-want +got):\n%s", diff)
	}
}

func healthy(s *speaker.Speaker) {
	s.Observe(verdict("apiserver", health.Healthy))
	s.Observe(verdict("registry", health.Healthy))
}

// serve makes s announce VIPs, and discards the steps.
func serve(s *speaker.Speaker, n *node, vips ...speaker.VIP) {
	s.Apply(vips, peers(), unknown())
	healthy(s)
	n.takeSteps()
}

func drain(t *testing.T, s *speaker.Speaker) {
	t.Helper()
	must.Do(t, s.Drain("herald drain", 0)(t.Context()))
}

func TestAnnouncesOnlyWhenEveryCheckPasses(t *testing.T) {
	run(t, func(t *testing.T, s *speaker.Speaker, n *node) {
		s.Apply([]speaker.VIP{vip()}, peers(), unknown())
		pass(time.Minute)
		expect(t, n)
		s.Observe(verdict("apiserver", health.Healthy))
		expect(t, n)
		s.Observe(verdict("registry", health.Healthy))
		expect(t, n, "bind 10.99.0.10", "announce 10.99.0.10")
	})
}

func TestFailureWithdrawsAtOnceAndRecovers(t *testing.T) {
	run(t, func(t *testing.T, s *speaker.Speaker, n *node) {
		serve(s, n, vip())
		s.Observe(verdict("registry", health.Unhealthy))
		expect(t, n, "withdraw 10.99.0.10", "unbind 10.99.0.10")
		if last := s.Summary().Addresses[0].LastWithdrawal; last == nil || last.Reason != "registry: because" || last.Done.IsZero() {
			t.Errorf("last withdrawal: %+v", last)
		}
		s.Observe(verdict("registry", health.Healthy))
		expect(t, n, "bind 10.99.0.10", "announce 10.99.0.10")
	})
}

func TestApplyTouchesOnlyWhatChanged(t *testing.T) {
	run(t, func(t *testing.T, s *speaker.Speaker, n *node) {
		serve(s, n, vip())
		verdicts := passing()

		s.Apply([]speaker.VIP{vip()}, peers(), verdicts)
		expect(t, n)

		second := vip()
		second.Name, second.Addresses = "second", []netip.Addr{v6}
		s.Apply([]speaker.VIP{vip(), second}, peers(), verdicts)
		expect(t, n, "bind fd00:99::10", "announce fd00:99::10")

		med := uint32(7)
		first := vip()
		first.Attributes.MED = &med
		s.Apply([]speaker.VIP{first, second}, peers(), verdicts)
		expect(t, n, "announce 10.99.0.10")

		s.Apply([]speaker.VIP{second}, peers(), verdicts)
		pass(time.Minute)
		expect(t, n, "mark 10.99.0.10", "withdraw 10.99.0.10", "unbind 10.99.0.10")
		if got := len(s.Summary().Addresses); got != 1 {
			t.Errorf("%d addresses in the status, want 1", got)
		}
	})
}

// A check that returns after its removal starts without a verdict.
func TestRemovedCheckIsForgotten(t *testing.T) {
	run(t, func(t *testing.T, s *speaker.Speaker, n *node) {
		serve(s, n, vip())
		s.Apply(nil, peers(), nil)
		pass(time.Minute)
		n.takeSteps()
		s.Apply([]speaker.VIP{vip()}, peers(), unknown())
		expect(t, n)
	})
}

// The speaker logs "announcing" once the address is bound and its route passed to BGP. A peer may still be missing.
func TestLogsAnnouncingOnceBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		var log bytes.Buffer
		s := speaker.New(slog.New(slog.NewTextHandler(&log, nil)), n, route.New(), n, speaker.FlatParts{}, bridge{n}, nil)
		n.set(func() { n.bindErr = errors.New("no right") })
		serve(s, n, vip())
		s.LeasesChanged()
		if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, `level=ERROR msg="vip not announced yet"`) {
			t.Errorf("log while binding fails:\n%s", got)
		}
		log.Reset()
		n.set(func() { n.bindErr = nil })
		s.LeasesChanged()
		s.LeasesChanged()
		if got := log.String(); strings.Count(got, "\n") != 1 ||
			!strings.Contains(got, `msg="vip announcing" vip=control-plane address=10.99.0.10 reason="apiserver, registry healthy"`) {
			t.Errorf("log after binding:\n%s", got)
		}
	})
}

// The log of a Service's address must not mention the configuration file.
func TestLogOfAServicesAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		var log bytes.Buffer
		s := speaker.New(slog.New(slog.NewTextHandler(&log, nil)), n, route.New(), n, speaker.FlatParts{}, bridge{n}, nil)
		v := vip()
		v.Service = true
		serve(s, n, v)
		s.Apply(nil, peers(), nil)
		if got := log.String(); !strings.Contains(got, `msg="service address announcing"`) || strings.Contains(got, "msg=\"vip ") ||
			!strings.Contains(got, `reason="this node may no longer hold the address"`) {
			t.Errorf("log:\n%s", got)
		}
	})
}

// After a crash the address of the predecessor stays until the first verdicts, which adopt or remove it.
func TestLeftoverIsRemovedWhenUnhealthy(t *testing.T) {
	run(t, func(t *testing.T, s *speaker.Speaker, n *node) {
		s.Apply([]speaker.VIP{vip()}, peers(), unknown())
		expect(t, n)
		s.Observe(verdict("apiserver", health.Unhealthy))
		expect(t, n, "unbind 10.99.0.10")
	})
}

func TestStopIsImmediate(t *testing.T) {
	run(t, func(t *testing.T, s *speaker.Speaker, n *node) {
		serve(s, n, vip())
		start := time.Now()
		must.Do(t, s.Stop())
		expect(t, n, "withdraw 10.99.0.10", "unbind 10.99.0.10")
		if time.Since(start) != 0 {
			t.Error("stop waited")
		}
	})
}

// Both routes of a dual-stack VIP are withdrawn before either address is removed.
func TestWithdrawsRoutesBeforeUnbindingAny(t *testing.T) {
	run(t, func(t *testing.T, s *speaker.Speaker, n *node) {
		dual := vip()
		dual.Addresses = []netip.Addr{v4, v6}
		serve(s, n, dual)
		s.Observe(verdict("apiserver", health.Unhealthy))
		expect(t, n, "withdraw 10.99.0.10", "withdraw fd00:99::10", "unbind 10.99.0.10", "unbind fd00:99::10")
	})
}

// The old link keeps the address until the new link has it. Their common route is neither marked nor
// withdrawn.
func TestMoveToAnotherLinkKeepsTheRoute(t *testing.T) {
	run(t, func(t *testing.T, s *speaker.Speaker, n *node) {
		serve(s, n, vip())
		moved := vip()
		moved.Interface = "dummy0"
		s.Apply([]speaker.VIP{moved}, peers(), passing())
		pass(time.Minute)
		expect(t, n, "bind 10.99.0.10", "unbind 10.99.0.10")
	})
}

// If binding to the new link fails, the address drains from the old one.
func TestMoveToABrokenLinkWithdrawsTheRoute(t *testing.T) {
	run(t, func(t *testing.T, s *speaker.Speaker, n *node) {
		serve(s, n, vip())
		n.set(func() { n.bindErr = errors.New("link dummy0 does not exist") })
		moved := vip()
		moved.Interface = "dummy0"
		s.Apply([]speaker.VIP{moved}, peers(), passing())
		pass(time.Minute)
		expect(t, n, "mark 10.99.0.10", "withdraw 10.99.0.10", "unbind 10.99.0.10")
	})
}

func TestNothingIsAnnouncedAfterStop(t *testing.T) {
	run(t, func(t *testing.T, s *speaker.Speaker, n *node) {
		serve(s, n, vip())
		must.Do(t, s.Stop())
		n.takeSteps()
		s.Undrain()
		expect(t, n)
	})
}

// lateLog records the routes and addresses present when a withdrawal is logged.
type lateLog struct {
	slog.Handler
	node  *node
	found []string
}

func (l *lateLog) Handle(_ context.Context, r slog.Record) error {
	if r.Message == "vip withdrawn" {
		l.node.mu.Lock()
		defer l.node.mu.Unlock()
		l.found = append(l.found, fmt.Sprintf("%d routes, %d addresses", len(l.node.routes), len(l.node.bound)))
	}
	return nil
}

// A slow log, as on a full disk or a blocked pipe, does not delay a withdrawal.
func TestWithdrawsBeforeItLogs(t *testing.T) {
	n := newNode()
	log := &lateLog{Handler: slog.NewTextHandler(io.Discard, nil), node: n}
	s := speaker.New(slog.New(log), n, route.New(), n, speaker.FlatParts{}, bridge{n}, nil)
	dual := vip()
	dual.Addresses = []netip.Addr{v4, v6}
	serve(s, n, dual)
	s.Observe(verdict("apiserver", health.Unhealthy))
	if diff := cmp.Diff([]string{"0 routes, 0 addresses", "0 routes, 0 addresses"}, log.found); diff != "" {
		t.Errorf("state when the withdrawal was logged (-want +got):\n%s", diff)
	}
}

func TestBindFailureIsRetriedAndNeverAnnounced(t *testing.T) {
	run(t, func(t *testing.T, s *speaker.Speaker, n *node) {
		n.set(func() { n.bindErr = errors.New("link eth9 not found") })
		s.Apply([]speaker.VIP{vip()}, peers(), unknown())
		healthy(s)
		expect(t, n)
		if err := s.Summary().Addresses[0].Error; err != "link eth9 not found" {
			t.Errorf("status error %q", err)
		}
		n.set(func() { n.bindErr = nil })
		pass(time.Minute)
		expect(t, n, "bind 10.99.0.10", "announce 10.99.0.10")
	})
}

// The route of a removed address is withdrawn after a second, and returns with the address.
func TestRouteOfARemovedAddress(t *testing.T) {
	run(t, func(t *testing.T, s *speaker.Speaker, n *node) {
		serve(s, n, vip())
		n.set(func() { n.removed = true })
		pass(1500 * time.Millisecond)
		expect(t, n)
		pass(2 * time.Second)
		expect(t, n, "withdraw 10.99.0.10")
		if a := s.Summary().Addresses[0]; a.Error == "" || a.Blocked.IsZero() {
			t.Errorf("%+v", a)
		}
		n.set(func() { n.removed = false })
		pass(time.Second)
		expect(t, n, "announce 10.99.0.10")
	})
}

// The withdrawal of an address that was never bound is done at once.
func TestWithdrawalOfUnboundAddressIsDone(t *testing.T) {
	run(t, func(t *testing.T, s *speaker.Speaker, n *node) {
		s.Apply([]speaker.VIP{vip()}, peers(), unknown())
		s.Observe(verdict("apiserver", health.Unhealthy))
		n.set(func() { n.bindErr = errors.New("link eth9 not found") })
		healthy(s)
		s.Observe(verdict("apiserver", health.Unhealthy))
		if last := s.Summary().Addresses[0].LastWithdrawal; last == nil || last.Done.IsZero() {
			t.Errorf("last withdrawal: %+v", last)
		}
	})
}

// One call removes all addresses. If it fails, only the stuck address is retried.
func TestUnbindFailureIsRetried(t *testing.T) {
	run(t, func(t *testing.T, s *speaker.Speaker, n *node) {
		dual := vip()
		dual.Addresses = []netip.Addr{v4, v6}
		serve(s, n, dual)
		n.set(func() { n.stuck = v6 })
		s.Observe(verdict("apiserver", health.Unhealthy))
		expect(t, n, "withdraw 10.99.0.10", "withdraw fd00:99::10", "unbind 10.99.0.10")
		for _, st := range s.Summary().Addresses {
			if stuck := st.Address == v6; stuck != (st.Error != "") || stuck != st.LastWithdrawal.Done.IsZero() {
				t.Errorf("status %+v, last withdrawal %+v", st, st.LastWithdrawal)
			}
		}
		n.set(func() { n.stuck = netip.Addr{} })
		pass(time.Minute)
		expect(t, n, "unbind fd00:99::10")
	})
}

// A failed withdrawal of a route does not keep the address bound, and is retried.
func TestWithdrawalFailureIsRetried(t *testing.T) {
	run(t, func(t *testing.T, s *speaker.Speaker, n *node) {
		serve(s, n, vip())
		n.set(func() { n.withdrawErr = errors.New("out of memory") })
		s.Observe(verdict("apiserver", health.Unhealthy))
		expect(t, n, "unbind 10.99.0.10")
		if st := s.Summary().Addresses[0]; st.Error == "" || !st.LastWithdrawal.Done.IsZero() {
			t.Errorf("status %+v, last withdrawal %+v", st, st.LastWithdrawal)
		}
		n.set(func() { n.withdrawErr = nil })
		pass(time.Minute)
		expect(t, n, "withdraw 10.99.0.10")
	})
}
