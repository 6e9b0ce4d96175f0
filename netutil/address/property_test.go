package address

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/herald-vip/herald/netutil/rtnetlink"
)

// TestAnyHistory applies random changes by an administrator, a speaker and a failing kernel, and then checks the
// state of the host.
func TestAnyHistory(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		delay := time.Duration(rapid.IntRange(0, 3).Draw(rt, "delay")) * 100 * time.Millisecond
		deeds := rapid.SliceOfN(anyDeed, 1, 60).Draw(rt, "deeds")
		var h *history
		synctest.Test(t, func(*testing.T) {
			h = newHistory(delay)
			defer h.end()
			for _, d := range deeds {
				h.do(d)
			}
			h.letTimePass()
			h.check()
		})
		if len(h.wrong) > 0 {
			rt.Fatalf("%s\nlog:\n%s", strings.Join(h.wrong, "\n"), h.log.String())
		}
	})
}

// deed is one event.
type deed struct {
	What string
	At   Binding
	Yes  bool          // variant of the event
	Op   string        // call that fails from now on
	Time time.Duration // wait after it
}

var anyDeed = rapid.Custom(func(t *rapid.T) deed {
	return deed{
		What: rapid.SampledFrom([]string{"bind", "bind", "unbind", "take away", "add foreign", "delete foreign", "link", "lose", "refuse", "wait", "wait"}).Draw(t, "what"),
		At: Binding{
			rapid.SampledFrom([]string{"lo", "eth0"}).Draw(t, "link"),
			rapid.SampledFrom([]netip.Addr{vip4, vip6, vip4.Next()}).Draw(t, "addr"),
		},
		Yes:  rapid.Bool().Draw(t, "yes"),
		Op:   rapid.SampledFrom([]string{"", "add", "refresh", "dump", "watch", "link", "remove"}).Draw(t, "op"),
		Time: rapid.SampledFrom([]time.Duration{0, 0, time.Millisecond, 150 * time.Millisecond, 4 * time.Second, 15 * time.Second}).Draw(t, "time"),
	}
})

func (h *history) do(d deed) {
	switch d.What {
	case "bind":
		h.bind(d.At)
	case "unbind":
		h.unbind(d.At)
	case "take away":
		if own, ok := h.own(d.At); ok && h.has(d.At) {
			h.k.adminUnset(own)
		}
	case "add foreign":
		h.addForeign(d.At, d.Yes)
	case "delete foreign":
		for id, at := range h.foreign {
			if at.IP == d.At.Addr {
				h.k.adminUnset(at)
				delete(h.foreign, id)
			}
		}
	case "link":
		h.changeLink(d.At.Interface, d.Yes)
	case "lose":
		h.k.loseAll()
	case "refuse":
		h.refusing = d.Op != ""
		h.k.refuse(unix.ENOMEM, d.Op)
	case "wait":
		time.Sleep(d.Time)
	}
}

type history struct {
	k        *fakeKernel
	a        *Binder
	log      bytes.Buffer
	links    map[string]link
	next     int // index of the next new link
	foreign  map[fakeKey]address
	wants    map[Binding]bool
	delay    time.Duration
	refusing bool
	wrong    []string
	end      func()
}

func (h *history) errorf(format string, args ...any) {
	h.wrong = append(h.wrong, fmt.Sprintf(format, args...))
}

func newHistory(delay time.Duration) *history {
	h := &history{
		k:       newFakeKernel(lo, eth0),
		links:   map[string]link{"lo": lo, "eth0": eth0},
		next:    10,
		foreign: make(map[fakeKey]address),
		wants:   make(map[Binding]bool),
		delay:   delay,
	}
	h.k.adminSet(marked)
	h.k.delay = delay
	h.a = fakeAddresses(h.k, &h.log)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- h.a.Run(ctx) }()
	h.end = func() {
		cancel()
		<-done
	}
	return h
}

// own returns the address that Herald would add.
func (h *history) own(b Binding) (address, bool) {
	l, ok := h.links[b.Interface]
	return vip(l, b.Addr, defaultLifetime, DefaultMark), ok
}

func (h *history) has(b Binding) bool {
	own, ok := h.own(b)
	got, there := h.k.get(own)
	return ok && there && got.Proto == DefaultMark
}

func (h *history) bind(b Binding) {
	h.wants[b] = true
	if err := h.a.Bind(b.Interface, b.Addr); err == nil && !h.has(b) {
		h.errorf("Bind(%v) returned nil, but the kernel lacks the address", b)
	}
}

func (h *history) unbind(b Binding) {
	delete(h.wants, b)
	if err := h.a.Unbind(b.Interface, b.Addr); err == nil && h.has(b) {
		h.errorf("Unbind(%v) returned nil, but the kernel has the address", b)
	}
}

// addForeign adds a foreign address. It uses the place of Herald's own only while no event is delayed and no call
// fails: Herald cannot respect an address that it does not see.
func (h *history) addForeign(b Binding, samePlace bool) {
	l, ok := h.links[b.Interface]
	if !ok {
		return
	}
	bits := b.Addr.BitLen() - 8
	calm := func() {}
	if samePlace && h.delay == 0 && !h.refusing {
		bits = b.Addr.BitLen()
		calm = func() {
			time.Sleep(rtnetlink.Pause)
			synctest.Wait()
		}
	}
	at := permanent(l, netip.PrefixFrom(b.Addr, bits).String())
	calm()
	held := func(s Status) bool { return s.Binding == b && s.Bound }
	if bits < b.Addr.BitLen() || !slices.ContainsFunc(h.a.Status(), held) { // otherwise this changes Herald's own
		h.foreign[key(at)] = at
	}
	h.k.adminSet(at)
	calm()
}

// changeLink makes, deletes, or sets a link up or down.
func (h *history) changeLink(name string, yes bool) {
	l, ok := h.links[name]
	switch {
	case !ok:
		h.next++
		l = link{Index: h.next, Name: name, AdminUp: yes, Loopback: name == "lo"}
	case yes:
		h.k.adminUnlink(l.Index)
		delete(h.links, name)
		h.forgetForeign(l, false)
		return
	default:
		l.AdminUp = !l.AdminUp
	}
	h.k.adminLink(l)
	h.links[name] = l
	h.forgetForeign(l, l.AdminUp)
}

// forgetForeign removes the foreign addresses that the kernel removes with a link.
func (h *history) forgetForeign(l link, up bool) {
	_, exists := h.links[l.Name]
	for id, at := range h.foreign {
		if at.Link == l.Index && !up && (!exists || at.IP.Is6()) {
			delete(h.foreign, id)
		}
	}
}

// letTimePass waits for the longest pause and an expiry.
func (h *history) letTimePass() {
	h.k.failWith(nil)
	time.Sleep(2*maxPause + 2*defaultLifetime)
	synctest.Wait()
}

func (h *history) check() {
	for id, at := range h.foreign {
		if got, ok := h.k.get(at); !ok || got != at {
			h.errorf("foreign %v is now %v", id, got)
		}
	}
	for _, name := range []string{"lo", "eth0"} {
		for _, addr := range []netip.Addr{vip4, vip6, vip4.Next()} {
			if b := (Binding{name, addr}); h.has(b) && !h.wants[b] && h.links[name].AdminUp {
				h.errorf("%v is on the link, but not wanted", b)
			}
		}
	}
	all := h.a.Status()
	if len(all) != len(h.wants) {
		h.errorf("%d bindings wanted, status of %d", len(h.wants), len(all))
	}
	for _, s := range all {
		l, exists := h.links[s.Interface]
		foreign := false
		for _, at := range h.foreign {
			foreign = foreign || at.IP == s.Addr
		}
		switch up := exists && l.AdminUp; {
		case s.Bound != (up && h.has(s.Binding)):
			h.errorf("status %+v, but kernel has the address: %v", s, h.has(s.Binding))
		case !s.Bound && up && !foreign:
			h.errorf("unbound without a reason: %+v", s)
		case !s.Bound && s.Err == nil, s.Bound && (s.Err != nil) != foreign:
			h.errorf("wrong error in %+v", s)
		}
	}
}
