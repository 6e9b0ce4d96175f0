package fence

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// kept runs test in virtual time with a fence of one address under Keep, and its log.
func kept(t *testing.T, closed func(), test func(f *Fence, k *model, log *bytes.Buffer)) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		k := &model{ended: func(netip.Addr, time.Time, time.Time) {}}
		f, err := NewOver(slog.New(slog.NewTextHandler(&log, nil)), k, Options{})
		if err != nil {
			t.Fatal(err)
		}
		f.now = func() time.Time { k.time = time.Now(); return k.time }
		if err := f.Filter(vip[0].Addr()); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { f.Keep(ctx, closed); close(done) }()
		synctest.Wait()
		test(f, k, &log)
		cancel()
		<-done
	})
}

// between calls change between two checks.
func (f *Fence) between(change func()) {
	f.keeper.Lock()
	defer f.keeper.Unlock()
	change()
}

// pass waits some rounds.
func pass(rounds int) {
	time.Sleep(time.Duration(rounds) * round)
	synctest.Wait()
}

// Keep calls closed each time the tables were put back, by any method.
func TestKeepTellsWhatClosed(t *testing.T) {
	closed := 0
	kept(t, func() { closed++ }, func(f *Fence, k *model, log *bytes.Buffer) {
		if pass(3); closed != 0 {
			t.Errorf("closed called %d times without a change", closed)
		}
		for i, restore := range []func() error{
			func() error { return nil }, // left to the next round
			func() error { return f.Open(time.Now().Add(time.Hour), vip[0].Addr()) },
			func() error { return f.Close(vip[0].Addr()) },
		} {
			f.between(func() { k.sets = nil }) // flush
			if err := restore(); err != nil {
				t.Fatal(err)
			}
			if pass(3); closed != i+1 || f.timesRestored() != uint64(i+1) {
				t.Errorf("closed called %d times, tables put back %d times, want %d", closed, f.timesRestored(), i+1)
			}
		}
		if n := strings.Count(log.String(), "put back Herald's nftables"); n != 3 {
			t.Errorf("log reports the tables put back %d times, want 3", n)
		}
	})
}

// filtering returns a fence over a model that filters addrs.
func filtering(t *testing.T, addrs ...netip.Addr) (*Fence, *model) {
	t.Helper()
	m := &model{time: time.Unix(1e9, 0), ended: func(netip.Addr, time.Time, time.Time) {}}
	f, err := NewOver(slog.New(slog.DiscardHandler), m, Options{})
	if err != nil {
		t.Fatal(err)
	}
	f.now = m.now
	if err := f.Filter(addrs...); err != nil {
		t.Fatal(err)
	}
	return f, m
}

// After a flush between the two locks Open renews both again: the new tables lack the first.
func TestFlushedBetweenTheLocks(t *testing.T) {
	addr := vip[0].Addr()
	f, m := filtering(t, addr)
	for _, again := range []bool{false, true} { // the second time the address is open already
		m.faults = []fault{{Lost: "flushed"}}
		end := m.time.Add(600 * time.Millisecond)
		if err := f.Open(end, addr); err != nil || m.opened(answer, addr).IsZero() || m.opened(answer, addr).After(end) {
			t.Errorf("open again %t: error %v, open until %v, want %v at most", again, err, m.opened(answer, addr), end)
		}
		m.time = m.time.Add(200 * time.Millisecond)
	}
}

// Close also removes the second lock. If it lasts too long it must not exist when the first is renewed, as that may take too
// long as well.
func TestCloseEndsTheLockThatLastsTooLong(t *testing.T) {
	addr := vip[0].Addr()
	f, m := filtering(t, addr)
	m.faults = []fault{{}, {Amid: 5 * time.Second}}
	if err := f.Open(m.time.Add(600*time.Millisecond), addr); !errors.Is(err, ErrLate) {
		t.Fatalf("second lock took 5 s: error %v, want ErrLate", err)
	}
	if err := f.Close(addr); err != nil {
		t.Fatal(err)
	}
	m.faults = []fault{{Amid: 300 * time.Millisecond}}
	end := m.time.Add(200 * time.Millisecond)
	if err := f.Open(end, addr); !errors.Is(err, ErrLate) || m.opened(answer, addr).After(end) {
		t.Errorf("first lock took too long: error %v, open until %v after the end", err, m.opened(answer, addr).Sub(end))
	}
}

// After a flush Try puts the tables back and closes no open address.
func TestTryClosesNothing(t *testing.T) {
	addr := vip[0].Addr()
	f, m := filtering(t, addr)
	if err := f.Open(m.time.Add(time.Minute), addr); err != nil {
		t.Fatal(err)
	}
	m.sets = nil
	err := f.Try()
	if _, closed := m.sets[vips][addr]; err != nil || m.sets == nil || closed {
		t.Errorf("error %v, tables %v; want tables without a filter of the open address", err, m.sets)
	}
}

// Accept that comes too late leaves the second lock of an opening. The next opening may end before that lock does.
func TestAcceptTooLate(t *testing.T) {
	addr := vip[0].Addr()
	f, m := filtering(t, addr)
	if err := f.Open(m.time.Add(time.Minute), addr); err != nil {
		t.Fatal(err)
	}
	if err := f.Accept(m.time, addr); !errors.Is(err, ErrLate) {
		t.Fatalf("accept until now: error %v, want ErrLate", err)
	}
	m.faults = []fault{{Amid: 700 * time.Millisecond}}
	end := m.time.Add(600 * time.Millisecond)
	if err := f.Open(end, addr); !errors.Is(err, ErrLate) || m.opened(answer, addr).After(end) {
		t.Errorf("first lock took too long: error %v, open until %v after the end", err, m.opened(answer, addr).Sub(end))
	}
}

// An address that was open before a flush is filtered at once if it cannot be opened again. Tables that lost a part are put back
// closed.
func TestGatesWhatItDoesNotOpen(t *testing.T) {
	f, m := filtering(t, vip.addrs()...)
	if err := f.Open(m.time.Add(time.Minute), vip.addrs()...); err != nil {
		t.Fatal(err)
	}
	expectFiltered := func(when string) {
		t.Helper()
		for _, addr := range vip.addrs() {
			if _, ok := m.sets[vips][addr]; !ok || !m.opened(answer, addr).IsZero() {
				t.Errorf("%s: %s is filtered: %t, open until %v; want filtered and closed", when, addr, ok, m.opened(answer, addr))
			}
		}
	}
	delete(m.sets[vips], vip[0].Addr())
	if err := f.Check(); err != nil {
		t.Fatal(err)
	}
	expectFiltered("after a part was gone")

	if err := f.Open(m.time.Add(time.Minute), vip.addrs()...); err != nil {
		t.Fatal(err)
	}
	m.sets = nil
	m.faults = []fault{{}, {After: time.Hour}} // the first call finds no tables
	if err := f.Open(m.time.Add(time.Minute), vip.addrs()...); !errors.Is(err, ErrLate) {
		t.Fatalf("first lock took an hour: error %v, want ErrLate", err)
	}
	expectFiltered("after a failed opening")
}

// After a flush Close and Accept filter an address that was open, even if the next call to the kernel fails.
func TestFiltersWhatEndsAfterAFlush(t *testing.T) {
	addr, other := vip[0].Addr(), vip[1].Addr()
	for name, end := range map[string]func(f *Fence, m *model) error{
		"close": func(f *Fence, m *model) error { return f.Close(addr) },
		"accept": func(f *Fence, m *model) error {
			late := m.time.Add(-time.Second)
			if err := f.Accept(late, other); !errors.Is(err, ErrLate) { // makes the tables anew, without the filter of addr
				return err
			}
			m.faults = []fault{{}, {Lost: "request"}}
			if err := f.Accept(late, addr); !errors.Is(err, ErrLate) {
				return err
			}
			return nil
		},
	} {
		f, m := filtering(t, addr, other)
		if err := f.Open(m.time.Add(600*time.Millisecond), addr); err != nil {
			t.Fatal(err)
		}
		m.sets = nil
		err := end(f, m)
		if _, ok := m.sets[vips][addr]; err != nil || !ok || !m.opened(answer, addr).IsZero() {
			t.Errorf("%s: error %v, filtered %t, open until %v; want filtered and closed", name, err, ok, m.opened(answer, addr))
		}
	}
}

// Keep calls closed before it checks a reported change. An opening that finds the tables gone puts them back itself, and
// closes its address only for a moment. The check comes at once: otherwise a lingering node would answer beside the next holder.
func TestKeepOpensBeforeItChecks(t *testing.T) {
	var fence *Fence
	var before []uint64 // timesRestored at each call
	kept(t, func() {
		before = append(before, fence.timesRestored())
		if err := fence.Open(time.Now().Add(time.Hour), vip[0].Addr()); err != nil {
			t.Error(err)
		}
	}, func(f *Fence, k *model, _ *bytes.Buffer) {
		time.Sleep(round / 2)
		f.between(func() { fence, k.sets = f, nil; k.changed <- struct{}{} })
		synctest.Wait()
		if !slices.Equal(before, []uint64{0, 1}) || k.opened(answer, vip[0].Addr()).IsZero() {
			t.Errorf("closed called after %v restorations, want 0 and 1; open until %v", before, k.opened(answer, vip[0].Addr()))
		}
	})
}
