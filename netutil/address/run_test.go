package address

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/netutil/rtnetlink"
	"github.com/herald-vip/herald/testenv/must"
)

var (
	lo   = link{Index: 1, Name: "lo", AdminUp: true, Loopback: true}
	eth0 = link{Index: 2, Name: "eth0", AdminUp: true}

	vip4 = netip.MustParseAddr("10.99.0.10")
	vip6 = netip.MustParseAddr("fd00:99::10")
)

// marked is an address with a mark: it shows the view that the kernel knows marks.
var marked = address{Link: 1, IP: netip.MustParseAddr("127.0.0.1"), Subnet: netip.MustParsePrefix("127.0.0.0/8"),
	Scope: unix.RT_SCOPE_HOST, Flags: unix.IFA_F_PERMANENT, Valid: rtnetlink.Infinite, Preferred: rtnetlink.Infinite, Proto: 1}

// permanent returns an address as an administrator adds it.
func permanent(l link, cidr string) address {
	p := netip.MustParsePrefix(cidr)
	return address{Link: l.Index, IP: p.Addr(), Subnet: p.Masked(), Flags: unix.IFA_F_PERMANENT, Valid: rtnetlink.Infinite, Preferred: rtnetlink.Infinite}
}

// virtual runs f in virtual time, with Run running.
func virtual(t *testing.T, k *fakeKernel, f func(a *Binder, log *bytes.Buffer, stop func())) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		k.adminSet(marked)
		a := fakeAddresses(k, &log)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- a.Run(ctx) }()
		synctest.Wait()
		f(a, &log, func() { cancel(); synctest.Wait() })
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
		time.Sleep(2 * maxLifetime) // the remaining addresses expire
		if t.Failed() {
			t.Logf("log:\n%s", log.String())
		}
	})
}

func fakeAddresses(k *fakeKernel, log *bytes.Buffer) *Binder {
	return newBinder(slog.New(slog.NewTextHandler(log, nil)), Options{Lifetime: defaultLifetime, Mark: DefaultMark}, k)
}

func only(t *testing.T, a *Binder) Status {
	t.Helper()
	all := a.Status()
	if len(all) != 1 {
		t.Fatalf("status of %d bindings, want 1: %v", len(all), all)
	}
	return all[0]
}

func ours4(k *fakeKernel) bool {
	_, ok := k.get(vip(lo, vip4, defaultLifetime, DefaultMark))
	return ok
}

func TestRefreshKeepsAddress(t *testing.T) {
	k := newFakeKernel(lo)
	virtual(t, k, func(a *Binder, log *bytes.Buffer, stop func()) {
		must.Do(t, a.Bind("lo", vip4))
		time.Sleep(10 * time.Minute)
		if s := only(t, a); !s.Bound || s.Restored != 0 || !ours4(k) {
			t.Errorf("after ten minutes: %+v", s)
		}
		if log.Len() > 0 {
			t.Errorf("log in a steady state, want none:\n%s", log)
		}
		if n := k.count("dump"); n != 1 {
			t.Errorf("read everything %d times, want 1", n)
		}
		stop()
		if !ours4(k) {
			t.Error("Run removed the address when it ended")
		}
		time.Sleep(defaultLifetime)
		if ours4(k) {
			t.Error("the address outlives Run by more than its lifetime")
		}
	})
}

// Each address is refreshed as its own lifetime requires, and outlives Run by at most that lifetime.
func TestLifetimes(t *testing.T) {
	k := newFakeKernel(lo)
	virtual(t, k, func(a *Binder, log *bytes.Buffer, stop func()) {
		must.Do(t, errors.Join(a.Bind("lo", vip4), a.BindFor("lo", vip6, 2*time.Second)))
		time.Sleep(5 * time.Minute)
		before := k.count("refresh")
		const least = 60 * 3 / 2
		time.Sleep(time.Minute)
		if n := k.count("refresh") - before; n < least || n > least+20 {
			t.Errorf("refreshed %d times in a minute, want one address every 0.67 s and the other every 3.3 s", n)
		}
		for _, s := range a.Status() {
			if !s.Bound || s.Restored != 0 {
				t.Errorf("%+v", s)
			}
		}
		if err := a.BindFor("lo", vip4, 4*time.Second); err != nil { // shortens the lifetime
			t.Fatal(err)
		}
		stop()
		time.Sleep(2 * time.Second)
		if !k.has(vip4) || k.has(vip6) {
			t.Errorf("two seconds later: %s bound %t, %s bound %t; want the first only", vip4, k.has(vip4), vip6, k.has(vip6))
		}
		time.Sleep(2*time.Second + time.Millisecond)
		if k.has(vip4) {
			t.Error("the lifetime was not shortened")
		}
		if err := a.BindFor("lo", vip4, time.Hour); err == nil {
			t.Error("BindFor accepts a lifetime of an hour")
		}
		if log.Len() > 0 {
			t.Errorf("log in a steady state, want none:\n%s", log)
		}
	})
}

// While the kernel fails, refreshes follow the pauses of retries.
func TestRefreshRefused(t *testing.T) {
	k := newFakeKernel(lo)
	virtual(t, k, func(a *Binder, _ *bytes.Buffer, _ func()) {
		must.Do(t, a.BindFor("lo", vip4, time.Minute))
		k.failWith(func(op string) error {
			if op == "refresh" || op == "add" {
				return unix.ENOBUFS
			}
			return nil
		})
		before := k.total()
		time.Sleep(time.Minute)
		if n := k.total() - before; n < 2 || n > 30 {
			t.Errorf("%d kernel calls in a minute, want 2 to 30", n)
		}
		k.failWith(nil)
		time.Sleep(2 * maxPause)
		if s := only(t, a); !s.Bound || !ours4(k) {
			t.Errorf("%+v", s)
		}
		before = k.count("refresh")
		time.Sleep(5 * time.Minute)
		if n := k.count("refresh") - before; n < 14 || n > 16 {
			t.Errorf("refreshed %d times in the following five minutes, want every 20 s", n)
		}
	})
}

// An address that another program keeps removing is put back after growing pauses, and that is logged once.
func TestRemovalInALoop(t *testing.T) {
	k := newFakeKernel(lo)
	virtual(t, k, func(a *Binder, log *bytes.Buffer, _ func()) {
		must.Do(t, a.Bind("lo", vip4))
		time.Sleep(calm)
		begin := time.Now()
		for time.Since(begin) < time.Minute {
			k.adminUnset(vip(lo, vip4, defaultLifetime, DefaultMark))
			synctest.Wait()
			time.Sleep(time.Millisecond)
		}
		s := only(t, a)
		// 0, 100 ms, 200 ms ... 3.2 s take 6.3 s; in the rest of the minute it is put back every 5 s.
		if s.Restored < 15 || s.Restored > 19 {
			t.Errorf("put back %d times in a minute, want 15 to 19", s.Restored)
		}
		if s.Bound || s.Err == nil || !strings.Contains(s.Err.Error(), "removed by another program") {
			t.Errorf("status %+v", s)
		}
		if n := strings.Count(log.String(), "\n"); n != 2 {
			t.Errorf("%d log lines, want one for the first removal and one for the repetition:\n%s", n, log)
		}

		// After the last removal it is soon back, and a single later removal is repaired at once.
		time.Sleep(maxPause)
		if !only(t, a).Bound || !ours4(k) {
			t.Errorf("status %+v", only(t, a))
		}
		time.Sleep(calm)
		k.adminUnset(vip(lo, vip4, defaultLifetime, DefaultMark))
		synctest.Wait()
		if !ours4(k) {
			t.Error("a single removal is not repaired at once")
		}
	})
}

func TestBindDoesNotWait(t *testing.T) {
	k := newFakeKernel(lo)
	virtual(t, k, func(a *Binder, _ *bytes.Buffer, _ func()) {
		for range 5 {
			if err := a.Bind("lo", vip4); err != nil || !ours4(k) {
				t.Fatal(err)
			}
			k.adminUnset(vip(lo, vip4, defaultLifetime, DefaultMark))
		}
	})
}

// Linux before 5.18 ignores marks; Herald still recognises its addresses.
func TestKernelWithoutMarks(t *testing.T) {
	k := newFakeKernel(lo, eth0)
	k.old = true
	foreign := permanent(lo, "10.99.0.99/32")
	virtual(t, k, func(a *Binder, log *bytes.Buffer, stop func()) {
		k.adminSet(foreign)
		bindings := []Binding{{"lo", vip4}, {"lo", vip6}, {"eth0", vip4.Next()}, {"eth0", vip6.Next()}}
		for _, b := range bindings {
			must.Do(t, a.Bind(b.Interface, b.Addr))
		}
		k.loseAll() // makes Run read everything
		time.Sleep(time.Minute)
		for _, s := range a.Status() {
			if !s.Bound || s.Err != nil || s.Restored != 0 {
				t.Errorf("%+v", s)
			}
		}
		stop()
		next := fakeAddresses(k, log)
		if err := next.Bind("lo", foreign.IP); !errors.Is(err, ErrForeign) {
			t.Errorf("Bind of a foreign address: error %v, want ErrForeign", err)
		}
		if err := next.Bind("lo", vip4); err != nil {
			t.Errorf("Bind of a left-over address: %v", err)
		}
		if err := next.Sweep([]Binding{bindings[1]}); err != nil {
			t.Errorf("Sweep: %v", err)
		}
		for i, b := range bindings {
			l := lo
			if b.Interface == "eth0" {
				l = eth0
			}
			if _, there := k.get(vip(l, b.Addr, defaultLifetime, DefaultMark)); there != (i < 2) {
				t.Errorf("%v present: %v, want %v", b, there, i < 2)
			}
		}
		if _, ok := k.get(foreign); !ok {
			t.Error("Sweep removed a foreign address")
		}
	})
}

func (k *fakeKernel) total() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	n := 0
	for _, c := range k.calls {
		n += c
	}
	return n
}

// Without Run there is no subscription, so Bind and Unbind read the host themselves.
func TestAfterRun(t *testing.T) {
	k := newFakeKernel(lo, eth0)
	virtual(t, k, func(a *Binder, _ *bytes.Buffer, stop func()) {
		foreign4, permanent6 := permanent(eth0, "10.99.0.10/24"), permanent(lo, "fd00:99::10/128")
		must.Do(t, a.Bind("lo", vip6))
		stop()
		k.adminSet(foreign4)
		k.adminSet(permanent6)
		if err := a.Bind("lo", vip4); !errors.Is(err, ErrForeign) {
			t.Errorf("Bind: error %v, want ErrForeign", err)
		}
		if err := a.Unbind("lo", vip6); err != nil {
			t.Errorf("Unbind: %v", err)
		}
		if _, ok := k.get(permanent6); ok {
			t.Error("Unbind left an address that was made permanent")
		}
	})
}
