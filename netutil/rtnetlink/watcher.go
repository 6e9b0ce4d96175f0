package rtnetlink

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"sync"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/internal/wake"
)

const (
	defaultBuffer = 4 << 20 // fits some ten thousand changes
	maxEvents     = 1 << 14 // queue length of a subscriber
)

var errQueueFull = fmt.Errorf("subscriber did not take its queue of %d changes: %w", maxEvents, unix.ENOBUFS)

// Watcher reports changes of links, addresses and default routes to subscribers. One socket serves all of them and is open
// while there are subscribers. Each subscriber reads everything itself after subscribing.
type Watcher struct {
	// NetNS is a file descriptor of a network namespace; 0 means the namespace of the first subscriber's thread.
	NetNS int
	// Buffer is the size of the socket's receive buffer in bytes; 0 is 4 MiB.
	Buffer int
	// Mark is an IFA_PROTO value: setting an address with it is not reported.
	Mark uint8

	mu          sync.Mutex
	source      *source // nil without subscribers
	subscribers map[*Subscription]struct{}
}

// source is an open socket.
type source struct {
	conn *netlink.Conn
	done chan struct{} // closed when the reader has ended
}

// Subscription reports changes in order. After an error it has lost changes and cannot be used.
type Subscription struct {
	watcher *Watcher
	source  *source
	ready   chan struct{} // holds a token while events or err are set

	// Guarded by the watcher's mu.
	events []Event
	err    error
}

// Subscribe subscribes to changes, except to setting addresses with the watcher's mark.
func (w *Watcher) Subscribe() (*Subscription, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.source == nil {
		conn, err := w.open()
		if err != nil {
			return nil, err
		}
		w.source, w.subscribers = &source{conn, make(chan struct{})}, make(map[*Subscription]struct{})
		go w.forwardEvents(w.source)
	}
	s := &Subscription{watcher: w, source: w.source, ready: make(chan struct{}, 1)}
	w.subscribers[s] = struct{}{}
	return s, nil
}

func (w *Watcher) open() (*netlink.Conn, error) {
	conn, err := netlink.Dial(unix.NETLINK_ROUTE, &netlink.Config{
		NetNS:  w.NetNS,
		Groups: unix.RTMGRP_LINK | unix.RTMGRP_IPV4_IFADDR | unix.RTMGRP_IPV6_IFADDR | unix.RTMGRP_IPV4_ROUTE | unix.RTMGRP_IPV6_ROUTE,
	})
	if err != nil {
		return nil, fmt.Errorf("open netlink socket: %w", err)
	}
	filter, err := except(w.Mark)
	if err := errors.Join(err, conn.SetReadBuffer(cmp.Or(w.Buffer, defaultBuffer)), conn.SetBPF(filter)); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("set up netlink socket: %w", err)
	}
	return conn, nil
}

// forwardEvents queues events for all subscribers until reading fails or the last subscription is closed. Reading fails
// with ENOBUFS when the kernel loses changes.
func (w *Watcher) forwardEvents(src *source) {
	defer close(src.done)
	for {
		events, err := receiveEvents(src.conn)
		w.mu.Lock()
		if w.source != src {
			w.mu.Unlock()
			return
		}
		for s := range w.subscribers {
			s.events = append(s.events, events...)
			if len(s.events) > maxEvents {
				w.endSubscription(s, errQueueFull)
			} else if err != nil {
				w.endSubscription(s, err)
			}
			wake.Up(s.ready)
		}
		w.mu.Unlock()
	}
}

// endSubscription ends a subscription, and with the last one closes the source. The caller holds the mutex.
func (w *Watcher) endSubscription(s *Subscription, err error) {
	if s.err != nil {
		return
	}
	s.err = err
	delete(w.subscribers, s)
	if len(w.subscribers) == 0 && w.source == s.source {
		_ = w.source.conn.Close()
		w.source = nil
	}
}

// Ready receives when Take has changes or an error.
func (s *Subscription) Ready() <-chan struct{} { return s.ready }

// Take returns the changes since the last call. It does not wait.
func (s *Subscription) Take() ([]Event, error) {
	s.watcher.mu.Lock()
	defer s.watcher.mu.Unlock()
	if s.err != nil {
		return nil, s.err
	}
	events := s.events
	s.events = nil
	return events, nil
}

// Close ends the subscription.
func (s *Subscription) Close() {
	w := s.watcher
	w.mu.Lock()
	w.endSubscription(s, net.ErrClosed)
	wake.Up(s.ready)
	closed := w.source != s.source
	w.mu.Unlock()
	if closed {
		<-s.source.done
	}
}

func receiveEvents(conn *netlink.Conn) ([]Event, error) {
	msgs, err := conn.Receive()
	if err != nil {
		return nil, err
	}
	events := make([]Event, 0, len(msgs))
	for _, m := range msgs {
		e, ok, err := DecodeEvent(m)
		if err != nil {
			return nil, err
		}
		if ok {
			events = append(events, e)
		}
	}
	return events, nil
}
