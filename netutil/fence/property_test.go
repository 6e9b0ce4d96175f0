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

// With any order of calls, delays, losses and foreign changes, no address is open longer than requested, and
// each successful call has its effect.
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

// history holds a fence, its kernel, and the latest permitted end of each opening.
type history struct {
	*rapid.T
	m          *model
	f          *Fence
	vips       map[netip.Addr]bool
	services   map[netip.Addr]bool
	wanted     map[netip.Addr]bool      // both
	answers    map[netip.Addr]time.Time // latest end of answering in all requests since the last that succeeded
	accepts    map[netip.Addr]time.Time
	wiped      time.Time // last time that the tables were flushed
	unfiltered bool      // another program removed filters; Check and Filter notice it
}

func newHistory(t *rapid.T) *history {
	h := &history{T: t, wanted: map[netip.Addr]bool{}, answers: map[netip.Addr]time.Time{}, accepts: map[netip.Addr]time.Time{}}
	h.m = &model{time: time.Unix(1e9, 0), ended: func(addr netip.Addr, answering, accepting time.Time) {
		if answering.After(h.answers[addr]) {
			h.m.wrong = fmt.Sprintf("node answers for %s %v too long", addr, answering.Sub(h.answers[addr]))
		}
		if accepting.After(h.accepts[addr]) {
			h.m.wrong = fmt.Sprintf("node accepts packets to %s %v too long", addr, accepting.Sub(h.accepts[addr]))
		}
	}}
	f, err := NewOver(slog.New(slog.DiscardHandler), h.m, Options{Services: true})
	if err != nil {
		t.Fatal(err)
	}
	f.now = h.m.now
	h.f = f
	h.filter(some)
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
	switch rapid.SampledFrom([]string{"open", "open", "open", "open", "accept", "accept", "close", "filter", "filter services", "check", "wipe", "unfilter", "remove"}).Draw(h.T, "deed") {
	case "open":
		h.open(end, addrs)
	case "accept":
		h.accept(end, addrs)
	case "close":
		if h.f.Close(addrs...) == nil {
			for _, addr := range addrs {
				h.expectFiltered(addr)
				h.expectEnd(addr, answer, time.Time{})
				h.expectEnd(addr, accept, time.Time{})
				h.answers[addr], h.accepts[addr] = time.Time{}, time.Time{}
			}
		}
	case "filter":
		h.filter(addrs)
	case "filter services":
		h.filterServices(addrs)
	case "check":
		if h.f.Check() == nil {
			h.expectAllFiltered()
		}
	case "wipe":
		h.m.overdue()
		h.m.sets, h.wiped = nil, h.m.time
	case "unfilter":
		h.unfiltered = true
		for _, addr := range addrs {
			delete(h.m.sets[vips], addr)
		}
	case "remove":
		if err := h.f.Remove(); err != nil {
			h.Fatal(err)
		}
		h.vips, h.services, h.wanted = nil, nil, nil
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
			h.expectFiltered(addr)
			h.expectEnd(addr, answer, end)
			h.expectEnd(addr, accept, end)
			h.answers[addr], h.accepts[addr] = end, end
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
		h.expectFiltered(addr)
		h.expectEnd(addr, answer, time.Time{})
		h.answers[addr] = time.Time{}
		if err == nil {
			h.expectEnd(addr, accept, end)
			h.accepts[addr] = end
		}
	}
}

func (h *history) filter(addrs []netip.Addr) {
	h.vips = members(addrs)
	h.replace(addrs, h.f.Filter)
}

func (h *history) filterServices(addrs []netip.Addr) {
	h.services = members(addrs)
	h.replace(addrs, h.f.FilterServices)
}

func members(addrs []netip.Addr) map[netip.Addr]bool {
	out := make(map[netip.Addr]bool)
	for _, addr := range addrs {
		out[addr] = true
	}
	return out
}

// replace calls Filter or FilterServices.
func (h *history) replace(addrs []netip.Addr, call func(...netip.Addr) error) {
	before := h.wanted
	h.wanted = maps.Clone(h.vips)
	if h.wanted == nil {
		h.wanted = make(map[netip.Addr]bool)
	}
	maps.Copy(h.wanted, h.services)
	if call(addrs...) != nil {
		return
	}
	h.expectAllFiltered()
	for _, addr := range addrs {
		if !before[addr] {
			h.expectEnd(addr, answer, time.Time{})
			h.expectEnd(addr, accept, time.Time{})
		}
	}
}

// expectEnd checks that the address is open until end, less allowance and slack, or closed if end is zero.
func (h *history) expectEnd(addr netip.Addr, first Set, end time.Time) {
	opened := h.m.opened(first, addr)
	if end.IsZero() && !opened.IsZero() || !end.IsZero() && opened.Before(end.Add(-allowance-slack)) {
		h.Fatalf("%s is in %s until %v, want %v", addr, first, opened, end)
	}
}

// expectFiltered checks that a wanted address is filtered.
func (h *history) expectFiltered(addr netip.Addr) {
	if _, ok := h.m.sets[vips][addr]; !ok && !h.unfiltered && h.wanted[addr] && h.f.filtered != nil {
		h.Fatalf("%s is not filtered", addr)
	}
}

// expectAllFiltered checks that all wanted addresses are filtered, except open ones with a pending filter after a flush.
func (h *history) expectAllFiltered() {
	want := maps.Clone(h.wanted)
	for addr := range h.f.pending {
		if delete(want, addr); !h.answers[addr].After(h.wiped) {
			h.Fatalf("filter of %s is pending, but it was open only until %v, and the tables were flushed at %v", addr, h.answers[addr], h.wiped)
		}
	}
	if ok, _ := h.m.Intact(keys(want), keys(h.services)); !ok && h.f.filtered != nil {
		h.Fatalf("filtered: %v, services: %v, want %v and %v", h.m.sets[vips], h.m.sets[services], want, h.services)
	}
	h.unfiltered = false
}

// calm checks that everything works once failures end.
func (h *history) calm() {
	h.m.faults = nil
	end := h.m.time.Add(time.Second)
	h.vips, h.wanted = members(some), members(some)
	if err := h.f.Filter(some...); err != nil {
		h.Fatal(err)
	}
	h.services = members(some[:1])
	if err := h.f.FilterServices(some[:1]...); err != nil {
		h.Fatal(err)
	}
	for range 2 { // the second installs pending filters
		if err := h.f.Check(); err != nil {
			h.Fatal(err)
		}
	}
	if h.expectAllFiltered(); len(h.f.pending) > 0 {
		h.Fatalf("pending filters: %v, want none", h.f.pending)
	}
	before := h.f.status()
	h.open(end, some)
	h.m.time = h.m.time.Add(300 * time.Millisecond)
	h.open(end.Add(time.Second), some)
	for _, addr := range some {
		h.expectEnd(addr, answer, end.Add(time.Second))
	}
	if after := h.f.status(); after != before || after.Filtered != len(some) {
		h.Fatalf("status without failures: %+v, want %+v", after, before)
	}
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
