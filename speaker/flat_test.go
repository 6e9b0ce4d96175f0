package speaker_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/herald-vip/herald/bgp"
	election "github.com/herald-vip/herald/election/lease"
	"github.com/herald-vip/herald/health"
	"github.com/herald-vip/herald/netutil/route"
	"github.com/herald-vip/herald/speaker"
)

// flat fakes leases, fence and announcer, and records their calls among the node's steps.
type flat struct {
	*node
	lease speaker.Lease
	limit time.Time    // end of the announcements
	log   bytes.Buffer // the speaker's; read it only while the speaker waits

	filterErr, tryErr, openErr, closeErr error // results of the fence
	announceErr, arpTryErr               error // results of the announcer
}

func (f *flat) Campaign(candidacies ...election.Candidacy) {
	for _, c := range candidacies {
		f.record("campaign for %s with %d", c.Lease, c.Priority)
	}
}
func (f *flat) Forget(leases ...string) { f.record("forget %s", strings.Join(leases, " ")) }

func (f *flat) StepDown(leases ...string) {
	f.record("step down from %s", strings.Join(leases, " "))
	f.set(func() { f.lease = speaker.Lease{Reason: f.lease.Reason} })
}
func (f *flat) Lease(...string) speaker.Lease {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lease
}

func (f *flat) Filter(addrs ...netip.Addr) error {
	f.record("filter %s", list(addrs))
	return f.load(&f.filterErr)
}

func (f *flat) Close(addrs ...netip.Addr) error {
	f.record("close %s", list(addrs))
	return f.load(&f.closeErr)
}
func (f *flat) Try() error { return f.load(&f.tryErr) }
func (f *flat) Accept(until time.Time, addrs ...netip.Addr) error {
	f.record("accept %s for %v", list(addrs), time.Until(until))
	return nil
}

func (f *flat) Open(until time.Time, addrs ...netip.Addr) error {
	f.record("open %s for %v", list(addrs), time.Until(until))
	return f.load(&f.openErr)
}

// announcer implements [speaker.Announcer]; node has other methods of the same names.
type announcer struct{ *flat }

func (a announcer) Announce(until time.Time, _ string, addrs ...netip.Addr) error {
	a.record("arp announce %s", list(addrs))
	a.set(func() { a.limit = until })
	return a.load(&a.announceErr)
}
func (a announcer) Try() error { return a.load(&a.arpTryErr) }
func (a announcer) Withdraw(_ string, addrs ...netip.Addr) {
	a.record("arp withdraw %s", list(addrs))
}
func (a announcer) Limit(until time.Time, _ string, _ ...netip.Addr) {
	a.set(func() { a.limit = until })
}

func list(addrs []netip.Addr) string {
	var s []string
	for _, a := range addrs {
		s = append(s, a.String())
	}
	return strings.Join(s, " ")
}

func flatVIP() speaker.VIP {
	v := vip()
	v.Interface, v.Flat = "eth0", &speaker.Flat{Priority: 100, Lifetime: 2 * time.Second, Leases: []string{v.Name}}
	return v
}

// runFlat calls f with a running speaker that campaigns for a flat VIP.
func runFlat(t *testing.T, unfenced bool, f func(t *testing.T, s *speaker.Speaker, l *flat)) {
	synctest.Test(t, func(t *testing.T) {
		l := &flat{node: newNode()}
		parts := speaker.FlatParts{Leases: l, Announcer: announcer{l}}
		if !unfenced {
			parts.Fence = l
		}
		s := speaker.New(slog.New(slog.NewTextHandler(&l.log, nil)), l.node, route.New(), l.node, parts, bridge{l.node}, &others{})
		whileRunning(t, s, func() {
			s.Apply([]speaker.VIP{flatVIP()}, nil, unknown())
			l.takeSteps()
			healthy(s)
			expect(t, l.node, "campaign for control-plane with 100")
			f(t, s, l)
		})
	})
}

const lease = 600 * time.Millisecond

// grant grants or renews the lease.
func (f *flat) grant(s *speaker.Speaker) {
	f.set(func() { f.lease = speaker.Lease{Until: time.Now().Add(lease)} })
	s.LeasesChanged()
}

// acquire grants the lease and discards the steps.
func (f *flat) acquire(s *speaker.Speaker) {
	f.grant(s)
	f.takeSteps()
}

func TestFlatCampaignsOnlyWhileHealthy(t *testing.T) {
	runFlat(t, false, func(t *testing.T, s *speaker.Speaker, l *flat) {
		s.Observe(verdict("registry", health.Unhealthy))
		expect(t, l.node, "step down from control-plane")
		s.Observe(verdict("registry", health.Healthy))
		expect(t, l.node, "campaign for control-plane with 100")
	})
}

func TestFlatOpensBeforeItBindsAndAnnounces(t *testing.T) {
	runFlat(t, false, func(t *testing.T, s *speaker.Speaker, l *flat) {
		l.grant(s)
		expect(t, l.node, "open 10.99.0.10 for 600ms", "bind 10.99.0.10", "arp announce 10.99.0.10")
		time.Sleep(lease / 3)
		l.grant(s)
		expect(t, l.node, "open 10.99.0.10 for 600ms")
		if a := s.Summary().Addresses[0]; a.Stage != speaker.Announced {
			t.Errorf("%+v", a)
		}
	})
}

// The lifetime of the address in the kernel follows the lease, also after a change.
func TestFlatLifetime(t *testing.T) {
	runFlat(t, false, func(t *testing.T, s *speaker.Speaker, l *flat) {
		l.acquire(s)
		if l.lifetime != 2*time.Second {
			t.Errorf("bound for %v", l.lifetime)
		}
		longer := flatVIP()
		longer.Flat.Lifetime = 5 * time.Second
		known := passing()
		s.Apply([]speaker.VIP{longer}, nil, known)
		if expect(t, l.node, "filter 10.99.0.10", "bind 10.99.0.10"); l.lifetime != 5*time.Second {
			t.Errorf("bound for %v after the change", l.lifetime)
		}
		s.Apply([]speaker.VIP{longer}, nil, known)
		expect(t, l.node, "filter 10.99.0.10")
	})
}

// The announcer's frames bypass the fence, so the announcer has its own end time.
func TestFlatIsAnnouncedAsLongAsTheLeaseLasts(t *testing.T) {
	for _, unfenced := range []bool{false, true} {
		runFlat(t, unfenced, func(t *testing.T, s *speaker.Speaker, l *flat) {
			for range 3 {
				l.grant(s)
				synctest.Wait()
				l.set(func() {
					if !l.limit.Equal(l.lease.Until) {
						t.Errorf("announced until %v, want the end of the lease %v", l.limit, l.lease.Until)
					}
				})
				time.Sleep(lease / 3)
			}
		})
	}
}

// After a failed announcement the announcer must not retry by itself.
func TestFlatAnnouncementFails(t *testing.T) {
	runFlat(t, false, func(t *testing.T, s *speaker.Speaker, l *flat) {
		l.set(func() { l.announceErr = errors.New("the link is down") })
		l.grant(s)
		expect(t, l.node, "open 10.99.0.10 for 600ms", "bind 10.99.0.10", "arp announce 10.99.0.10", "arp withdraw 10.99.0.10")
		s.Observe(verdict("registry", health.Unhealthy))
		expect(t, l.node, "unbind 10.99.0.10", "close 10.99.0.10", "step down from control-plane")
	})
}

// If binding outlasts the lease, the address is not announced.
func TestFlatDoesNotAnnounceAfterItsLease(t *testing.T) {
	runFlat(t, false, func(t *testing.T, s *speaker.Speaker, l *flat) {
		synctest.Wait() // no other goroutine runs during Bind
		l.slow = lease
		l.grant(s)
		synctest.Wait()
		expect(t, l.node, "open 10.99.0.10 for 600ms", "bind 10.99.0.10", "unbind 10.99.0.10", "close 10.99.0.10",
			"step down from control-plane", "campaign for control-plane with 100")
	})
}

// A failed Filter is retried after a second.
func TestFlatRetriesFilter(t *testing.T) {
	runFlat(t, false, func(t *testing.T, s *speaker.Speaker, l *flat) {
		known := passing()
		l.set(func() { l.filterErr = errors.New("nftables is busy") })
		s.Apply([]speaker.VIP{flatVIP()}, nil, known)
		l.set(func() { l.filterErr = nil })
		l.takeSteps()
		pass(time.Second)
		expect(t, l.node, "filter 10.99.0.10")
		l.grant(s)
		expect(t, l.node, "open 10.99.0.10 for 600ms", "bind 10.99.0.10", "arp announce 10.99.0.10")
	})
}

// The fence does not open for an address while Filter fails.
func TestFlatDoesNotOpenUnfiltered(t *testing.T) {
	runFlat(t, false, func(t *testing.T, s *speaker.Speaker, l *flat) {
		l.set(func() { l.filterErr = errors.New("nftables is busy") })
		s.Apply([]speaker.VIP{flatVIP()}, nil, passing())
		l.takeSteps()
		l.grant(s)
		for _, did := range l.takeSteps() {
			if strings.HasPrefix(did, "open") {
				t.Error(did)
			}
		}
	})
}

// apart fakes leases with different ends, by VIP.
type apart struct {
	*flat
	ends map[string]time.Time
}

func (a apart) Lease(leases ...string) speaker.Lease { return speaker.Lease{Until: a.ends[leases[0]]} }

// The first VIP, of the control plane, does not wait for Services' VIPs granted at the same time.
func TestFlatOpensInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &flat{node: newNode()}
		leases := apart{l, make(map[string]time.Time)}
		s := speaker.New(slog.New(slog.DiscardHandler), l.node, route.New(), l.node, speaker.FlatParts{Leases: leases, Announcer: announcer{l}, Fence: l}, nil, nil)
		var vips []speaker.VIP
		var want []string
		for i := range 8 {
			v := flatVIP()
			v.Name = fmt.Sprint("vip", i)
			v.Flat.Leases = []string{v.Name}
			v.Addresses = []netip.Addr{netip.AddrFrom4([4]byte{10, 99, 1, byte(i)})}
			leases.ends[v.Name] = time.Now().Add(lease - time.Duration(i))
			vips = append(vips, v)
			want = append(want, fmt.Sprintf("open %v for %v", v.Addresses[0], lease-time.Duration(i)))
		}
		s.Apply(vips, nil, passing())
		got := slices.DeleteFunc(l.takeSteps(), func(did string) bool { return !strings.HasPrefix(did, "open ") })
		if !slices.Equal(got, want) {
			t.Errorf("opened %q\nwant %q", got, want)
		}
	})
}

func TestFlatOpensAgainAfterTheFenceClosed(t *testing.T) {
	runFlat(t, false, func(t *testing.T, s *speaker.Speaker, l *flat) {
		l.acquire(s)
		s.FenceClosed()
		expect(t, l.node, "open 10.99.0.10 for 600ms")
	})
}

// FenceClosed may be wrong. If the fence cannot open again, it is closed before others may have the lease.
func TestFlatClosesAnUnconfirmedFence(t *testing.T) {
	runFlat(t, false, func(t *testing.T, s *speaker.Speaker, l *flat) {
		l.acquire(s)
		l.set(func() { l.openErr = errors.New("no buffer space") })
		s.FenceClosed()
		synctest.Wait()
		expect(t, l.node, "open 10.99.0.10 for 600ms", "unbind 10.99.0.10", "arp withdraw 10.99.0.10", "close 10.99.0.10", "step down from control-plane")
	})
}

func TestFlatRestartRemovesLeftovers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &flat{node: newNode()}
		s := speaker.New(slog.New(slog.NewTextHandler(io.Discard, nil)), l.node, route.New(), l.node,
			speaker.FlatParts{Leases: l, Announcer: announcer{l}, Fence: l}, nil, nil)
		s.Apply([]speaker.VIP{flatVIP()}, nil, unknown())
		expect(t, l.node, "filter 10.99.0.10", "unbind 10.99.0.10")
		s.Apply(nil, nil, nil)
		expect(t, l.node, "filter 10.99.0.10", "filter ", "forget control-plane")
	})
}

func TestFlatBothFamiliesTogether(t *testing.T) {
	runFlat(t, false, func(t *testing.T, s *speaker.Speaker, l *flat) {
		dual := flatVIP()
		dual.Addresses = []netip.Addr{v4, v6}
		s.Apply([]speaker.VIP{dual}, nil, passing())
		l.takeSteps()
		l.grant(s)
		expect(t, l.node, "open 10.99.0.10 fd00:99::10 for 600ms", "bind 10.99.0.10", "arp announce 10.99.0.10", "bind fd00:99::10", "arp announce fd00:99::10")
		s.Observe(verdict("apiserver", health.Unhealthy))
		expect(t, l.node, "unbind 10.99.0.10", "unbind fd00:99::10",
			"arp withdraw 10.99.0.10", "arp withdraw fd00:99::10", "close 10.99.0.10 fd00:99::10", "step down from control-plane")
	})
}

func TestFlatMovesToAnotherLinkWithItsFenceOpen(t *testing.T) {
	runFlat(t, false, func(t *testing.T, s *speaker.Speaker, l *flat) {
		l.acquire(s)
		moved := flatVIP()
		moved.Interface, moved.Linger = "eth1", 100*time.Millisecond
		s.Apply([]speaker.VIP{moved}, nil, passing())
		time.Sleep(lease / 2)
		for _, did := range l.takeSteps() {
			if strings.HasPrefix(did, "close") || strings.HasPrefix(did, "accept") {
				t.Errorf("%s, although the address is announced on the other link", did)
			}
		}
	})
}

// A Service's address on a flat layer 2 may also have a route, which package announce owns.
func TestFlatKeepsRoutesOfOthers(t *testing.T) {
	runFlat(t, false, func(t *testing.T, s *speaker.Speaker, l *flat) {
		prefix := netip.PrefixFrom(v4, 32)
		l.routes[prefix] = bgp.Route{Prefix: prefix}
		s.LeasesChanged()
		s.Apply(nil, nil, nil)
		if _, ok := l.routes[prefix]; !ok {
			t.Error("the route is withdrawn")
		}
	})
}

// A VIP that changes from BGP to a flat layer 2 on the same link loses its route, even if the first withdrawal
// fails.
func TestFlatWithdrawsItsFormerRoute(t *testing.T) {
	runFlat(t, false, func(t *testing.T, s *speaker.Speaker, l *flat) {
		routed := vip()
		routed.Interface = flatVIP().Interface
		s.Apply([]speaker.VIP{routed}, nil, unknown())
		healthy(s)
		if len(l.routes) == 0 {
			t.Fatal("nothing is announced")
		}
		l.set(func() { l.withdrawErr = errors.New("no answer") })
		s.Apply([]speaker.VIP{flatVIP()}, nil, unknown())
		l.set(func() { l.withdrawErr = nil })
		s.LeasesChanged()
		if len(l.routes) > 0 {
			t.Errorf("routes left: %v", l.routes)
		}
	})
}
