// Package routes follows the routes in the kernel of a lab's node, by what the kernel
// tells of every change.
package routes

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/testenv/lab"
)

// Change is a route that has other next hops than before.
type Change struct {
	At     time.Time
	Prefix netip.Prefix
	// Before and Now are the next hops, in order; none is no route.
	Before, Now []netip.Addr
}

// Watch follows routes.
type Watch struct {
	name   string
	within netip.Prefix
	take   func(Change)
	stop   chan struct{}
	done   chan struct{}

	mu      sync.Mutex
	hops    map[netip.Prefix][]netip.Addr
	changed chan struct{} // closed at every change
	closing bool
	err     error
}

// Follow begins to follow the routes to prefixes within one, in the node's main table;
// those that are there already are the first changes. take is told of each change, one
// after the other, while nobody looks. The caller closes it.
func Follow(n *lab.Node, within netip.Prefix, take func(Change)) (*Watch, error) {
	w := &Watch{
		name: n.Name(), within: within, take: take, stop: make(chan struct{}), done: make(chan struct{}),
		hops: make(map[netip.Prefix][]netip.Addr), changed: make(chan struct{}),
	}
	updates := make(chan netlink.RouteUpdate, 1024)
	err := n.Do(func() error {
		return netlink.RouteSubscribeWithOptions(updates, w.stop, netlink.RouteSubscribeOptions{
			ListExisting:  true,
			ErrorCallback: w.fail,
			// Room for ten thousand routes while this process waits for a CPU.
			ReceiveBufferSize:      64 << 20,
			ReceiveBufferForceSize: true,
		})
	})
	if err != nil {
		return nil, fmt.Errorf("follow the routes of %s: %w", n.Name(), err)
	}
	go func() {
		defer close(w.done)
		for u := range updates {
			w.update(u, time.Now())
		}
	}()
	return w, nil
}

func (w *Watch) update(u netlink.RouteUpdate, at time.Time) {
	if u.Table != unix.RT_TABLE_MAIN || u.Dst == nil {
		return
	}
	address, ok := netip.AddrFromSlice(u.Dst.IP)
	if !ok || !w.within.Contains(address.Unmap()) {
		return
	}
	length, _ := u.Dst.Mask.Size()
	c := Change{At: at, Prefix: netip.PrefixFrom(address.Unmap(), length)}
	if u.Type == unix.RTM_NEWROUTE {
		c.Now = nextHops(u.Route)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	c.Before = w.hops[c.Prefix]
	if slices.Equal(c.Before, c.Now) {
		return
	}
	if w.hops[c.Prefix] = c.Now; c.Now == nil {
		delete(w.hops, c.Prefix)
	}
	w.take(c)
	w.wake()
}

// nextHops are those of a route, sorted.
func nextHops(r netlink.Route) []netip.Addr {
	var list []netip.Addr
	add := func(gateway net.IP) {
		if a, ok := netip.AddrFromSlice(gateway); ok {
			list = append(list, a.Unmap())
		}
	}
	add(r.Gw)
	for _, hop := range r.MultiPath {
		add(hop.Gw)
	}
	slices.SortFunc(list, netip.Addr.Compare)
	return list
}

func (w *Watch) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.closing {
		w.err = fmt.Errorf("follow the routes of %s: %w", w.name, err)
		w.wake()
	}
}

// wake has all who await something look again.
func (w *Watch) wake() {
	close(w.changed)
	w.changed = make(chan struct{})
}

// View is the routes at an instant, good for as long as a function is called with it.
type View struct{ w *Watch }

// Prefixes is how many there are a route to.
func (v View) Prefixes() int { return len(v.w.hops) }

// Hops are the next hops of the route to a prefix, in order; none if there is no route.
func (v View) Hops(prefix netip.Prefix) []netip.Addr { return v.w.hops[prefix] }

// Look calls f while no change is taken.
func (w *Watch) Look(f func(View)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f(View{w})
}

// Await waits until the routes match, which is asked again at every change of one.
func (w *Watch) Await(ctx context.Context, match func(View) bool) error {
	for {
		w.mu.Lock()
		ok, changed, err := match(View{w}), w.changed, w.err
		w.mu.Unlock()
		if err != nil || ok {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Close ends it and returns what went wrong meanwhile.
func (w *Watch) Close() error {
	w.mu.Lock()
	w.closing = true
	w.mu.Unlock()
	close(w.stop)
	<-w.done
	return errors.Join(w.err)
}
