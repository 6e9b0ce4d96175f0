package address

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/netutil/rtnetlink"
	"github.com/herald-vip/herald/testenv/must"
)

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
			for _, addr := range []netip.Addr{vip4, vip6} {
				must.Do(t, a.Bind("lo", addr))
			}
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
			for _, addr := range []netip.Addr{vip4, vip6} {
				must.Do(t, a.Bind("lo", addr))
			}
			k.failWith(func(op string) error {
				if op == "watch" {
					time.Sleep(still)
				}
				return nil
			})
			k.loseAll()
			time.Sleep(rtnetlink.Pause + still + grace/2)
			synctest.Wait()
			away(a, k)
			time.Sleep(grace)
			synctest.Wait()
			back(a, log)
		})
	})
}

// During the grace the caller decides: an address stays away after Unbind, and is back at once after Bind.
func TestGraceIsForTheCaller(t *testing.T) {
	k := newFakeKernel(lo)
	virtual(t, k, func(a *Binder, _ *bytes.Buffer, _ func()) {
		for _, addr := range []netip.Addr{vip4, vip6} {
			must.Do(t, a.Bind("lo", addr))
		}
		k.failWith(func(op string) error {
			if op == "watch" {
				time.Sleep(2 * defaultLifetime)
			}
			return nil
		})
		k.loseAll()
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
		k.failWith(func(op string) error {
			if op == "refresh" || op == "add" {
				return refused
			}
			return nil
		})
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
	forbidden := func(op string) error {
		if op == "add" || op == "remove" || op == "refresh" {
			return unix.EPERM
		}
		return nil
	}
	k := newFakeKernel(lo)
	k.failWith(forbidden)
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
		k.failWith(forbidden)
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
	k.fail = func(op string) error {
		if op == "watch" {
			return unix.EMFILE
		}
		return nil
	}
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
		k.failWith(func(op string) error {
			if op == "add" {
				return unix.EEXIST
			}
			return nil
		})
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
		k.failWith(func(op string) error {
			if op == "refresh" {
				return unix.ENOMEM
			}
			return nil
		})
		time.Sleep(defaultLifetime / 2)
		if only(t, a).Err == nil {
			t.Fatal("no refresh has failed")
		}
		k.adminUnset(vip(lo, vip4, defaultLifetime, DefaultMark))
		synctest.Wait()
		if s := only(t, a); !ours4(k) || s.Restored != 1 || s.Err != nil {
			t.Errorf("%+v", s)
		}
	})
}
