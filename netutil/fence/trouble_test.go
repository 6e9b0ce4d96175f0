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

// stuck is a kernel whose nftables somebody else keeps busy.
type stuck struct {
	*model
	freed chan struct{}
}

func (s stuck) Apply(changes []Change) error {
	<-s.freed
	return s.model.Apply(changes)
}

// A kernel that does not answer costs a second, not the speaker; once it answers
// again, what nobody waited for any more is done, in order, and does no harm.
func TestStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := stuck{&model{ended: func(netip.Addr, time.Time, time.Time) {}}, make(chan struct{})}
		f, err := NewOver(slog.New(slog.DiscardHandler), k, Options{})
		if err != nil {
			t.Fatal(err)
		}
		f.now = func() time.Time { k.time = time.Now(); return k.time }
		addr := vip[0].Addr()
		// The first waits; the others have other things to do while it is stuck.
		for _, wait := range []time.Duration{ruleset.AnswerTimeout, 0, 0} {
			start := time.Now()
			if err := f.Guard(addr); !errors.Is(err, ruleset.ErrStuck) {
				t.Errorf("error %v, want %v", err, ruleset.ErrStuck)
			}
			if took := time.Since(start); took != wait {
				t.Errorf("it took %v", took)
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
			t.Errorf("not gated and open: %v", k.sets)
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
		if err := f.Guard(wrong); err == nil {
			t.Errorf("%v is gated", wrong)
		}
	}
	if err := f.Open(time.Now().Add(time.Hour), vip[0].Addr()); err == nil || !strings.Contains(err.Error(), "10.9.0.100 is not gated") {
		t.Errorf("open what is not gated: %v", err)
	}
	if err := f.Guard(netip.MustParseAddr("::ffff:10.9.0.100"), vip[0].Addr()); err != nil || f.status().Gated != 1 {
		t.Errorf("the same address twice: %v, %+v", err, f.status())
	}
	if err := f.Open(time.Now().Add(time.Hour), netip.MustParseAddr("::ffff:10.9.0.100"), vip[0].Addr()); err != nil {
		t.Error(err)
	}
	if err := f.Close(vip[1].Addr()); err != nil {
		t.Errorf("close what is not gated: %v", err)
	}
	if err := f.Try(); err != nil {
		t.Error(err)
	}
	f.kernel = deaf{f.kernel}
	if err := f.Try(); !errors.Is(err, syscall.EPERM) {
		t.Errorf("a kernel that refuses changes: %v", err)
	}
}

// deaf is a kernel that allows everything but changes.
type deaf struct{ Kernel }

func (deaf) Apply([]Change) error { return syscall.EPERM }
