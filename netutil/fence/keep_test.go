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

// failing is a model whose checks fail as set.
type failing struct {
	*model
	err error
}

func (k *failing) Intact(gated, served []netip.Addr) (bool, error) {
	if k.err != nil {
		return false, k.err
	}
	return k.model.Intact(gated, served)
}

// kept gives test a fence of one address that is being kept, in virtual time, and its log.
func kept(t *testing.T, closed func(), test func(f *Fence, k *failing, log *bytes.Buffer)) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		k := &failing{model: &model{ended: func(netip.Addr, time.Time, time.Time) {}}}
		f, err := NewOver(slog.New(slog.NewTextHandler(&log, nil)), k, Options{})
		if err != nil {
			t.Fatal(err)
		}
		f.now = func() time.Time { k.time = time.Now(); return k.time }
		if err := f.Guard(vip[0].Addr()); err != nil {
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

// between makes a change between two checks.
func (f *Fence) between(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// pass lets some rounds pass.
func pass(rounds int) {
	time.Sleep(time.Duration(rounds) * round)
	synctest.Wait()
}

// Keep logs trouble that lasts once, and its end once.
func TestKeepTellsOnce(t *testing.T) {
	kept(t, func() {}, func(f *Fence, k *failing, log *bytes.Buffer) {
		for _, want := range []struct {
			err  error
			line string
		}{
			{errors.New("no memory"), `level=ERROR msg="fence not put back" err="check kernel fence: no memory"`},
			{errors.New("no answer"), `level=ERROR msg="fence not put back" err="check kernel fence: no answer"`},
			{nil, `level=INFO msg="fence in order again"`},
			{errors.New("no answer"), `level=ERROR msg="fence not put back" err="check kernel fence: no answer"`},
		} {
			f.between(func() { log.Reset(); k.err = want.err })
			pass(5)
			if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, want.line) {
				t.Errorf("after %v the log is:\n%swant only %s", want.err, got, want.line)
			}
		}
	})
}

// Putting the tables back closes what was open of other addresses, too, by whatever method.
func TestKeepTellsWhatClosed(t *testing.T) {
	closed := 0
	kept(t, func() { closed++ }, func(f *Fence, k *failing, log *bytes.Buffer) {
		if pass(3); closed != 0 {
			t.Errorf("%d times closed, by nobody", closed)
		}
		for i, restore := range []func() error{
			func() error { return nil }, // the next round does
			func() error { return f.Open(time.Now().Add(time.Hour), vip[0].Addr()) },
			func() error { return f.Close(vip[0].Addr()) },
		} {
			f.between(func() { k.sets = nil }) // somebody flushes
			if err := restore(); err != nil {
				t.Fatal(err)
			}
			if pass(3); closed != i+1 || f.timesRestored() != uint64(i+1) {
				t.Errorf("closed %d times, put back %d times, want %d", closed, f.timesRestored(), i+1)
			}
		}
		if n := strings.Count(log.String(), "put back Herald's nftables"); n != 3 {
			t.Errorf("put back %d times by the log", n)
		}
	})
}

// guarding is a fence over a model that gates addrs.
func guarding(t *testing.T, addrs ...netip.Addr) (*Fence, *model) {
	t.Helper()
	m := &model{time: time.Unix(1e9, 0), ended: func(netip.Addr, time.Time, time.Time) {}}
	f, err := NewOver(slog.New(slog.DiscardHandler), m, Options{})
	if err != nil {
		t.Fatal(err)
	}
	f.now = m.now
	if err := f.Guard(addrs...); err != nil {
		t.Fatal(err)
	}
	return f, m
}

// Who flushes between the two locks has both renewed once more: the first is in none of the new tables.
func TestFlushedBetweenTheLocks(t *testing.T) {
	addr := vip[0].Addr()
	f, m := guarding(t, addr)
	for _, again := range []bool{false, true} { // what is open already, too
		m.faults = []fault{{Lost: "flushed"}}
		end := m.time.Add(600 * time.Millisecond)
		if err := f.Open(end, addr); err != nil || m.opened(answer, addr).IsZero() || m.opened(answer, addr).After(end) {
			t.Errorf("open again %t: %v, open until %v, want %v at most", again, err, m.opened(answer, addr), end)
		}
		m.time = m.time.Add(200 * time.Millisecond)
	}
}

// Close ends the second lock, too: one that lasts too long must not be there when the first is renewed, which may take long as well.
func TestCloseEndsTheLockThatLastsTooLong(t *testing.T) {
	addr := vip[0].Addr()
	f, m := guarding(t, addr)
	m.faults = []fault{{}, {Amid: 5 * time.Second}}
	if err := f.Open(m.time.Add(600*time.Millisecond), addr); !errors.Is(err, ErrLate) {
		t.Fatalf("the second lock took 5 s: %v", err)
	}
	if err := f.Close(addr); err != nil {
		t.Fatal(err)
	}
	m.faults = []fault{{Amid: 300 * time.Millisecond}}
	end := m.time.Add(200 * time.Millisecond)
	if err := f.Open(end, addr); !errors.Is(err, ErrLate) || m.opened(answer, addr).After(end) {
		t.Errorf("the first lock took too long: %v, open until %v after the end", err, m.opened(answer, addr).Sub(end))
	}
}

// What was open before a flush and cannot be opened again is gated at once, and tables of which a part is gone are put back closed.
func TestGatesWhatItDoesNotOpen(t *testing.T) {
	f, m := guarding(t, vip.addrs()...)
	if err := f.Open(m.time.Add(time.Minute), vip.addrs()...); err != nil {
		t.Fatal(err)
	}
	gated := func(when string) {
		t.Helper()
		for _, addr := range vip.addrs() {
			if _, ok := m.sets[vips][addr]; !ok || !m.opened(answer, addr).IsZero() {
				t.Errorf("%s: %s is gated: %t, open until %v", when, addr, ok, m.opened(answer, addr))
			}
		}
	}
	delete(m.sets[vips], vip[0].Addr())
	if err := f.Check(); err != nil {
		t.Fatal(err)
	}
	gated("a part was gone")

	if err := f.Open(m.time.Add(time.Minute), vip.addrs()...); err != nil {
		t.Fatal(err)
	}
	m.sets = nil
	m.faults = []fault{{}, {After: time.Hour}} // the first finds no tables
	if err := f.Open(m.time.Add(time.Minute), vip.addrs()...); !errors.Is(err, ErrLate) {
		t.Fatalf("the first lock took an hour: %v", err)
	}
	gated("it could not be opened")
}

// When the kernel reports a change Keep calls closed before it checks: an opening that finds the
// tables gone puts them back and goes on, so that next to nothing is closed in between.
func TestKeepOpensBeforeItChecks(t *testing.T) {
	var of *Fence
	var before []uint64 // how often they had been put back
	kept(t, func() {
		before = append(before, of.timesRestored())
		if err := of.Open(time.Now().Add(time.Hour), vip[0].Addr()); err != nil {
			t.Error(err)
		}
	}, func(f *Fence, k *failing, _ *bytes.Buffer) {
		time.Sleep(round / 2)
		f.between(func() { of, k.sets = f, nil; k.changed <- struct{}{} })
		synctest.Wait()
		if !slices.Equal(before, []uint64{0, 1}) || k.opened(answer, vip[0].Addr()).IsZero() {
			t.Errorf("opened after %v restorations, want none and one; open until %v", before, k.opened(answer, vip[0].Addr()))
		}
	})
}

// Otherwise a node that lingers would answer beside the next holder until the next round.
func TestKeepChecksAtAChange(t *testing.T) {
	kept(t, func() {}, func(f *Fence, k *failing, _ *bytes.Buffer) {
		pass(1) // a check has just been
		vandalise := func() {
			f.between(func() {
				k.sets = nil
				select {
				case k.changed <- struct{}{}:
				default:
				}
			})
			synctest.Wait()
		}
		if vandalise(); f.timesRestored() != 1 {
			t.Errorf("put back %d times, want once, at once", f.timesRestored())
		}
		if vandalise(); f.timesRestored() != 1 {
			t.Errorf("put back %d times, want a pause", f.timesRestored())
		}
		time.Sleep(pause)
		synctest.Wait()
		if f.timesRestored() != 2 {
			t.Errorf("put back %d times, want twice, after the pause", f.timesRestored())
		}
		time.Sleep(2*round - pause/2) // another periodic check has just been
		synctest.Wait()
		if vandalise(); f.timesRestored() != 3 {
			t.Errorf("put back %d times, want three times, at once", f.timesRestored())
		}
	})
}
