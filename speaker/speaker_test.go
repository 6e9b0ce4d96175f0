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
)

// node records, in order, what the speaker does to the routers and the kernel.
type node struct {
	mu       sync.Mutex
	did      []string
	routes   map[netip.Prefix]bgp.Route
	bound    map[netip.Addr]bool
	refuse   error
	lifetime time.Duration // of the last BindFor
	slow     time.Duration // how long Bind takes
	stuck    netip.Addr    // Unbind refuses it
	deaf     error         // of Withdraw
	held     int           // connections by each address that is passed on
	counts   []int         // of so many addresses each
	silent   error         // of a count
	listing  time.Duration // how long a count takes
	listings atomic.Int32  // counts under way
	taken    bool          // what was bound is not there any more
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
	if n.deaf != nil {
		return n.deaf
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
	if n.refuse != nil {
		return n.refuse
	}
	time.Sleep(n.slow)
	n.bound[a] = true
	n.did = append(n.did, fmt.Sprintf("bind %s", a))
	return nil
}

// Try says what Bind would say, and of what is bound that it is, unless somebody took it away.
func (n *node) Try(_ string, a netip.Addr) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.bound[a] && n.taken:
		return errors.New("somebody took it away")
	case n.bound[a]:
		return nil
	}
	return n.refuse
}

func (n *node) hold(held int, silent error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.held, n.silent = held, silent
}

func (n *node) BindFor(link string, a netip.Addr, lifetime time.Duration) error {
	n.mu.Lock()
	n.lifetime = lifetime
	n.mu.Unlock()
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

// took returns what was done since the last call.
func (n *node) took() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	did := n.did
	n.did = nil
	return did
}

func (n *node) setStuck(a netip.Addr) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.stuck = a
}

func (n *node) setDeaf(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.deaf = err
}

func (n *node) setTaken(taken bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.taken = taken
}

func (n *node) setRefuse(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.refuse = err
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

func unknown() []health.Verdict {
	return []health.Verdict{{Name: "apiserver"}, {Name: "registry"}}
}

// run gives f a running speaker in virtual time.
func run(t *testing.T, f func(t *testing.T, s *speaker.Speaker, n *node)) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		s := speaker.New(slog.New(slog.NewTextHandler(io.Discard, nil)), n, route.New(), n, speaker.FlatParts{}, bridge{n}, nil)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { s.Run(ctx); close(done) }()
		f(t, s, n)
		cancel()
		<-done
	})
}

func expect(t *testing.T, n *node, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, n.took()); diff != "" {
		t.Errorf("wrong steps (-want +got):\n%s", diff)
	}
}

func healthy(s *speaker.Speaker) {
	s.Observe(verdict("apiserver", health.Healthy))
	s.Observe(verdict("registry", health.Healthy))
}

func TestAnnouncesOnlyWhenEveryCheckPasses(t *testing.T) {
	run(t, func(t *testing.T, s *speaker.Speaker, n *node) {
		s.Apply([]speaker.VIP{vip()}, peers(), unknown())
		time.Sleep(time.Minute)
		synctest.Wait()
		expect(t, n)
		s.Observe(verdict("apiserver", health.Healthy))
		expect(t, n)
		s.Observe(verdict("registry", health.Healthy))
		expect(t, n, "bind 10.99.0.10", "announce 10.99.0.10")
	})
}

func TestFailureWithdrawsAtOnceAndRecovers(t *testing.T) {
	run(t, func(t *testing.T, s *speaker.Speaker, n *node) {
		s.Apply([]speaker.VIP{vip()}, peers(), unknown())
		healthy(s)
		n.took()
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
		s.Apply([]speaker.VIP{vip()}, peers(), unknown())
		healthy(s)
		n.took()
		verdicts := []health.Verdict{verdict("apiserver", health.Healthy), verdict("registry", health.Healthy)}

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
		time.Sleep(time.Minute)
		synctest.Wait()
		expect(t, n, "mark 10.99.0.10", "withdraw 10.99.0.10", "unbind 10.99.0.10")
		if got := len(s.Summary().Addresses); got != 1 {
			t.Errorf("%d addresses in status, want the removed one forgotten", got)
		}
	})
}

// A check that was removed and comes back starts without a verdict.
func TestRemovedCheckIsForgotten(t *testing.T) {
	run(t, func(t *testing.T, s *speaker.Speaker, n *node) {
		s.Apply([]speaker.VIP{vip()}, peers(), unknown())
		healthy(s)
		s.Apply(nil, peers(), nil)
		time.Sleep(time.Minute)
		synctest.Wait()
		n.took()
		s.Apply([]speaker.VIP{vip()}, peers(), unknown())
		expect(t, n)
	})
}

// Bound and offered is all that is known then: no peer may be there to be sent it.
func TestAnnouncingIsLoggedWhenItIsTrue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		var log bytes.Buffer
		s := speaker.New(slog.New(slog.NewTextHandler(&log, nil)), n, route.New(), n, speaker.FlatParts{}, bridge{n}, nil)
		n.setRefuse(errors.New("no right"))
		s.Apply([]speaker.VIP{vip()}, peers(), unknown())
		healthy(s)
		s.LeasesChanged()
		if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, `level=ERROR msg="vip not announced yet"`) {
			t.Errorf("the log is, while it cannot be bound:\n%s", got)
		}
		log.Reset()
		n.setRefuse(nil)
		s.LeasesChanged()
		s.LeasesChanged()
		if got := log.String(); strings.Count(got, "\n") != 1 ||
			!strings.Contains(got, `msg="vip announcing" vip=control-plane address=10.99.0.10 reason="apiserver, registry healthy"`) {
			t.Errorf("the log is, once it is bound:\n%s", got)
		}
	})
}

// The address of a Service is in no configuration that it could be out of.
func TestLogOfAServicesAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		var log bytes.Buffer
		s := speaker.New(slog.New(slog.NewTextHandler(&log, nil)), n, route.New(), n, speaker.FlatParts{}, bridge{n}, nil)
		v := vip()
		v.Service = true
		s.Apply([]speaker.VIP{v}, peers(), unknown())
		healthy(s)
		s.Apply(nil, peers(), nil)
		if got := log.String(); !strings.Contains(got, `msg="service address announcing"`) || strings.Contains(got, "msg=\"vip ") ||
			!strings.Contains(got, `reason="this node may no longer hold the address"`) {
			t.Errorf("the log is:\n%s", got)
		}
	})
}

// After a crash the address of the predecessor is left alone until the checks
// have spoken, then adopted or removed.
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
		s.Apply([]speaker.VIP{vip()}, peers(), unknown())
		healthy(s)
		n.took()
		start := time.Now()
		if err := s.Stop(); err != nil {
			t.Fatal(err)
		}
		expect(t, n, "withdraw 10.99.0.10", "unbind 10.99.0.10")
		if time.Since(start) != 0 {
			t.Error("stop waited")
		}
	})
}

// Both addresses of a dual-stack VIP go in one withdrawal, before either is unbound.
func TestWithdrawsRoutesBeforeUnbindingAny(t *testing.T) {
	run(t, func(t *testing.T, s *speaker.Speaker, n *node) {
		dual := vip()
		dual.Addresses = []netip.Addr{v4, v6}
		s.Apply([]speaker.VIP{dual}, peers(), unknown())
		healthy(s)
		n.took()
		s.Observe(verdict("apiserver", health.Unhealthy))
		did := n.took()
		want := []string{"withdraw 10.99.0.10", "withdraw fd00:99::10", "unbind 10.99.0.10", "unbind fd00:99::10"}
		if !slices.Equal(did, want) {
			t.Errorf("got %q, want %q", did, want)
		}
	})
}

// The old link keeps the address until the new one has it, and the route, which
// is the same for both, is neither marked nor withdrawn.
func TestMoveToAnotherLinkKeepsTheRoute(t *testing.T) {
	run(t, func(t *testing.T, s *speaker.Speaker, n *node) {
		s.Apply([]speaker.VIP{vip()}, peers(), unknown())
		healthy(s)
		n.took()
		moved := vip()
		moved.Interface = "dummy0"
		s.Apply([]speaker.VIP{moved}, peers(), []health.Verdict{verdict("apiserver", health.Healthy), verdict("registry", health.Healthy)})
		time.Sleep(time.Minute)
		synctest.Wait()
		expect(t, n, "bind 10.99.0.10", "unbind 10.99.0.10")
	})
}

// If the new link does not take the address, the old one is drained as ever.
func TestMoveToABrokenLinkWithdrawsTheRoute(t *testing.T) {
	run(t, func(t *testing.T, s *speaker.Speaker, n *node) {
		s.Apply([]speaker.VIP{vip()}, peers(), unknown())
		healthy(s)
		n.took()
		n.setRefuse(errors.New("link dummy0 does not exist"))
		moved := vip()
		moved.Interface = "dummy0"
		s.Apply([]speaker.VIP{moved}, peers(), []health.Verdict{verdict("apiserver", health.Healthy), verdict("registry", health.Healthy)})
		time.Sleep(time.Minute)
		synctest.Wait()
		expect(t, n, "mark 10.99.0.10", "withdraw 10.99.0.10", "unbind 10.99.0.10")
	})
}

func TestNothingIsAnnouncedAfterStop(t *testing.T) {
	run(t, func(t *testing.T, s *speaker.Speaker, n *node) {
		s.Apply([]speaker.VIP{vip()}, peers(), unknown())
		healthy(s)
		if err := s.Stop(); err != nil {
			t.Fatal(err)
		}
		n.took()
		s.Undrain()
		expect(t, n)
	})
}

// lateLog says what was announced and bound when it was told that a VIP is withdrawn.
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

// A log on a full disk or a stuck pipe does not hold up a withdrawal.
func TestWithdrawsBeforeItLogs(t *testing.T) {
	n := newNode()
	log := &lateLog{Handler: slog.NewTextHandler(io.Discard, nil), node: n}
	s := speaker.New(slog.New(log), n, route.New(), n, speaker.FlatParts{}, bridge{n}, nil)
	dual := vip()
	dual.Addresses = []netip.Addr{v4, v6}
	s.Apply([]speaker.VIP{dual}, peers(), unknown())
	healthy(s)
	s.Observe(verdict("apiserver", health.Unhealthy))
	if diff := cmp.Diff([]string{"0 routes, 0 addresses", "0 routes, 0 addresses"}, log.found); diff != "" {
		t.Errorf("when it was logged (-want +got):\n%s", diff)
	}
}
