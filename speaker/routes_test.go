package speaker_test

import (
	"context"
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

// tables records what is done to the kernel's tables among the node's steps, and is a keeper whose process is killed
// unless it goes on announcing.
type tables struct {
	*node
	routes map[netip.Prefix]route.Route
	last   time.Time
	full   error
	// foreign is that of a route which is not Herald's.
	foreign netip.Prefix
}

func (k *tables) setFull(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.full = err
}

func (k *tables) Announce(routes ...route.Route) error {
	k.mu.Lock()
	full := k.full
	k.last = time.Now()
	k.mu.Unlock()
	if full != nil {
		return full
	}
	for _, r := range routes {
		if r.Prefix == k.foreign {
			return errors.New("there is one that is not Herald's")
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

// runTables gives f a running speaker with tables in virtual time.
func runTables(t *testing.T, f func(t *testing.T, s *speaker.Speaker, k *tables)) {
	synctest.Test(t, func(t *testing.T) {
		k := &tables{node: newNode(), routes: make(map[netip.Prefix]route.Route)}
		s := speaker.New(slog.New(slog.NewTextHandler(io.Discard, nil)), k.node, k, k.node, speaker.FlatParts{}, bridge{k.node}, nil)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { s.Run(ctx); close(done) }()
		f(t, s, k)
		cancel()
		<-done
	})
}

func inTable() speaker.VIP {
	v := vip()
	v.Table, v.Interface = &speaker.Table{Number: 201, Metric: 100}, route.Device
	return v
}

func passing() []health.Verdict {
	return []health.Verdict{verdict("apiserver", health.Healthy), verdict("registry", health.Healthy)}
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
		k.took()
		if err := s.Drain("herald drain", 0)(t.Context()); err != nil {
			t.Fatal(err)
		}
		expect(t, k.node, "table 201: 10.99.0.10/32 metric 16777215", "table 201: no 10.99.0.10/32", "unbind 10.99.0.10")
	})
}

// The kernel kills a process that does not go on announcing.
func TestKernelRoutesAreAnnouncedAgainAndAgain(t *testing.T) {
	runTables(t, func(t *testing.T, s *speaker.Speaker, k *tables) {
		s.Apply([]speaker.VIP{inTable()}, nil, passing())
		for range 100 {
			time.Sleep(time.Second)
			synctest.Wait()
			k.mu.Lock()
			late := time.Since(k.last)
			k.mu.Unlock()
			if late > route.Patience/2 {
				t.Fatalf("the last announcement was %v ago", late)
			}
		}
	})
}

// A VIP that goes another way has the new route before it loses the old one.
func TestOtherWayReplacesTheRoute(t *testing.T) {
	prefixed := inTable()
	prefixed.Prefixes = []netip.Prefix{netip.MustParsePrefix("10.99.0.0/24")}
	runTables(t, func(t *testing.T, s *speaker.Speaker, k *tables) {
		s.Apply([]speaker.VIP{vip()}, peers(), passing())
		k.took()
		s.Apply([]speaker.VIP{inTable()}, peers(), passing())
		expect(t, k.node, "bind 10.99.0.10", "table 201: 10.99.0.10/32 metric 100", "withdraw 10.99.0.10")
		time.Sleep(time.Minute)
		synctest.Wait()
		expect(t, k.node, "unbind 10.99.0.10") // on lo
		s.Apply([]speaker.VIP{prefixed}, peers(), passing())
		expect(t, k.node, "table 201: 10.99.0.0/24 metric 100", "table 201: no 10.99.0.10/32")
		few := vip()
		few.Peers = peers()[:1]
		s.Apply([]speaker.VIP{few}, peers(), passing())
		expect(t, k.node, "bind 10.99.0.10", "table 201: 10.99.0.0/24 metric 16777215", "announce 10.99.0.10 to [r1]")
		time.Sleep(time.Minute)
		synctest.Wait()
		expect(t, k.node, "table 201: no 10.99.0.0/24", "unbind 10.99.0.10")
	})
}

// A route that cannot be made is told of, and made as soon as it can be.
func TestKernelRefuses(t *testing.T) {
	runTables(t, func(t *testing.T, s *speaker.Speaker, k *tables) {
		k.setFull(errors.New("no link"))
		s.Apply([]speaker.VIP{inTable()}, nil, passing())
		expect(t, k.node, "bind 10.99.0.10")
		if err := s.Summary().Addresses[0].Error; err != "no link" {
			t.Errorf("the status says %v", err)
		}
		k.setFull(nil)
		time.Sleep(2 * time.Second)
		synctest.Wait()
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
					t.Errorf("the first is hindered by %v", err)
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

// An address that is new behind a prefix, be it bound yet or not known to be healthy, does not take the prefix from the others.
func TestPrefixOfAllAwaitsAnAddress(t *testing.T) {
	run(t, func(t *testing.T, s *speaker.Speaker, n *node) {
		v, other := vip(), vip()
		v.Prefixes, v.All = []netip.Prefix{netip.MustParsePrefix("10.99.0.0/24")}, true
		s.Apply([]speaker.VIP{v}, peers(), passing())
		n.took()
		v.Addresses = []netip.Addr{v4, v4.Next()}
		s.Apply([]speaker.VIP{v}, peers(), passing())
		expect(t, n, "bind 10.99.0.11")

		other.Name, other.Addresses, other.Checks = "other", []netip.Addr{v4.Next().Next()}, []string{"other"}
		other.Prefixes, other.All = v.Prefixes, true
		s.Apply([]speaker.VIP{v, other}, peers(), append(passing(), health.Verdict{Name: "other"}))
		expect(t, n)
		s.Observe(verdict("other", health.Unhealthy))
		expect(t, n, "withdraw 10.99.0.0", "unbind 10.99.0.12") // which a predecessor may have bound
		s.Observe(verdict("other", health.Healthy))
		expect(t, n, "bind 10.99.0.12", "announce 10.99.0.0")

		n.setRefuse(errors.New("no link"))
		v.Addresses = append(v.Addresses, v4.Next().Next().Next())
		s.Apply([]speaker.VIP{v, other}, peers(), append(passing(), verdict("other", health.Healthy)))
		time.Sleep(2 * time.Second)
		synctest.Wait()
		expect(t, n, "withdraw 10.99.0.0") // it cannot be bound
	})
}

// What hinders one route in the kernel hinders no other.
func TestKernelRefusesOne(t *testing.T) {
	runTables(t, func(t *testing.T, s *speaker.Speaker, k *tables) {
		first, second, prefixed := inTable(), inTable(), vip()
		second.Name, second.Addresses = "second", []netip.Addr{v4.Next()}
		prefixed.Name, prefixed.Addresses, prefixed.Prefixes = "prefixed", []netip.Addr{v6}, []netip.Prefix{netip.MustParsePrefix("fd00:99::/48")}
		k.foreign = netip.PrefixFrom(v4, 32)
		s.Apply([]speaker.VIP{first, second, prefixed}, peers(), passing())
		expect(t, k.node, "bind 10.99.0.10", "bind 10.99.0.11", "bind fd00:99::10", "table 201: 10.99.0.11/32 metric 100", "announce fd00:99::")
		if all := s.Summary().Addresses; all[0].Error == "" || all[1].Error != "" {
			t.Errorf("hindered by %v and %v", all[0].Error, all[1].Error)
		}
		prefixed.Prefixes = nil
		s.Apply([]speaker.VIP{first, second, prefixed}, peers(), passing())
		expect(t, k.node, "announce fd00:99::10", "withdraw fd00:99::")
	})
}

// An address that leaves the file does not take the prefix of those that stay with it.
func TestPrefixOfAllOutlivesAnAddress(t *testing.T) {
	run(t, func(t *testing.T, s *speaker.Speaker, n *node) {
		v := vip()
		v.Addresses = []netip.Addr{v4, v4.Next()}
		v.Prefixes, v.All = []netip.Prefix{netip.MustParsePrefix("10.99.0.0/24")}, true
		s.Apply([]speaker.VIP{v}, peers(), passing())
		expect(t, n, "bind 10.99.0.10", "bind 10.99.0.11", "announce 10.99.0.0")
		v.Addresses = v.Addresses[:1]
		s.Apply([]speaker.VIP{v}, peers(), passing())
		time.Sleep(time.Minute)
		synctest.Wait()
		expect(t, n, "unbind 10.99.0.11")
	})
}

// A prefix asks for other routes only when all that is behind it is about to leave.
func TestPrefixIsMarkedWithTheLast(t *testing.T) {
	run(t, func(t *testing.T, s *speaker.Speaker, n *node) {
		v := vip()
		v.Addresses = []netip.Addr{v4, v4.Next()}
		v.Prefixes = []netip.Prefix{netip.MustParsePrefix("10.99.0.0/24")}
		s.Apply([]speaker.VIP{v}, peers(), passing())
		n.took()
		if err := s.Drain("herald drain", 0)(t.Context()); err != nil {
			t.Fatal(err)
		}
		expect(t, n, "mark 10.99.0.0", "withdraw 10.99.0.0", "unbind 10.99.0.10", "unbind 10.99.0.11")
	})
}
