package secondchance

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
	"golang.org/x/sys/unix"
)

// fake is a tunnel and a kernel that record calls.
type fake struct {
	mu                                           sync.Mutex
	did                                          []string
	index                                        int
	failEnsure, failReach, failWrite, failRemove error
	server                                       netip.AddrPort
}

func (f *fake) do(err error, format string, args ...any) error {
	if err != nil {
		format += ": " + err.Error()
	}
	f.did = append(f.did, fmt.Sprintf(format, args...))
	return err
}

func (f *fake) ensure(number uint16, local netip.Addr) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.index, f.do(f.failEnsure, "ensure %d %s", number, local)
}

func (f *fake) reach(self uint16, others map[uint16]netip.Addr, v6 bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.do(f.failReach, "reach %v %t", others, v6)
}

// probe makes all members answer at once.
func (f *fake) probe(_ uint16, received func(uint16)) (ask func(uint16) error, stop func(), err error) {
	return func(number uint16) error { received(number); return nil }, func() {}, nil
}

func (f *fake) removeLink() error { return f.do(nil, "remove link") }

func (f *fake) write(w Wanted, tunnel uint32) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.do(f.failWrite, "write %v to %v %d", w.VIPs, names(ring(w.Self, w.Others)), tunnel)
}

func (f *fake) listener(map[netip.Addr]bool) (netip.AddrPort, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.server, nil
}

func (f *fake) counts() (Counts, error)                        { return Counts{1, 2, 3}, errors.New("no counters") }
func (f *fake) remove() error                                  { return f.do(f.failRemove, "remove tables") }
func (f *fake) watch(chan<- struct{}) (stop func(), err error) { return func() {}, nil }

func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{index: 7}
		var able []bool
		c := newChance(slog.New(slog.DiscardHandler), f, f, 9*time.Second, func(ok bool) { able = append(able, ok) })
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { c.Run(ctx); close(done) }()
		f.mu.Lock() // released while time passes
		defer func() { f.mu.Unlock(); cancel(); <-done }()
		step := func(after time.Duration, want ...string) {
			t.Helper()
			f.mu.Unlock()
			time.Sleep(after)
			synctest.Wait()
			f.mu.Lock()
			if diff := cmp.Diff(want, f.did); diff != "" {
				t.Error(diff)
			}
			f.did = nil
		}
		step(time.Hour)
		vips := map[netip.Addr]bool{at(0): false}
		c.Set(Wanted{VIPs: vips}) // before this node's address is known
		step(time.Hour)

		const ensure, reach = "ensure 5 10.0.5.1", "reach map[9:10.0.9.1] false"
		const serves, leaves = "write map[10.0.0.1:false] to [m9] 7", "write map[10.0.0.1:true] to [m9] 7"
		w := Wanted{Self: Member{Name: "m5", Number: 5, Addr: at(5)}, Others: []Member{{Name: "m9", Number: 9, Addr: at(9)}}, VIPs: vips, Links: []string{"eth0"}}
		c.Set(w)
		step(0, ensure, "write map[10.0.0.1:false] to [] 7", reach, ensure, serves, reach) // the second time because m9 has answered
		step(3*time.Second, ensure, serves, reach)

		w.VIPs = map[netip.Addr]bool{at(0): true}
		c.Set(w)
		step(0, ensure, leaves, reach)
		if diff := cmp.Diff(Status{Able: true, To: []string{"m9"}, Counts: Counts{Passed: 1, Answered: 2, Refused: 3}}, c.Status()); diff != "" {
			t.Errorf("status (-want +got): %s", diff)
		}

		// One failure changes nothing: the rules in the kernel stay.
		f.failReach = errors.New("unreachable")
		step(3*time.Second, ensure, leaves, reach+": unreachable")
		f.failReach = nil
		step(time.Second, ensure, leaves, reach)
		f.failWrite = unix.EBUSY
		step(3*time.Second, ensure, leaves+": device or resource busy")
		f.failWrite = nil
		step(time.Second, ensure, leaves, reach)
		if diff := cmp.Diff([]bool{true}, able); diff != "" {
			t.Errorf("able (-want +got): %s", diff)
		}

		f.failEnsure = errors.New("no VXLAN")
		f.mu.Unlock()
		time.Sleep(3*time.Second + 9500*time.Millisecond)
		f.mu.Lock()
		if st := c.Status(); st.Able || st.Err == nil {
			t.Errorf("status after a long failure: %+v", st)
		}
		f.failEnsure, f.did = nil, nil
		f.server = netip.AddrPortFrom(at(0), 6443)
		step(time.Second)
		if st := c.Status(); st.Able || !strings.HasPrefix(st.Err.Error(), "a server listens at 10.0.0.1:6443 itself") {
			t.Errorf("status with a server at the VIP: %+v", st)
		}
		f.server = netip.AddrPort{}
		step(time.Second, ensure, "write map[10.0.0.1:true] to [] 7", reach, ensure, leaves, reach)

		w.Self.Number, w.Self.Name = 6, "m6"
		c.Set(w)
		step(0, "ensure 6 10.0.5.1", leaves, reach)

		c.Set(Wanted{})
		step(time.Hour, "remove link", "remove tables")
		if diff := cmp.Diff([]bool{true, false, true, false}, able); diff != "" {
			t.Errorf("able (-want +got): %s", diff)
		}
	})
}

// Run leaves no rules and no link behind, and neither does an apply after its first write failed.
func TestEnd(t *testing.T) {
	f := &fake{index: 7, failWrite: errors.New("no nftables")}
	c := newChance(slog.New(slog.DiscardHandler), f, f, time.Second, func(bool) {})
	w := Wanted{Self: Member{Name: "m5", Number: 5, Addr: at(5)}, VIPs: map[netip.Addr]bool{at(0): false}, Links: []string{"eth0"}}
	c.Set(w)
	if err := c.apply(); err == nil {
		t.Error("no error")
	}
	f.failWrite = nil
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.apply(); err != nil {
		t.Error(err)
	}
	c.Run(ctx)
	const ensure, write = "ensure 5 10.0.5.1", "write map[10.0.0.1:false] to [] 7"
	if diff := cmp.Diff([]string{ensure, write + ": no nftables", "remove link", ensure, write, "reach map[] false", "remove link", "remove tables"}, f.did); diff != "" {
		t.Error(diff)
	}
}

// Lacks names each obstacle.
func TestLacks(t *testing.T) {
	m := func(i int) Member { return Member{Name: fmt.Sprint("m", i), Number: Number(i), Addr: at(i)} }
	vips, eth0 := map[netip.Addr]bool{at(0): false}, []string{"eth0"}
	timedOut, same, v6 := m(2), m(3), m(4)
	timedOut.TimedOut, same.Number, v6.Addr = true, 1, netip.MustParseAddr("fd00::4")
	var many []Member
	for i := range maxMembers {
		many = append(many, m(2+i))
	}
	for want, w := range map[string]Wanted{
		"":                                {VIPs: vips, Links: eth0, Others: []Member{m(2)}},
		"no route leads":                  {VIPs: vips, Others: []Member{m(2)}},
		"9 members exceed the limit of 8": {VIPs: vips, Links: eth0, Others: many},
		"m3 has the same":                 {VIPs: vips, Links: eth0, Others: []Member{same}},
		"m4 is at fd00::4":                {VIPs: vips, Links: eth0, Others: []Member{v6}},
		"no answer by the tunnel from m2: let UDP port 7947": {VIPs: vips, Links: eth0, Others: []Member{timedOut}},
	} {
		w.Self = m(1)
		if got := w.lacks(); !strings.HasPrefix(got, want) || want == "" && got != "" {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if got := (Wanted{}).lacks(); got != "" {
		t.Error(got)
	}
}

// Without VIPs a predecessor's rules are removed. A failure to do so is not reported, as the kernel may not support them.
func TestRemove(t *testing.T) {
	f := &fake{failRemove: errors.New("no nftables")}
	c := newChance(slog.New(slog.DiscardHandler), f, f, time.Second, nil)
	c.Set(Wanted{})
	if err := c.apply(); err != nil || !cmp.Equal(c.Status(), Status{}) {
		t.Error(err, c.Status())
	}
	if diff := cmp.Diff([]string{"remove link", "remove tables: no nftables"}, f.did); diff != "" {
		t.Error(diff)
	}
}
