package fence

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var some = []netip.Addr{netip.MustParseAddr("10.9.0.100"), netip.MustParseAddr("10.9.0.101"), netip.MustParseAddr("fd00:9::100")}

// Whatever is asked for, stalls, gets lost or is vandalised, in any order: no address
// is ever open longer than it was opened for, and what succeeded is so.
func TestNeverOpenTooLong(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := newHistory(t)
		for range rapid.IntRange(1, 40).Draw(t, "deeds") {
			if h.deed(); h.m.wrong != "" {
				t.Fatal(h.m.wrong)
			}
		}
		h.calm()
	})
}

// history is a fence, its kernel, and what may be open until when by what was asked for.
type history struct {
	*rapid.T
	m       *model
	f       *Fence
	guarded map[netip.Addr]bool
	served  map[netip.Addr]bool
	wanted  map[netip.Addr]bool      // either
	answers map[netip.Addr]time.Time // the latest it may answer, by any request so far
	accepts map[netip.Addr]time.Time
	wiped   time.Time // when the tables were, the last time
	ungated bool      // by somebody else, which Check and Guard notice
}

func newHistory(t *rapid.T) *history {
	h := &history{T: t, wanted: map[netip.Addr]bool{}, answers: map[netip.Addr]time.Time{}, accepts: map[netip.Addr]time.Time{}}
	h.m = &model{time: time.Unix(1e9, 0), ended: func(addr netip.Addr, answering, accepting time.Time) {
		if answering.After(h.answers[addr]) {
			h.m.wrong = fmt.Sprintf("%s is answered for %v too long", addr, answering.Sub(h.answers[addr]))
		}
		if accepting.After(h.accepts[addr]) {
			h.m.wrong = fmt.Sprintf("%s is accepted %v too long", addr, accepting.Sub(h.accepts[addr]))
		}
	}}
	f, err := NewOver(slog.New(slog.DiscardHandler), h.m, Options{Services: true})
	if err != nil {
		t.Fatal(err)
	}
	f.now = h.m.now
	h.f = f
	h.guard(some)
	return h
}

var (
	anyStall = rapid.SampledFrom([]time.Duration{0, 0, 0, 3 * time.Millisecond, 30 * time.Millisecond, 700 * time.Millisecond, 5 * time.Second})
	anyFault = rapid.Custom(func(t *rapid.T) fault {
		return fault{
			Before: anyStall.Draw(t, "before"),
			Amid:   anyStall.Draw(t, "amid"),
			After:  anyStall.Draw(t, "after"),
			Late:   rapid.SampledFrom([]time.Duration{0, slack / 2, slack}).Draw(t, "late"),
			Lost:   rapid.SampledFrom([]string{"", "", "", "request", "answer", "stuck"}).Draw(t, "lost"),
		}
	})
)

func (h *history) deed() {
	h.m.time = h.m.time.Add(anyStall.Draw(h.T, "between"))
	h.m.faults = rapid.SliceOfN(anyFault, 0, 4).Draw(h.T, "faults")
	addrs := rapid.SliceOfNDistinct(rapid.SampledFrom(some), 0, len(some), rapid.ID).Draw(h.T, "addrs")
	end := h.m.time.Add(rapid.SampledFrom([]time.Duration{-time.Second, allowance + slack + shortest/2, 600 * time.Millisecond, 600 * time.Millisecond, time.Minute}).Draw(h.T, "end"))
	switch rapid.SampledFrom([]string{"open", "open", "open", "open", "accept", "accept", "close", "guard", "serve", "check", "wipe", "ungate", "remove"}).Draw(h.T, "deed") {
	case "open":
		h.open(end, addrs)
	case "accept":
		h.accept(end, addrs)
	case "close":
		if h.f.Close(addrs...) == nil {
			for _, addr := range addrs {
				h.hasGate(addr)
				h.is(addr, answer, time.Time{})
				h.is(addr, accept, time.Time{})
			}
		}
	case "guard":
		h.guard(addrs)
	case "serve":
		h.serve(addrs)
	case "check":
		if h.f.Check() == nil {
			h.isGated()
		}
	case "wipe":
		h.m.overdue()
		h.m.sets, h.wiped = nil, h.m.time
	case "ungate":
		h.ungated = true
		for _, addr := range addrs {
			delete(h.m.sets[vips], addr)
		}
	case "remove":
		if err := h.f.Remove(); err != nil {
			h.Fatal(err)
		}
		h.guarded, h.served, h.wanted = nil, nil, nil
	}
}

func (h *history) open(end time.Time, addrs []netip.Addr) {
	addrs = slices.DeleteFunc(addrs, func(a netip.Addr) bool { return !h.wanted[a] })
	for _, addr := range addrs {
		h.answers[addr] = latest(h.answers[addr], end)
		h.accepts[addr] = latest(h.accepts[addr], end)
	}
	if h.f.Open(end, addrs...) == nil {
		for _, addr := range addrs {
			h.hasGate(addr)
			h.is(addr, answer, end)
			h.is(addr, accept, end)
		}
	}
}

func (h *history) accept(end time.Time, addrs []netip.Addr) {
	addrs = slices.DeleteFunc(addrs, func(a netip.Addr) bool { return !h.wanted[a] })
	for _, addr := range addrs {
		h.accepts[addr] = latest(h.accepts[addr], end)
	}
	err := h.f.Accept(end, addrs...)
	if err != nil && !errors.Is(err, ErrLate) {
		return
	}
	for _, addr := range addrs {
		h.hasGate(addr)
		h.is(addr, answer, time.Time{})
		if err == nil {
			h.is(addr, accept, end)
		}
	}
}

func (h *history) guard(addrs []netip.Addr) {
	h.guarded = members(addrs)
	h.gates(addrs, h.f.Guard)
}

func (h *history) serve(addrs []netip.Addr) {
	h.served = members(addrs)
	h.gates(addrs, h.f.Serve)
}

func members(addrs []netip.Addr) map[netip.Addr]bool {
	out := make(map[netip.Addr]bool)
	for _, addr := range addrs {
		out[addr] = true
	}
	return out
}

// gates calls Guard or Serve.
func (h *history) gates(addrs []netip.Addr, call func(...netip.Addr) error) {
	before := h.wanted
	h.wanted = maps.Clone(h.guarded)
	if h.wanted == nil {
		h.wanted = make(map[netip.Addr]bool)
	}
	maps.Copy(h.wanted, h.served)
	if call(addrs...) != nil {
		return
	}
	h.isGated()
	for _, addr := range addrs {
		if !before[addr] {
			h.is(addr, answer, time.Time{})
			h.is(addr, accept, time.Time{})
		}
	}
}

// is checks that the address was opened until end, less what the fence keeps back; never: the zero time.
func (h *history) is(addr netip.Addr, first set, end time.Time) {
	opened := h.m.opened(first, addr)
	if end.IsZero() && !opened.IsZero() || !end.IsZero() && opened.Before(end.Add(-allowance-slack)) {
		h.Fatalf("%s is in %s until %v, want %v", addr, first, opened, end)
	}
}

// hasGate checks that an address that is to be gated is.
func (h *history) hasGate(addr netip.Addr) {
	if _, ok := h.m.sets[vips][addr]; !ok && !h.ungated && h.wanted[addr] && h.f.gated != nil {
		h.Fatalf("%s is not gated", addr)
	}
}

// isGated checks that all are gated but those that were open when somebody wiped the tables, and are to be still.
func (h *history) isGated() {
	want := maps.Clone(h.wanted)
	for addr := range h.f.bare {
		if delete(want, addr); !h.answers[addr].After(h.wiped) {
			h.Fatalf("%s is not gated, and was open until %v when the tables were wiped at %v", addr, h.answers[addr], h.wiped)
		}
	}
	if ok, _ := h.m.Intact(keys(want), keys(h.served)); !ok && h.f.gated != nil {
		h.Fatalf("gated: %v and served: %v, want %v and %v", h.m.sets[vips], h.m.sets[services], want, h.served)
	}
	h.ungated = false
}

// calm is when nothing goes wrong any more: then everything works.
func (h *history) calm() {
	h.m.faults = nil
	end := h.m.time.Add(time.Second)
	h.guarded, h.wanted = members(some), members(some)
	if err := h.f.Guard(some...); err != nil {
		h.Fatal(err)
	}
	h.served = members(some[:1])
	if err := h.f.Serve(some[:1]...); err != nil {
		h.Fatal(err)
	}
	for range 2 { // what was open is gated by the second
		if err := h.f.Check(); err != nil {
			h.Fatal(err)
		}
	}
	if h.isGated(); len(h.f.bare) > 0 {
		h.Fatalf("not gated are %v", h.f.bare)
	}
	before := h.f.status()
	h.open(end, some)
	h.m.time = h.m.time.Add(300 * time.Millisecond)
	h.open(end.Add(time.Second), some)
	for _, addr := range some {
		h.is(addr, answer, end.Add(time.Second))
	}
	if after := h.f.status(); after != before || after.Gated != len(some) {
		h.Fatalf("trouble in calm: %+v, before %+v", after, before)
	}
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
