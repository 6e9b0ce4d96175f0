package bridge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/herald-vip/herald/balancer"
)

var (
	bridgedV4 = netip.MustParseAddr("10.99.0.10")
	bridgedV6 = netip.MustParseAddr("fd00:99::10")
)

// member returns a member with healthy checks.
func member(name, addr string, healthy ...string) balancer.Member {
	m := balancer.Member{Name: name, Addr: netip.MustParseAddr(addr), Checks: make(map[string]bool)}
	for _, check := range healthy {
		m.Checks[check] = true
	}
	return m
}

func TestHealthyMembers(t *testing.T) {
	checks := []string{"apiserver", "registry"}
	well := member("m2", "10.0.0.2", "apiserver", "registry", "other")
	with := func(change func(*balancer.Member)) balancer.Member {
		m := member("m2", "10.0.0.2", "apiserver", "registry")
		change(&m)
		return m
	}
	tests := []struct {
		name string
		o    balancer.Member
		vip  netip.Addr
		want bool
	}{
		{name: "serves all", o: well, vip: bridgedV4, want: true},
		{name: "one check fails", o: with(func(o *balancer.Member) { o.Checks["registry"] = false }), vip: bridgedV4},
		{name: "one check has no result", o: member("m2", "10.0.0.2", "apiserver"), vip: bridgedV4},
		{name: "has no checks", o: member("m2", "10.0.0.2"), vip: bridgedV4},
		{name: "drains", o: with(func(o *balancer.Member) { o.Draining = true }), vip: bridgedV4},
		{name: "has timed out", o: with(func(o *balancer.Member) { o.TimedOut = true }), vip: bridgedV4},
		{name: "has no address of the family", o: well, vip: bridgedV6},
		{name: "serves over IPv6", o: member("m2", "fd00::2", checks...), vip: bridgedV6, want: true},
		{name: "is at a loopback address", o: member("m2", "127.0.0.2", checks...), vip: bridgedV4},
		{name: "is at a link-local address", o: member("m2", "fe80::2", checks...), vip: bridgedV6},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := len(healthy(checks, tt.vip, []balancer.Member{tt.o})) > 0; got != tt.want {
				t.Errorf("forwards to it: %t, want %t", got, tt.want)
			}
		})
	}
}

func TestOpening(t *testing.T) {
	now := time.Unix(1000, 0)
	at := func(d time.Duration) time.Time { return now.Add(d) }
	c, limit := opening{}.open(now, at(time.Minute))
	if want := (opening{until: at(time.Minute), ends: at(quiet), counted: now}); c != want || limit != quiet {
		t.Errorf("opened for %v as %+v", limit, c)
	}
	if short, limit := c.open(now, at(time.Second)); limit != time.Second || !short.ends.Equal(at(time.Second)) {
		t.Errorf("opened for a second: %v, %+v", limit, short)
	}
	tests := []struct {
		name     string
		after    time.Duration
		received uint64
		want     time.Duration
	}{
		{name: "no connection", after: time.Second},
		{name: "new connections", after: time.Second, received: 7, want: quiet},
		{name: "shortly before the end", after: 59 * time.Second, received: 7, want: time.Second},
		{name: "at the end", after: time.Minute, received: 7},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			next, limit := c.renew(at(tt.after), tt.received)
			if limit != tt.want {
				t.Errorf("limit %v, want %v", limit, tt.want)
			}
			want := opening{until: c.until, ends: c.ends, counted: at(tt.after), received: tt.received}
			if limit > 0 {
				want.ends = at(tt.after + limit)
			}
			if next != want {
				t.Errorf("opening %+v, want %+v", next, want)
			}
		})
	}
}

// kernel records calls.
type kernel struct {
	mu       sync.Mutex
	did      []string
	received uint64
	failed   error
	block    chan struct{} // if not nil, methods other than Open block on it
}

func (k *kernel) record(format string, args ...any) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.did = append(k.did, fmt.Sprintf(format, args...))
}

func (k *kernel) answer() error {
	k.mu.Lock()
	block, err := k.block, k.failed
	k.mu.Unlock()
	if block != nil {
		<-block
	}
	return err
}

func (k *kernel) Prepare(towards map[netip.Addr][]netip.Addr) error {
	k.record("prepare %v", towards)
	return k.answer()
}
func (k *kernel) Open(limit time.Duration, vips ...netip.Addr) {
	k.record("open %v for %v", vips, limit)
}
func (k *kernel) Close(vips ...netip.Addr) error {
	k.record("close %v", vips)
	return k.answer()
}
func (k *kernel) Received(netip.Addr) (uint64, error) {
	k.mu.Lock()
	received := k.received
	k.mu.Unlock()
	return received, k.answer()
}

func (k *kernel) set(change func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	change()
}

func (k *kernel) took(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	k.mu.Lock()
	defer k.mu.Unlock()
	if diff := cmp.Diff(want, k.did); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	k.did = nil
}

// runBridge calls f with a running bridge for a VIP that m2 and m3 also serve.
func runBridge(t *testing.T, f func(t *testing.T, b *Bridge, k *kernel)) {
	synctest.Test(t, func(t *testing.T) {
		k := &kernel{}
		b := New(slog.New(slog.DiscardHandler), k)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { b.Run(ctx) })
		setVIPs(b, true)
		b.SetMembers([]balancer.Member{member("m2", "10.0.0.2", "apiserver"), member("m3", "10.0.0.3", "apiserver")})
		k.took(t, "prepare map[10.99.0.10:[10.0.0.2 10.0.0.3]]")
		f(t, b, k)
		cancel()
		running.Wait()
	})
}

// setVIPs makes b bridge a VIP or none.
func setVIPs(b *Bridge, on bool) {
	var bridged []VIP
	if on {
		bridged = []VIP{{Addresses: []netip.Addr{bridgedV4, bridgedV6}, Checks: []string{"apiserver"}}}
	}
	b.SetVIPs(bridged, []netip.Addr{bridgedV4, bridgedV6})
}

// status returns the targets or the error of an address.
func status(b *Bridge, addr netip.Addr) string {
	members, _, fault := b.Status(addr)
	return strings.Join(members, ", ") + fault
}

func TestBridgeFollowsMembers(t *testing.T) {
	runBridge(t, func(t *testing.T, b *Bridge, k *kernel) {
		sick := member("m3", "10.0.0.3")
		b.SetMembers([]balancer.Member{member("m2", "10.0.0.2", "apiserver"), sick})
		k.took(t, "prepare map[10.99.0.10:[10.0.0.2]]")
		b.SetMembers([]balancer.Member{sick, member("m2", "10.0.0.2", "apiserver", "other")}) // no change
		k.took(t)
		b.SetMembers([]balancer.Member{member("m2", "10.99.0.10", "apiserver")}) // a VIP is no member's own address
		k.took(t, "prepare map[]")
		setVIPs(b, false)
		b.SetMembers([]balancer.Member{member("m2", "10.0.0.2", "apiserver")})
		k.took(t)
	})
}

func TestBridgeIsOpenWhileConnectionsCome(t *testing.T) {
	runBridge(t, func(t *testing.T, b *Bridge, k *kernel) {
		b.Open(time.Now().Add(time.Minute), bridgedV4, bridgedV6) // no member serves the latter
		k.took(t, "open [10.99.0.10] for 2s")
		if got := status(b, bridgedV4); got != "m2, m3" {
			t.Errorf("status %q", got)
		}
		if got := status(b, bridgedV6); got != "" {
			t.Errorf("status of IPv6 %q", got)
		}
		k.set(func() { k.received = 40 })
		time.Sleep(countEvery)
		k.took(t, "open [10.99.0.10] for 2s")
		time.Sleep(quiet)
		k.took(t)
		if got := status(b, bridgedV4); got != "" {
			t.Errorf("status %q after the last connection", got)
		}
		time.Sleep(time.Minute)
		k.set(func() { k.received = 41 })
		time.Sleep(time.Minute)
		k.took(t)
	})
}

func TestBridgeClosesInAnyCase(t *testing.T) {
	runBridge(t, func(t *testing.T, b *Bridge, k *kernel) {
		began := time.Now()
		b.Open(began.Add(time.Minute), bridgedV4)
		for status(b, bridgedV4) != "" {
			k.set(func() { k.received++ })
			time.Sleep(countEvery / 4)
		}
		if took := time.Since(began); took != time.Minute {
			t.Errorf("closed after %v", took)
		}
		// On a flat layer 2 the first limit is shorter.
		k.set(func() { k.did, k.received = nil, 0 })
		b.Open(time.Now().Add(400*time.Millisecond), bridgedV4)
		k.took(t, "open [10.99.0.10] for 400ms")
		b.Open(time.Now(), bridgedV4)
		k.took(t)
	})
}

// Open and Close do not block even if the kernel does, and the last call counts.
func TestBridgeDoesNotBlock(t *testing.T) {
	runBridge(t, func(t *testing.T, b *Bridge, k *kernel) {
		block := make(chan struct{})
		k.set(func() { k.block = block })
		b.Open(time.Now().Add(time.Minute), bridgedV4)
		time.Sleep(countEvery)
		k.took(t, "open [10.99.0.10] for 2s") // and Received blocks
		b.Close(bridgedV4)
		b.Open(time.Now().Add(time.Minute), bridgedV4)
		b.Close(bridgedV4)
		k.took(t, "open [10.99.0.10] for 2s")
		close(block)
		k.took(t, "close [10.99.0.10]")
		if got := status(b, bridgedV4); got != "" {
			t.Errorf("status %q", got)
		}

		block = make(chan struct{})
		k.set(func() { k.block = block })
		b.Open(time.Now().Add(time.Minute), bridgedV4)
		b.Close(bridgedV4)
		synctest.Wait() // Close of the kernel blocks
		b.Open(time.Now().Add(time.Minute), bridgedV4)
		close(block)
		// After the late Close it is opened again.
		k.took(t, "open [10.99.0.10] for 2s", "close [10.99.0.10]", "open [10.99.0.10] for 2s", "open [10.99.0.10] for 2s")
	})
}

func TestBridgeTriesAgain(t *testing.T) {
	runBridge(t, func(t *testing.T, b *Bridge, k *kernel) {
		b.Open(time.Now().Add(time.Minute), bridgedV4)
		k.took(t, "open [10.99.0.10] for 2s")
		k.set(func() { k.failed = errors.New("no table") })
		b.Close(bridgedV4)
		k.took(t, "close [10.99.0.10]")
		b.SetMembers([]balancer.Member{member("m2", "10.0.0.2", "apiserver")})
		k.took(t, "close [10.99.0.10]", "prepare map[10.99.0.10:[10.0.0.2]]")
		if got := status(b, bridgedV4); got != "no table" {
			t.Errorf("status %q", got)
		}
		k.set(func() { k.failed = nil })
		time.Sleep(countEvery)
		k.took(t, "close [10.99.0.10]", "prepare map[10.99.0.10:[10.0.0.2]]")
		if got := status(b, bridgedV4); got != "" {
			t.Errorf("status %q", got)
		}
	})
}

// Without nftables the status has the error while a VIP is bridged.
func TestBridgeIsMissing(t *testing.T) {
	runBridge(t, func(t *testing.T, b *Bridge, k *kernel) {
		k.set(func() { k.failed = errors.New("no nftables") })
		b.SetMembers([]balancer.Member{member("m2", "10.0.0.2", "apiserver")})
		synctest.Wait()
		b.Open(time.Now().Add(time.Minute), bridgedV4)
		b.Close(bridgedV4)
		synctest.Wait()
		if got := status(b, bridgedV4); got != "no nftables" {
			t.Errorf("status %q", got)
		}
		setVIPs(b, false)
		if got := status(b, bridgedV4); got != "" {
			t.Errorf("status %q without a bridged VIP", got)
		}
	})
}
