package address

import (
	"bytes"
	"context"
	"errors"
	"fmt"
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

func TestRefreshKeepsAddress(t *testing.T) {
	k := newFakeKernel(lo)
	virtual(t, k, func(a *Binder, log *bytes.Buffer, stop func()) {
		must.Do(t, a.Bind("lo", vip4))
		time.Sleep(10 * time.Minute)
		if s := only(t, a); !s.Bound || s.Restored != 0 || !k.has(vip4) {
			t.Errorf("after ten minutes: %+v", s)
		}
		if log.Len() > 0 {
			t.Errorf("log in a steady state, want none:\n%s", log)
		}
		if n := k.count("dump"); n != 1 {
			t.Errorf("read everything %d times, want 1", n)
		}
		stop()
		if !k.has(vip4) {
			t.Error("Run removed the address when it ended")
		}
		time.Sleep(defaultLifetime)
		if k.has(vip4) {
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
		k.refuse(unix.ENOBUFS, "refresh", "add")
		before := k.total()
		time.Sleep(time.Minute)
		if n := k.total() - before; n < 2 || n > 30 {
			t.Errorf("%d kernel calls in a minute, want 2 to 30", n)
		}
		k.failWith(nil)
		time.Sleep(2 * maxPause)
		if s := only(t, a); !s.Bound || !k.has(vip4) {
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
		if !only(t, a).Bound || !k.has(vip4) {
			t.Errorf("status %+v", only(t, a))
		}
		time.Sleep(calm)
		k.adminUnset(vip(lo, vip4, defaultLifetime, DefaultMark))
		synctest.Wait()
		if !k.has(vip4) {
			t.Error("a single removal is not repaired at once")
		}
	})
}

func TestBindDoesNotWait(t *testing.T) {
	k := newFakeKernel(lo)
	virtual(t, k, func(a *Binder, _ *bytes.Buffer, _ func()) {
		for range 5 {
			if err := a.Bind("lo", vip4); err != nil || !k.has(vip4) {
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

// Run reads everything after lost changes.
func TestLostChanges(t *testing.T) {
	k := newFakeKernel(lo, eth0)
	virtual(t, k, func(a *Binder, log *bytes.Buffer, _ func()) {
		for _, b := range []Binding{{"lo", vip4}, {"lo", vip6}, {"eth0", vip4.Next()}} {
			must.Do(t, a.Bind(b.Interface, b.Addr))
		}
		k.loseAll()
		k.adminUnset(vip(lo, vip4, defaultLifetime, DefaultMark))
		k.adminSet(permanent(eth0, "fd00:99::10/64"))
		k.adminUnlink(eth0.Index)
		k.adminLink(link{Index: 7, Name: "eth0", AdminUp: true})
		time.Sleep(rtnetlink.Pause)
		synctest.Wait()
		for _, s := range a.Status() {
			switch {
			case !s.Bound:
				t.Errorf("%+v", s)
			case s.Addr.Is4() && s.Restored != 1:
				t.Errorf("%+v", s)
			}
		}
		before := log.Len()
		for range 100 { // each further loss costs one reading, and no log lines
			k.loseAll()
			time.Sleep(rtnetlink.Pause)
		}
		if n := k.count("dump"); n > 110 {
			t.Errorf("read everything %d times, want at most 110", n)
		}
		if log.Len() != before {
			t.Errorf("further log lines, want none:\n%s", log.String()[before:])
		}
	})
}

func TestFloodOfForeignChanges(t *testing.T) {
	k := newFakeKernel(lo, eth0)
	virtual(t, k, func(a *Binder, _ *bytes.Buffer, _ func()) {
		for i := range 100 {
			must.Do(t, a.Bind("lo", netip.AddrFrom4([4]byte{10, 99, 1, byte(i)})))
		}
		before := k.total()
		for i := range 1000 {
			at := permanent(eth0, fmt.Sprintf("172.16.%d.%d/16", i/250, i%250))
			k.adminSet(at)
			k.adminUnset(at)
			k.adminLink(link{Index: 100 + i, Name: fmt.Sprintf("veth%d", i), AdminUp: true})
			k.adminUnlink(100 + i)
			synctest.Wait()
		}
		if n := k.total() - before; n != 0 {
			t.Errorf("4000 foreign changes caused %d kernel calls, want 0", n)
		}
	})
}

// A process that was stopped for longer than the lifetime finds its addresses gone, at the next refresh or
// the next subscription. They stay away for the grace, so that they do not attract clients of a server that
// failed meanwhile: fault 28.
func TestStarved(t *testing.T) {
	const still = 3 * defaultLifetime
	away := func(a *Binder, k *fakeKernel) {
		t.Helper()
		for _, s := range a.Status() {
			if s.Bound || s.Err == nil || k.has(s.Addr) {
				t.Errorf("during the grace: %+v, on the link: %t; want it away", s, k.has(s.Addr))
			}
		}
	}
	back := func(a *Binder, log *bytes.Buffer) {
		t.Helper()
		for _, s := range a.Status() {
			if !s.Bound || s.Restored != 1 {
				t.Errorf("%+v", s)
			}
		}
		if got := strings.Count(log.String(), "it expired"); got != 2 {
			t.Errorf("%d expiries logged, want 2:\n%s", got, log)
		}
	}
	t.Run("refresh", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			k := newFakeKernel(lo)
			var log bytes.Buffer
			a := fakeAddresses(k, &log)
			must.Do(t, errors.Join(a.Bind("lo", vip4), a.Bind("lo", vip6)))
			a.live = true // as before a loss is noticed
			time.Sleep(still)
			a.refreshDue(time.Now())
			away(a, k)
			<-a.retry.C
			a.retryDue()
			back(a, &log)
		})
	})
	t.Run("subscription", func(t *testing.T) {
		k := newFakeKernel(lo)
		virtual(t, k, func(a *Binder, log *bytes.Buffer, _ func()) {
			must.Do(t, errors.Join(a.Bind("lo", vip4), a.Bind("lo", vip6)))
			loseFor(k, still)
			time.Sleep(rtnetlink.Pause + still + grace/2)
			synctest.Wait()
			away(a, k)
			time.Sleep(grace)
			synctest.Wait()
			back(a, log)
		})
	})
}

// loseFor makes k lose changes, and the next subscription take d.
func loseFor(k *fakeKernel, d time.Duration) {
	k.failWith(func(op string) error {
		if op == "watch" {
			time.Sleep(d)
		}
		return nil
	})
	k.loseAll()
}

// During the grace the caller decides: an address stays away after Unbind, and is back at once after Bind.
func TestGraceIsForTheCaller(t *testing.T) {
	k := newFakeKernel(lo)
	virtual(t, k, func(a *Binder, _ *bytes.Buffer, _ func()) {
		must.Do(t, errors.Join(a.Bind("lo", vip4), a.Bind("lo", vip6)))
		loseFor(k, 2*defaultLifetime)
		time.Sleep(rtnetlink.Pause + 2*defaultLifetime + grace/2)
		synctest.Wait()
		if k.has(vip4) || k.has(vip6) {
			t.Fatal("put back during the grace")
		}
		if err := a.Unbind("lo", vip4); err != nil {
			t.Error(err)
		}
		if err := a.Bind("lo", vip6); err != nil || !k.has(vip6) {
			t.Errorf("Bind: %v, on the link: %t", err, k.has(vip6))
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if k.has(vip4) || !k.has(vip6) {
			t.Errorf("on the link: %s %t, %s %t; want the second only", vip4, k.has(vip4), vip6, k.has(vip6))
		}
	})
}

func TestRefusedRefresh(t *testing.T) {
	k := newFakeKernel(lo)
	virtual(t, k, func(a *Binder, log *bytes.Buffer, _ func()) {
		must.Do(t, a.Bind("lo", vip4))
		refused := errors.New("refused")
		k.refuse(refused, "refresh", "add")
		time.Sleep(defaultLifetime * 9 / 10)
		if s := only(t, a); !s.Bound || !errors.Is(s.Err, refused) {
			t.Errorf("before expiry: %+v", s)
		}
		time.Sleep(defaultLifetime)
		if s := only(t, a); s.Bound || !errors.Is(s.Err, refused) {
			t.Errorf("after expiry: %+v", s)
		}
		k.failWith(nil)
		time.Sleep(maxPause)
		if s := only(t, a); !s.Bound || s.Err != nil || s.Restored != 1 {
			t.Errorf("after the failure: %+v", s)
		}
		if n := strings.Count(log.String(), "\n"); n != 3 {
			t.Errorf("%d log lines, want 3 (not refreshed, lost, put back):\n%s", n, log)
		}
	})
}

// Unbind without the right to change addresses is no error, unless an address is or was bound.
func TestUnbindWithoutRight(t *testing.T) {
	k := newFakeKernel(lo)
	forbid := func() { k.refuse(unix.EPERM, "add", "remove", "refresh") }
	forbid()
	virtual(t, k, func(a *Binder, _ *bytes.Buffer, _ func()) {
		if err := a.Try("lo", vip4); !errors.Is(err, unix.EPERM) {
			t.Errorf("Try: error %v, want EPERM", err)
		}
		if err := a.Bind("lo", vip4); !errors.Is(err, unix.EPERM) {
			t.Errorf("Bind: error %v, want EPERM", err)
		}
		if err := a.Try("lo", vip4); !errors.Is(err, unix.EPERM) {
			t.Errorf("Try of a wanted address: error %v, want EPERM", err)
		}
		if err := a.Unbind("lo", vip4, vip6); err != nil {
			t.Errorf("Unbind of addresses that never were bound: %v", err)
		}
		k.failWith(nil)
		must.Do(t, a.Bind("lo", vip6))
		forbid()
		if err := a.Unbind("lo", vip4, vip6); !errors.Is(err, unix.EPERM) {
			t.Errorf("Unbind of a bound address: error %v, want EPERM", err)
		}
		if err := a.Unbind("lo", vip6); !errors.Is(err, unix.EPERM) {
			t.Errorf("Unbind of a bound address that is no longer wanted: error %v, want EPERM", err)
		}
	})
}

func TestNoSubscription(t *testing.T) {
	k := newFakeKernel(lo)
	k.refuse(unix.EMFILE, "watch")
	virtual(t, k, func(a *Binder, log *bytes.Buffer, _ func()) {
		must.Do(t, a.Bind("lo", vip4))
		_ = a.Bind("eth0", vip6)
		k.adminUnset(vip(lo, vip4, defaultLifetime, DefaultMark))
		k.adminLink(eth0)
		time.Sleep(defaultLifetime / 3)
		synctest.Wait()
		for _, s := range a.Status() {
			if !s.Bound {
				t.Errorf("%+v", s)
			}
		}
		time.Sleep(time.Minute)
		if n := strings.Count(log.String(), "too many open files"); n != 1 {
			t.Errorf("failure logged %d times, want once:\n%s", n, log)
		}
	})
}

// Bind works although the view lags behind changes by other programs.
func TestBindWithLateView(t *testing.T) {
	k := newFakeKernel(lo)
	k.delay = time.Second
	virtual(t, k, func(a *Binder, _ *bytes.Buffer, _ func()) {
		k.adminSet(permanent(lo, "10.99.0.10/32"))
		if err := a.Bind("lo", vip4); !errors.Is(err, ErrForeign) {
			t.Errorf("Bind of a foreign address: error %v, want ErrForeign", err)
		}
		k.adminSet(vip(lo, vip6, defaultLifetime, DefaultMark))
		if err := a.Bind("lo", vip6); err != nil {
			t.Errorf("Bind of Herald's own address: %v", err)
		}
		k.refuse(unix.EEXIST, "add")
		if err := a.Bind("lo", vip4.Next()); err == nil {
			t.Error("Bind of an address that exists but is not listed: no error")
		}
	})
}

// A removed address is put back at once even while refreshes fail.
func TestRemovedWhileRefreshFails(t *testing.T) {
	k := newFakeKernel(lo)
	virtual(t, k, func(a *Binder, _ *bytes.Buffer, _ func()) {
		must.Do(t, a.Bind("lo", vip4))
		k.refuse(unix.ENOMEM, "refresh")
		time.Sleep(defaultLifetime / 2)
		if only(t, a).Err == nil {
			t.Fatal("no refresh has failed")
		}
		k.adminUnset(vip(lo, vip4, defaultLifetime, DefaultMark))
		synctest.Wait()
		if s := only(t, a); !k.has(vip4) || s.Restored != 1 || s.Err != nil {
			t.Errorf("%+v", s)
		}
	})
}
