package speaker_test

import (
	"errors"
	"io"
	"log/slog"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/herald-vip/herald/health"
	"github.com/herald-vip/herald/netutil/route"
	"github.com/herald-vip/herald/speaker"
)

// tables fakes the kernel's tables and records changes among the node's steps.
type tables struct {
	*node
	routes      map[netip.Prefix]route.Route
	last        time.Time // of the last Announce
	announceErr error
	foreign     netip.Prefix // of another program's route
}

func (k *tables) Announce(routes ...route.Route) error {
	k.set(func() { k.last = time.Now() })
	if err := k.load(&k.announceErr); err != nil {
		return err
	}
	for _, r := range routes {
		if r.Prefix == k.foreign {
			return errors.New("the route of another program exists")
		}
		if k.routes[r.Prefix] != r {
			k.record("table %d: %s metric %d", r.Table, r.Prefix, r.Metric)
		}
		k.routes[r.Prefix] = r
	}
	return nil
}

func (k *tables) Withdraw(prefixes ...netip.Prefix) error {
	for _, p := range prefixes {
		if r, ok := k.routes[p]; ok {
			delete(k.routes, p)
			k.record("table %d: no %s", r.Table, p)
		}
	}
	return nil
}

// runTables calls f with a running speaker and tables in virtual time.
func runTables(t *testing.T, f func(t *testing.T, s *speaker.Speaker, k *tables)) {
	synctest.Test(t, func(t *testing.T) {
		k := &tables{node: newNode(), routes: make(map[netip.Prefix]route.Route)}
		s := speaker.New(slog.New(slog.NewTextHandler(io.Discard, nil)), k.node, k, k.node, speaker.FlatParts{}, bridge{k.node}, nil)
		whileRunning(t, s, func() { f(t, s, k) })
	})
}

func inTable() speaker.VIP {
	v := vip()
	v.Table, v.Interface = &speaker.Table{Number: 201, Metric: 100}, route.Device
	return v
}

func TestKernelRouteComesAfterTheAddressAndGoesBefore(t *testing.T) {
	runTables(t, func(t *testing.T, s *speaker.Speaker, k *tables) {
		s.Apply([]speaker.VIP{inTable()}, nil, unknown())
		expect(t, k.node)
		healthy(s)
		expect(t, k.node, "bind 10.99.0.10", "table 201: 10.99.0.10/32 metric 100")
		s.Observe(verdict("registry", health.Unhealthy))
		expect(t, k.node, "table 201: no 10.99.0.10/32", "unbind 10.99.0.10")
		s.Observe(verdict("registry", health.Healthy))
		k.takeSteps()
		drain(t, s)
		expect(t, k.node, "table 201: 10.99.0.10/32 metric 16777215", "table 201: no 10.99.0.10/32", "unbind 10.99.0.10")
	})
}

// The kernel kills a process with routes that stops calling Announce.
func TestKernelRoutesAreRenewed(t *testing.T) {
	runTables(t, func(t *testing.T, s *speaker.Speaker, k *tables) {
		s.Apply([]speaker.VIP{inTable()}, nil, passing())
		for range 100 {
			pass(time.Second)
			k.mu.Lock()
			late := time.Since(k.last)
			k.mu.Unlock()
			if late > route.Patience/2 {
				t.Fatalf("the last announcement was %v ago", late)
			}
		}
	})
}

// A VIP that moves between table and peers has the new route before it loses the old one.
func TestOtherProtocolReplacesTheRoute(t *testing.T) {
	prefixed := inTable()
	prefixed.Prefixes = []netip.Prefix{netip.MustParsePrefix("10.99.0.0/24")}
	runTables(t, func(t *testing.T, s *speaker.Speaker, k *tables) {
		s.Apply([]speaker.VIP{vip()}, peers(), passing())
		k.takeSteps()
		s.Apply([]speaker.VIP{inTable()}, peers(), passing())
		expect(t, k.node, "bind 10.99.0.10", "table 201: 10.99.0.10/32 metric 100", "withdraw 10.99.0.10")
		pass(time.Minute)
		expect(t, k.node, "unbind 10.99.0.10") // on lo
		s.Apply([]speaker.VIP{prefixed}, peers(), passing())
		expect(t, k.node, "table 201: 10.99.0.0/24 metric 100", "table 201: no 10.99.0.10/32")
		few := vip()
		few.Peers = peers()[:1]
		s.Apply([]speaker.VIP{few}, peers(), passing())
		expect(t, k.node, "bind 10.99.0.10", "table 201: 10.99.0.0/24 metric 16777215", "announce 10.99.0.10 to [r1]")
		pass(time.Minute)
		expect(t, k.node, "table 201: no 10.99.0.0/24", "unbind 10.99.0.10")
	})
}

// The status shows the error of a failed route. The speaker retries until it succeeds.
func TestKernelRefuses(t *testing.T) {
	runTables(t, func(t *testing.T, s *speaker.Speaker, k *tables) {
		k.set(func() { k.announceErr = errors.New("no link") })
		s.Apply([]speaker.VIP{inTable()}, nil, passing())
		expect(t, k.node, "bind 10.99.0.10")
		if err := s.Summary().Addresses[0].Error; err != "no link" {
			t.Errorf("the status says %v", err)
		}
		k.set(func() { k.announceErr = nil })
		pass(2 * time.Second)
		expect(t, k.node, "table 201: 10.99.0.10/32 metric 100")
		if err := s.Summary().Addresses[0].Error; err != "" {
			t.Errorf("the status says %v", err)
		}
	})
}

func TestPrefix(t *testing.T) {
	prefix := netip.MustParsePrefix("10.99.0.0/24")
	dns, ntp := vip(), vip()
	dns.Checks, ntp.Checks = []string{"apiserver"}, []string{"registry"}
	ntp.Name, ntp.Addresses = "ntp", []netip.Addr{v4.Next()}
	for _, tt := range []struct {
		name                       string
		all                        bool
		first, second, fails, both []string
	}{
		{"any", false,
			[]string{"bind 10.99.0.10", "announce 10.99.0.0"}, []string{"bind 10.99.0.11"},
			[]string{"unbind 10.99.0.10"}, []string{"withdraw 10.99.0.0", "unbind 10.99.0.11"}},
		{"all", true,
			[]string{"bind 10.99.0.10"}, []string{"bind 10.99.0.11", "announce 10.99.0.0"},
			[]string{"withdraw 10.99.0.0", "unbind 10.99.0.10"}, []string{"unbind 10.99.0.11"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			run(t, func(t *testing.T, s *speaker.Speaker, n *node) {
				dns, ntp := dns, ntp
				dns.Prefixes, dns.All = []netip.Prefix{prefix}, tt.all
				ntp.Prefixes, ntp.All = dns.Prefixes, tt.all
				s.Apply([]speaker.VIP{dns, ntp}, peers(), unknown())
				s.Observe(verdict("apiserver", health.Healthy))
				expect(t, n, tt.first...)
				if err := s.Summary().Addresses[0].Error; (err != "") != tt.all {
					t.Errorf("error of the first address: %v", err)
				}
				s.Observe(verdict("registry", health.Healthy))
				expect(t, n, tt.second...)
				s.Observe(verdict("apiserver", health.Unhealthy))
				expect(t, n, tt.fails...)
				s.Observe(verdict("registry", health.Unhealthy))
				expect(t, n, tt.both...)
			})
		})
	}
}

// A prefix of all addresses stays announced while a new address waits for its first verdict.
func TestPrefixOfAllWaitsForANewAddress(t *testing.T) {
	run(t, func(t *testing.T, s *speaker.Speaker, n *node) {
		v, other := vip(), vip()
		v.Prefixes, v.All = []netip.Prefix{netip.MustParsePrefix("10.99.0.0/24")}, true
		s.Apply([]speaker.VIP{v}, peers(), passing())
		n.takeSteps()
		v.Addresses = []netip.Addr{v4, v4.Next()}
		s.Apply([]speaker.VIP{v}, peers(), passing())
		expect(t, n, "bind 10.99.0.11")

		other.Name, other.Addresses, other.Checks = "other", []netip.Addr{v4.Next().Next()}, []string{"other"}
		other.Prefixes, other.All = v.Prefixes, true
		s.Apply([]speaker.VIP{v, other}, peers(), append(passing(), health.Verdict{Name: "other"}))
		expect(t, n)
		s.Observe(verdict("other", health.Unhealthy))
		expect(t, n, "withdraw 10.99.0.0", "unbind 10.99.0.12") // a predecessor may have bound it
		s.Observe(verdict("other", health.Healthy))
		expect(t, n, "bind 10.99.0.12", "announce 10.99.0.0")

		n.set(func() { n.bindErr = errors.New("no link") })
		v.Addresses = append(v.Addresses, v4.Next().Next().Next())
		s.Apply([]speaker.VIP{v, other}, peers(), append(passing(), verdict("other", health.Healthy)))
		pass(2 * time.Second)
		expect(t, n, "withdraw 10.99.0.0") // binding the new address fails
	})
}

// The error of one kernel route does not affect other routes.
func TestKernelRefusesOne(t *testing.T) {
	runTables(t, func(t *testing.T, s *speaker.Speaker, k *tables) {
		first, second, prefixed := inTable(), inTable(), vip()
		second.Name, second.Addresses = "second", []netip.Addr{v4.Next()}
		prefixed.Name, prefixed.Addresses, prefixed.Prefixes = "prefixed", []netip.Addr{v6}, []netip.Prefix{netip.MustParsePrefix("fd00:99::/48")}
		k.foreign = netip.PrefixFrom(v4, 32)
		s.Apply([]speaker.VIP{first, second, prefixed}, peers(), passing())
		expect(t, k.node, "bind 10.99.0.10", "bind 10.99.0.11", "bind fd00:99::10", "table 201: 10.99.0.11/32 metric 100", "announce fd00:99::")
		if all := s.Summary().Addresses; all[0].Error == "" || all[1].Error != "" {
			t.Errorf("errors %q and %q, want only the first", all[0].Error, all[1].Error)
		}
		prefixed.Prefixes = nil
		s.Apply([]speaker.VIP{first, second, prefixed}, peers(), passing())
		expect(t, k.node, "announce fd00:99::10", "withdraw fd00:99::")
	})
}

// Removing an address from the file keeps the prefix of the remaining addresses announced.
func TestPrefixOfAllOutlivesAnAddress(t *testing.T) {
	run(t, func(t *testing.T, s *speaker.Speaker, n *node) {
		v := vip()
		v.Addresses = []netip.Addr{v4, v4.Next()}
		v.Prefixes, v.All = []netip.Prefix{netip.MustParsePrefix("10.99.0.0/24")}, true
		s.Apply([]speaker.VIP{v}, peers(), passing())
		expect(t, n, "bind 10.99.0.10", "bind 10.99.0.11", "announce 10.99.0.0")
		v.Addresses = v.Addresses[:1]
		s.Apply([]speaker.VIP{v}, peers(), passing())
		pass(time.Minute)
		expect(t, n, "unbind 10.99.0.11")
	})
}

// A prefix is marked only when all its addresses are leaving.
func TestPrefixIsMarkedWithTheLast(t *testing.T) {
	run(t, func(t *testing.T, s *speaker.Speaker, n *node) {
		v := vip()
		v.Addresses = []netip.Addr{v4, v4.Next()}
		v.Prefixes = []netip.Prefix{netip.MustParsePrefix("10.99.0.0/24")}
		s.Apply([]speaker.VIP{v}, peers(), passing())
		n.takeSteps()
		drain(t, s)
		expect(t, n, "mark 10.99.0.0", "withdraw 10.99.0.0", "unbind 10.99.0.10", "unbind 10.99.0.11")
	})
}

// A VIP that moves between peers is announced to the new peer before it is withdrawn from the old one.
func TestMoveBetweenPeers(t *testing.T) {
	run(t, func(t *testing.T, s *speaker.Speaker, n *node) {
		verdicts := passing()
		apply := func(names ...string) {
			v := vip()
			v.Peers = names
			s.Apply([]speaker.VIP{v}, peers(), verdicts)
		}
		apply("r1")
		expect(t, n, "bind 10.99.0.10", "announce 10.99.0.10 to [r1]")
		apply("r2")
		expect(t, n, "announce 10.99.0.10 to [r2] draining [r1]")
		pass(499 * time.Millisecond)
		expect(t, n)
		pass(time.Millisecond)
		expect(t, n, "announce 10.99.0.10 to [r2]")
		apply()
		expect(t, n, "announce 10.99.0.10")
		pass(time.Minute)
		expect(t, n)
		apply("r3")
		expect(t, n, "announce 10.99.0.10 to [r3] draining [r1 r2]")
		s.Observe(verdict("apiserver", health.Unhealthy))
		expect(t, n, "withdraw 10.99.0.10", "unbind 10.99.0.10")
		pass(time.Minute)
		expect(t, n)
		s.Observe(verdict("apiserver", health.Healthy))
		expect(t, n, "bind 10.99.0.10", "announce 10.99.0.10 to [r3]")
	})
}

// A change of peers while the VIP is withdrawn leaves no stale paths.
func TestPeersChangeWhileWithdrawn(t *testing.T) {
	run(t, func(t *testing.T, s *speaker.Speaker, n *node) {
		serve(s, n, vip())
		failed := verdict("apiserver", health.Unhealthy)
		s.Observe(failed)
		n.takeSteps()
		v := vip()
		v.Peers = []string{"r1"}
		s.Apply([]speaker.VIP{v}, peers(), []health.Verdict{failed, verdict("registry", health.Healthy)})
		s.Observe(verdict("apiserver", health.Healthy))
		expect(t, n, "bind 10.99.0.10", "announce 10.99.0.10 to [r1]")
	})
}

// The VIP moves to another link and another peer at once.
func TestMoveToAnotherLinkAndPeer(t *testing.T) {
	run(t, func(t *testing.T, s *speaker.Speaker, n *node) {
		verdicts := passing()
		v := vip()
		v.Peers = []string{"r1"}
		s.Apply([]speaker.VIP{v}, peers(), verdicts)
		n.takeSteps()
		v.Peers, v.Interface = []string{"r2"}, "dummy0"
		s.Apply([]speaker.VIP{v}, peers(), verdicts)
		expect(t, n, "bind 10.99.0.10", "announce 10.99.0.10 to [r2] draining [r1]")
		pass(time.Minute)
		expect(t, n, "announce 10.99.0.10 to [r2]", "unbind 10.99.0.10")
	})
}
