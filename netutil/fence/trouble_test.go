package fence

import (
	"errors"
	"log/slog"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/herald-vip/herald/netutil/ruleset"
)

// stuck is a model; its Apply waits until freed is closed.
type stuck struct {
	*model
	freed chan struct{}
}

func (s stuck) Apply(changes []Change) error {
	<-s.freed
	return s.model.Apply(changes)
}

// Calls to a kernel that does not answer fail after a second. Once it answers, abandoned calls complete in order
// and do no harm.
func TestStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := stuck{&model{ended: func(netip.Addr, time.Time, time.Time) {}}, make(chan struct{})}
		f, err := NewOver(slog.New(slog.DiscardHandler), k, Options{})
		if err != nil {
			t.Fatal(err)
		}
		f.now = func() time.Time { k.time = time.Now(); return k.time }
		addr := vip[0].Addr()
		// Only the first call waits.
		for _, wait := range []time.Duration{ruleset.AnswerTimeout, 0, 0} {
			start := time.Now()
			if err := f.Filter(addr); !errors.Is(err, ruleset.ErrStuck) {
				t.Errorf("error %v, want %v", err, ruleset.ErrStuck)
			}
			if took := time.Since(start); took != wait {
				t.Errorf("Filter took %v, want %v", took, wait)
			}
		}
		close(k.freed)
		synctest.Wait()
		if err := f.Check(); err != nil {
			t.Error(err)
		}
		if err := f.Open(time.Now().Add(time.Hour), addr); err != nil {
			t.Error(err)
		}
		if _, ok := k.sets[vips][addr]; !ok || k.opened(answer, addr).IsZero() {
			t.Errorf("sets %v, want %s filtered and open", k.sets, addr)
		}
	})
}

func TestUnsupported(t *testing.T) {
	for _, test := range []struct {
		err  error
		want string
	}{
		{syscall.EPERM, "CAP_NET_ADMIN"},
		{ruleset.ErrNotRoot, "only root can try"},
		{syscall.EPROTONOSUPPORT, "has no nftables"},
		{syscall.EINVAL, "has no nftables"},
		{syscall.EOPNOTSUPP, "lacks arp, inet or fib"},
		{syscall.ENOENT, "lacks arp, inet or fib"},
	} {
		k := broken{&model{}, test.err}
		if _, err := NewOver(nil, k, Options{}); !errors.Is(err, ErrUnsupported) || !errors.Is(err, test.err) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%v: %v", test.err, err)
		}
	}
	if _, err := NewOver(nil, broken{&model{}, syscall.ENOMEM}, Options{}); err == nil || errors.Is(err, ErrUnsupported) {
		t.Errorf("out of memory: %v", err)
	}
}

type broken struct {
	*model
	err error
}

func (b broken) Rebuild(_, _ []netip.Addr) error { return b.err }

func TestRefused(t *testing.T) {
	f, err := NewOver(slog.New(slog.DiscardHandler), &model{ended: func(netip.Addr, time.Time, time.Time) {}}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, wrong := range []netip.Addr{{}, netip.MustParseAddr("::"), netip.MustParseAddr("fe80::1%lo")} {
		if err := f.Filter(wrong); err == nil {
			t.Errorf("Filter accepts %v", wrong)
		}
	}
	if err := f.Open(time.Now().Add(time.Hour), vip[0].Addr()); err == nil || !strings.Contains(err.Error(), "10.9.0.100 is not filtered") {
		t.Errorf("open an address that is not filtered: error %v", err)
	}
	if err := f.Filter(netip.MustParseAddr("::ffff:10.9.0.100"), vip[0].Addr()); err != nil || f.status().Filtered != 1 {
		t.Errorf("same address twice: error %v, status %+v", err, f.status())
	}
	if err := f.Open(time.Now().Add(time.Hour), netip.MustParseAddr("::ffff:10.9.0.100"), vip[0].Addr()); err != nil {
		t.Error(err)
	}
	if err := f.Close(vip[1].Addr()); err != nil {
		t.Errorf("close an address that is not filtered: %v", err)
	}
	if err := f.Try(); err != nil {
		t.Error(err)
	}
	f.kernel = readOnly{f.kernel}
	if err := f.Try(); !errors.Is(err, syscall.EPERM) {
		t.Errorf("kernel refuses changes: error %v, want EPERM", err)
	}
}

// readOnly is a kernel that refuses changes.
type readOnly struct{ Kernel }

func (readOnly) Apply([]Change) error { return syscall.EPERM }

// status holds counters of a Fence.
type status struct {
	Filtered int    // addresses, open or closed
	Restored uint64 // times that it put its tables back
	Late     uint64 // renewals that came too late
}

func (f *Fence) status() status {
	f.keeper.Lock()
	defer f.keeper.Unlock()
	return status{Filtered: len(f.filtered), Restored: f.restored, Late: f.late}
}

// unfiltered returns the addresses with a pending filter.
func (f *Fence) unfiltered() []netip.Addr {
	f.keeper.Lock()
	defer f.keeper.Unlock()
	return keys(f.pending)
}

// Probe leaves no tables behind, and leaves existing ones alone.
func TestProbeTouchesNothing(t *testing.T) {
	h := newHost(t)
	h.In(func() {
		if err := Probe(); err != nil {
			t.Errorf("Probe: %v, where the other tests have a fence", err)
		}
		if left, err := Left(); err != nil || left {
			t.Errorf("Left after Probe: %t, error %v, want false", left, err)
		}
		k := &nft{}
		defer k.Close()
		if err := k.Rebuild(nil, nil); err != nil {
			t.Error(err)
		}
		if err := Probe(); err != nil {
			t.Error(err)
		}
		if left, err := Left(); err != nil || !left {
			t.Errorf("Left with tables: %t, error %v, want true", left, err)
		}
	})
}
