package speaker_test

import (
	"bytes"
	"context"
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
	"github.com/herald-vip/herald/health"
	"github.com/herald-vip/herald/netutil/route"
	"github.com/herald-vip/herald/speaker"
)

// flat are the parts of a flat layer 2, whose steps are recorded among the node's.
type flat struct {
	*node
	lease  speaker.Lease
	fenced error // what the fence says to an opening
	closed error // and to a closing
	deaf   error // what the announcer says
	blind  error // what the fence says to Guard
	jammed error // and to Try
	mute   error // what the announcer says to Try
	limit  time.Time
	log    bytes.Buffer // the speaker's, while it waits
}

func (f *flat) Campaign(vip string, claim speaker.Flat) {
	f.record("stand for %s with %d", vip, claim.Priority)
}
func (f *flat) Forget(vip string) { f.record("forget %s", vip) }

func (f *flat) StepDown(vip string) {
	f.record("resign from %s", vip)
	f.set(func() { f.lease = speaker.Lease{Reason: f.lease.Reason} })
}
func (f *flat) Lease(string) speaker.Lease {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lease
}

// set changes a field of f.
func (f *flat) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

func (f *flat) Filter(addrs ...netip.Addr) error {
	f.record("guard %s", list(addrs))
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.blind
}

func (f *flat) Close(addrs ...netip.Addr) error {
	f.record("close %s", list(addrs))
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.closed
}
func (f *flat) Try() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.jammed
}
func (f *flat) silence(addrs ...netip.Addr)  { f.record("silence %s", list(addrs)) }
func (f *flat) proclaim(addrs ...netip.Addr) { f.record("proclaim %s", list(addrs)) }
func (f *flat) Accept(until time.Time, addrs ...netip.Addr) error {
	f.record("accept %s for %v", list(addrs), time.Until(until))
	return nil
}

func (f *flat) Open(until time.Time, addrs ...netip.Addr) error {
	f.record("open %s for %v", list(addrs), time.Until(until))
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.fenced
}

// announcer keeps Announce and Withdraw of a flat layer 2 apart from those of routes.
type announcer struct{ *flat }

func (a announcer) Announce(until time.Time, _ string, addrs ...netip.Addr) error {
	a.proclaim(addrs...)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.limit = until
	return a.deaf
}
func (a announcer) Try() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.mute
}
func (a announcer) Withdraw(_ string, addrs ...netip.Addr) { a.silence(addrs...) }
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
	v.Interface, v.Flat = "eth0", &speaker.Flat{Priority: 100, Lifetime: 2 * time.Second}
	return v
}

// runFlat gives f a speaker with a flat VIP that stands for it.
func runFlat(t *testing.T, unfenced bool, f func(t *testing.T, s *speaker.Speaker, l *flat)) {
	synctest.Test(t, func(t *testing.T) {
		l := &flat{node: newNode()}
		parts := speaker.FlatParts{Leases: l, Announcer: announcer{l}}
		if !unfenced {
			parts.Fence = l
		}
		s := speaker.New(slog.New(slog.NewTextHandler(&l.log, nil)), l.node, route.New(), l.node, parts, bridge{l.node}, &others{})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { s.Run(ctx); close(done) }()
		s.Apply([]speaker.VIP{flatVIP()}, nil, unknown())
		l.took()
		healthy(s)
		expect(t, l.node, "stand for control-plane with 100")
		f(t, s, l)
		cancel()
		<-done
	})
}

const lease = 600 * time.Millisecond

// grant is what the election does.
func (f *flat) grant(s *speaker.Speaker) {
	f.set(func() { f.lease = speaker.Lease{Until: time.Now().Add(lease)} })
	s.LeasesChanged()
}

func TestFlatStandsOnlyWhileHealthy(t *testing.T) {
	runFlat(t, false, func(t *testing.T, s *speaker.Speaker, l *flat) {
		s.Observe(verdict("registry", health.Unhealthy))
		expect(t, l.node, "resign from control-plane")
		s.Observe(verdict("registry", health.Healthy))
		expect(t, l.node, "stand for control-plane with 100")
	})
}

func TestFlatOpensBeforeItBindsAndTells(t *testing.T) {
	runFlat(t, false, func(t *testing.T, s *speaker.Speaker, l *flat) {
		l.grant(s)
		expect(t, l.node, "open 10.99.0.10 for 600ms", "bind 10.99.0.10", "proclaim 10.99.0.10")
		time.Sleep(lease / 3)
		l.grant(s)
		expect(t, l.node, "open 10.99.0.10 for 600ms")
		if a := s.Summary().Addresses[0]; a.Stage != speaker.Announced {
			t.Errorf("%+v", a)
		}
	})
}

// How long the address outlives this process follows the lease, also when that is changed.
func TestFlatLifetime(t *testing.T) {
	runFlat(t, false, func(t *testing.T, s *speaker.Speaker, l *flat) {
		l.grant(s)
		l.took()
		if l.lifetime != 2*time.Second {
			t.Errorf("bound for %v", l.lifetime)
		}
		longer := flatVIP()
		longer.Flat.Lifetime = 5 * time.Second
		known := []health.Verdict{verdict("apiserver", health.Healthy), verdict("registry", health.Healthy)}
		s.Apply([]speaker.VIP{longer}, nil, known)
		if expect(t, l.node, "guard 10.99.0.10", "bind 10.99.0.10", "stand for control-plane with 100"); l.lifetime != 5*time.Second {
			t.Errorf("bound for %v after the change", l.lifetime)
		}
		s.Apply([]speaker.VIP{longer}, nil, known)
		expect(t, l.node, "guard 10.99.0.10")
	})
}

// The fence does not see the announcer's frames, so these have an end of their own.
func TestFlatIsAnnouncedAsLongAsTheLeaseLasts(t *testing.T) {
	for _, unfenced := range []bool{false, true} {
		runFlat(t, unfenced, func(t *testing.T, s *speaker.Speaker, l *flat) {
			for range 3 {
				l.grant(s)
				synctest.Wait()
				l.set(func() {
					if !l.limit.Equal(l.lease.Until) {
						t.Errorf("announced until %v, the lease ends %v", l.limit, l.lease.Until)
					}
				})
				time.Sleep(lease / 3)
			}
		})
	}
}

// An announcement that failed is not left for the announcer to make up for.
func TestFlatAnnouncementThatFails(t *testing.T) {
	runFlat(t, false, func(t *testing.T, s *speaker.Speaker, l *flat) {
		l.set(func() { l.deaf = errors.New("the link is down") })
		l.grant(s)
		expect(t, l.node, "open 10.99.0.10 for 600ms", "bind 10.99.0.10", "proclaim 10.99.0.10", "silence 10.99.0.10")
		s.Observe(verdict("registry", health.Unhealthy))
		expect(t, l.node, "unbind 10.99.0.10", "close 10.99.0.10", "resign from control-plane")
	})
}

// By the time that the address is bound the lease may be another's.
func TestFlatTellsNobodyAfterItsLease(t *testing.T) {
	runFlat(t, false, func(t *testing.T, s *speaker.Speaker, l *flat) {
		synctest.Wait() // nobody else is at work while it binds
		l.slow = lease
		l.grant(s)
		synctest.Wait()
		expect(t, l.node, "open 10.99.0.10 for 600ms", "bind 10.99.0.10", "unbind 10.99.0.10", "close 10.99.0.10",
			"resign from control-plane", "stand for control-plane with 100")
	})
}

// What the fence was not told of is not opened, and it is told again without being asked.
func TestFlatGuardIsTriedAgain(t *testing.T) {
	runFlat(t, false, func(t *testing.T, s *speaker.Speaker, l *flat) {
		known := []health.Verdict{verdict("apiserver", health.Healthy), verdict("registry", health.Healthy)}
		l.set(func() { l.blind = errors.New("nftables is busy") })
		s.Apply([]speaker.VIP{flatVIP()}, nil, known)
		l.set(func() { l.blind = nil })
		l.took()
		time.Sleep(time.Second)
		synctest.Wait()
		expect(t, l.node, "guard 10.99.0.10")
		l.grant(s)
		expect(t, l.node, "open 10.99.0.10 for 600ms", "bind 10.99.0.10", "proclaim 10.99.0.10")
	})
}

// Nor is it opened if it is granted before.
func TestFlatOpensNothingThatIsUnguarded(t *testing.T) {
	runFlat(t, false, func(t *testing.T, s *speaker.Speaker, l *flat) {
		l.set(func() { l.blind = errors.New("nftables is busy") })
		s.Apply([]speaker.VIP{flatVIP()}, nil, []health.Verdict{verdict("apiserver", health.Healthy), verdict("registry", health.Healthy)})
		l.took()
		l.grant(s)
		for _, did := range l.took() {
			if strings.HasPrefix(did, "open") {
				t.Error(did)
			}
		}
	})
}

// apart are leases that end one after the other, by VIP.
type apart struct {
	*flat
	ends map[string]time.Time
}

func (a apart) Lease(vip string) speaker.Lease { return speaker.Lease{Until: a.ends[vip]} }

// The VIP of the control plane does not wait for those of Services that were granted with it.
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
			v.Addresses = []netip.Addr{netip.AddrFrom4([4]byte{10, 99, 1, byte(i)})}
			leases.ends[v.Name] = time.Now().Add(lease - time.Duration(i))
			vips = append(vips, v)
			want = append(want, fmt.Sprintf("open %v for %v", v.Addresses[0], lease-time.Duration(i)))
		}
		s.Apply(vips, nil, []health.Verdict{verdict("apiserver", health.Healthy), verdict("registry", health.Healthy)})
		got := slices.DeleteFunc(l.took(), func(did string) bool { return !strings.HasPrefix(did, "open ") })
		if !slices.Equal(got, want) {
			t.Errorf("opened %q\nwant %q", got, want)
		}
	})
}

func TestFlatOpensAgainWhatWasClosed(t *testing.T) {
	runFlat(t, false, func(t *testing.T, s *speaker.Speaker, l *flat) {
		l.grant(s)
		l.took()
		s.FenceClosed()
		expect(t, l.node, "open 10.99.0.10 for 600ms")
	})
}

// Who says that the fence has closed may be mistaken: what cannot be opened again is closed
// before others may have the lease.
func TestFlatClosesWhatMayBeOpen(t *testing.T) {
	runFlat(t, false, func(t *testing.T, s *speaker.Speaker, l *flat) {
		l.grant(s)
		l.took()
		l.set(func() { l.fenced = errors.New("no buffer space") })
		s.FenceClosed()
		synctest.Wait()
		expect(t, l.node, "open 10.99.0.10 for 600ms", "unbind 10.99.0.10", "silence 10.99.0.10", "close 10.99.0.10", "resign from control-plane")
	})
}

func TestFlatRestartTakesAwayWhatItFinds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &flat{node: newNode()}
		s := speaker.New(slog.New(slog.NewTextHandler(io.Discard, nil)), l.node, route.New(), l.node,
			speaker.FlatParts{Leases: l, Announcer: announcer{l}, Fence: l}, nil, nil)
		s.Apply([]speaker.VIP{flatVIP()}, nil, unknown())
		expect(t, l.node, "guard 10.99.0.10", "unbind 10.99.0.10")
		s.Apply(nil, nil, nil)
		expect(t, l.node, "guard 10.99.0.10", "guard ", "forget control-plane")
	})
}

func TestFlatBothFamiliesTogether(t *testing.T) {
	runFlat(t, false, func(t *testing.T, s *speaker.Speaker, l *flat) {
		dual := flatVIP()
		dual.Addresses = []netip.Addr{v4, v6}
		s.Apply([]speaker.VIP{dual}, nil, []health.Verdict{verdict("apiserver", health.Healthy), verdict("registry", health.Healthy)})
		l.took()
		l.grant(s)
		expect(t, l.node, "open 10.99.0.10 fd00:99::10 for 600ms", "bind 10.99.0.10", "proclaim 10.99.0.10", "bind fd00:99::10", "proclaim fd00:99::10")
		s.Observe(verdict("apiserver", health.Unhealthy))
		expect(t, l.node, "unbind 10.99.0.10", "unbind fd00:99::10",
			"silence 10.99.0.10", "silence fd00:99::10", "close 10.99.0.10 fd00:99::10", "resign from control-plane")
	})
}

func TestFlatMovesToAnotherLinkWithItsFenceOpen(t *testing.T) {
	runFlat(t, false, func(t *testing.T, s *speaker.Speaker, l *flat) {
		l.grant(s)
		l.took()
		moved := flatVIP()
		moved.Interface, moved.Linger = "eth1", 100*time.Millisecond
		s.Apply([]speaker.VIP{moved}, nil, []health.Verdict{verdict("apiserver", health.Healthy), verdict("registry", health.Healthy)})
		time.Sleep(lease / 2)
		for _, did := range l.took() {
			if strings.HasPrefix(did, "close") || strings.HasPrefix(did, "accept") {
				t.Errorf("%s, while the address is announced on the other link", did)
			}
		}
	})
}

// A Service's address may be on a flat layer 2 and have a route as well, which others announce.
func TestFlatLeavesRoutesOfOthers(t *testing.T) {
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

// A VIP that was announced by BGP on the same link has its route withdrawn when it is to be
// held by lease, also if the router will not have it at first.
func TestFlatTakesBackItsRoute(t *testing.T) {
	runFlat(t, false, func(t *testing.T, s *speaker.Speaker, l *flat) {
		routed := vip()
		routed.Interface = flatVIP().Interface
		s.Apply([]speaker.VIP{routed}, nil, unknown())
		healthy(s)
		if len(l.routes) == 0 {
			t.Fatal("nothing is announced")
		}
		refuse := func(err error) {
			l.node.mu.Lock()
			defer l.node.mu.Unlock()
			l.node.deaf = err
		}
		refuse(errors.New("no answer"))
		s.Apply([]speaker.VIP{flatVIP()}, nil, unknown())
		refuse(nil)
		s.LeasesChanged()
		if len(l.routes) > 0 {
			t.Errorf("routes %v are left", l.routes)
		}
	})
}
