package rtnetlink_test

import (
	"errors"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/herald-vip/herald/netutil/rtnetlink"
	"github.com/herald-vip/herald/testenv/nettest"
)

// All subscribers receive the same events from one socket. It is closed with the last subscription and opened again later.
func TestWatcher(t *testing.T) {
	h := nettest.NewHost(t)
	w := &rtnetlink.Watcher{NetNS: int(h.NS)}
	subscribe := func() *rtnetlink.Subscription {
		s, err := w.Subscribe()
		h.Must(err)
		return s
	}
	receives := func(s *rtnetlink.Subscription, name string) {
		t.Helper()
		for {
			events, err := next(s)
			h.Must(err)
			for _, e := range events {
				if e.Link != nil && e.Link.Name == name && !e.Gone {
					return
				}
			}
		}
	}
	add := func(name string) {
		h.Must(h.NL.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: name + "p"}))
	}
	first, second := subscribe(), subscribe()
	add("a")
	receives(first, "a")
	first.Close()
	if _, err := next(first); err == nil {
		t.Error("Take of a closed subscription: no error")
	}
	add("b")
	receives(second, "b")
	second.Close()
	second.Close()
	third := subscribe()
	defer third.Close()
	add("c")
	receives(third, "c")
}

// next waits for changes.
func next(s *rtnetlink.Subscription) ([]rtnetlink.Event, error) {
	<-s.Ready()
	return s.Take()
}

// A subscription with a full queue ends with an error; others continue.
func TestWatcherQueueFull(t *testing.T) {
	h := nettest.NewHost(t)
	w := &rtnetlink.Watcher{NetNS: int(h.NS)}
	slow, err := w.Subscribe()
	h.Must(err)
	defer slow.Close()
	quick, err := w.Subscribe()
	h.Must(err)
	defer quick.Close()
	rtnetlink.FillQueue(slow)
	h.AddVeth("a", "b")
	if events, err := next(quick); err != nil || len(events) == 0 {
		t.Errorf("other subscriber: %d events, error %v", len(events), err)
	}
	if _, err := next(slow); !errors.Is(err, rtnetlink.ErrQueueFull) {
		t.Errorf("error %v, want %v", err, rtnetlink.ErrQueueFull)
	}
}
