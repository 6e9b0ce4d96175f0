package rtnetlink_test

import (
	"errors"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/herald-vip/herald/netutil/rtnetlink"
	"github.com/herald-vip/herald/testenv/nettest"
)

// All subscribers receive the same from one socket, which goes with the last of them and is opened anew.
func TestWatcher(t *testing.T) {
	h := nettest.NewHost(t)
	w := &rtnetlink.Watcher{NetNS: int(h.NS)}
	subscribe := func() *rtnetlink.Subscription {
		s, err := w.Subscribe()
		h.Must(err)
		return s
	}
	hears := func(s *rtnetlink.Subscription, name string) {
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
	make := func(name string) {
		h.Must(h.NL.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: name + "p"}))
	}
	first, second := subscribe(), subscribe()
	make("a")
	hears(first, "a")
	first.Close()
	if _, err := next(first); err == nil {
		t.Error("a subscription that is closed goes on")
	}
	make("b")
	hears(second, "b")
	second.Close()
	second.Close()
	third := subscribe()
	defer third.Close()
	make("c")
	hears(third, "c")
}

// next waits for changes.
func next(s *rtnetlink.Subscription) ([]rtnetlink.Event, error) {
	<-s.Ready()
	return s.Take()
}

// A subscription whose queue is full ends with an error; others go on.
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
		t.Errorf("another subscriber: %d events, error %v", len(events), err)
	}
	if _, err := next(slow); !errors.Is(err, rtnetlink.ErrQueueFull) {
		t.Errorf("error %v, want %v", err, rtnetlink.ErrQueueFull)
	}
}
