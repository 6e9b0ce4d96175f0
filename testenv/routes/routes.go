// Package routes follows the routes in the kernel of a lab's node by netlink notifications.
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

// Change is a change of a route's next hops.
type Change struct {
	At     time.Time
	Prefix netip.Prefix
	// Now are the next hops, in order; empty if there is no route.
	Now []netip.Addr
	// Existing reports that the route existed before the watch.
	Existing bool
}

func (c Change) String() string {
	return fmt.Sprintf("%s: %s via %v", c.At.Format(time.StampMilli), c.Prefix, c.Now)
}

// Watch follows routes.
type Watch struct {
	node   *lab.Node
	within netip.Prefix
	take   func(Change)
	stop   chan struct{}
	done   chan struct{}

	mu      sync.Mutex
	hops    map[netip.Prefix][]netip.Addr
	through map[netip.Addr]int // the number of prefixes over each next hop
	changes []Change           // since the last mark
	changed chan struct{}      // closed at every change
	marker  int                // the metric of the last marker route received
	closing bool
	err     error
}

// markers is a table that no rule looks up.
const markers = 4242

// Follow begins to follow the routes to prefixes within one, or all routes if within
// is zero, in the node's main table. Existing routes are the first changes. take,
// unless nil, is called for each change in order, before waiters wake. The caller
// closes the watch.
func Follow(n *lab.Node, within netip.Prefix, take func(Change)) (*Watch, error) {
	w := &Watch{
		node: n, within: within, take: take, stop: make(chan struct{}), done: make(chan struct{}),
		hops: make(map[netip.Prefix][]netip.Addr), through: make(map[netip.Addr]int), changed: make(chan struct{}),
	}
	updates := make(chan netlink.RouteUpdate, 1024)
	err := n.Do(func() error {
		return netlink.RouteSubscribeWithOptions(updates, w.stop, netlink.RouteSubscribeOptions{
			ErrorCallback: w.fail,
			// Room for ten thousand routes while this process waits for a CPU.
			ReceiveBufferSize:      64 << 20,
			ReceiveBufferForceSize: true,
		})
	})
	if err != nil {
		return nil, fmt.Errorf("follow the routes of %s: %w", n.Name(), err)
	}
	existing, err := list(n) // a dump by the subscription would also show to other listeners on the node
	go func() {
		defer close(w.done)
		for _, r := range existing {
			w.update(netlink.RouteUpdate{Type: unix.RTM_NEWROUTE, Route: r}, time.Now(), true)
		}
		for u := range updates {
			w.update(u, time.Now(), false)
		}
	}()
	if err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return w, nil
}

// list returns the routes of the node's main table.
func list(n *lab.Node) ([]netlink.Route, error) {
	h, err := n.Handle()
	if err != nil {
		return nil, err
	}
	defer h.Close()
	var all []netlink.Route
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		routes, err := h.RouteList(nil, family)
		if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) { // the subscription receives concurrent changes
			return nil, err
		}
		all = append(all, routes...)
	}
	return all, nil
}

func (w *Watch) update(u netlink.RouteUpdate, at time.Time, existing bool) {
	if u.Table == markers && u.Type == unix.RTM_NEWROUTE {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.marker = u.Priority
		w.wake()
		return
	}
	if u.Table != unix.RT_TABLE_MAIN || u.Dst == nil {
		return
	}
	address, ok := netip.AddrFromSlice(u.Dst.IP)
	if !ok || w.within.IsValid() && !w.within.Contains(address.Unmap()) {
		return
	}
	length, _ := u.Dst.Mask.Size()
	c := Change{At: at, Prefix: netip.PrefixFrom(address.Unmap(), length), Existing: existing}
	if u.Type == unix.RTM_NEWROUTE {
		c.Now = NextHops(u.Route)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.hops[c.Prefix]
	if slices.Equal(before, c.Now) {
		return
	}
	for _, hop := range before {
		w.through[hop]--
	}
	for _, hop := range c.Now {
		w.through[hop]++
	}
	if w.hops[c.Prefix] = c.Now; c.Now == nil {
		delete(w.hops, c.Prefix)
	}
	w.changes = append(w.changes, c)
	if w.take != nil {
		w.take(c)
	}
	w.wake()
}

// NextHops returns the next hops of a route, sorted.
func NextHops(r netlink.Route) []netip.Addr {
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
		w.err = fmt.Errorf("follow the routes of %s: %w", w.node.Name(), err)
		w.wake()
	}
}

// wake wakes all waiters.
func (w *Watch) wake() {
	close(w.changed)
	w.changed = make(chan struct{})
}

// View shows the routes at an instant. It is valid only during the call that it is passed to.
type View struct{ w *Watch }

// Prefixes returns the number of prefixes with a route.
func (v View) Prefixes() int { return len(v.w.hops) }

// Hops returns the next hops of the route to a prefix, in order; none if there is no route.
func (v View) Hops(prefix netip.Prefix) []netip.Addr { return v.w.hops[prefix] }

// Through returns the number of routes over a next hop.
func (v View) Through(hop netip.Addr) int { return v.w.through[hop] }

// Mark discards earlier changes.
func (w *Watch) Mark() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.changes = nil
}

// Changes returns the changes since the last mark.
func (w *Watch) Changes() []Change {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.changes)
}

// Sync waits until the watch has received all earlier changes: it makes a route in a
// table that no rule looks up, and waits for it.
func (w *Watch) Sync(ctx context.Context) error {
	h, err := w.node.Handle()
	if err != nil {
		return err
	}
	defer h.Close()
	marker := &netlink.Route{
		Dst: &net.IPNet{IP: net.IPv4(192, 0, 2, 1), Mask: net.CIDRMask(32, 32)}, Type: unix.RTN_BLACKHOLE, Table: markers,
		Priority: time.Now().Nanosecond() + 1, // differs from other watches' markers
	}
	if err := h.RouteAdd(marker); err != nil {
		return err
	}
	return errors.Join(w.Await(ctx, func(View) bool { return w.marker == marker.Priority }), h.RouteDel(marker))
}

// First returns when the next hops of the route to a prefix first matched, among its
// changes since the last mark.
func (w *Watch) First(prefix netip.Prefix, match func(hops []netip.Addr) bool) (time.Time, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.changes {
		if c.Prefix == prefix && match(c.Now) {
			return c.At, true
		}
	}
	return time.Time{}, false
}

// AwaitHops waits until the route to an address leads over exactly these next hops, in
// order. It returns when that happened, if it was since the last mark.
func (w *Watch) AwaitHops(ctx context.Context, address netip.Addr, hops ...netip.Addr) (at time.Time, err error) {
	prefix := netip.PrefixFrom(address, address.BitLen())
	err = w.Await(ctx, func(v View) bool { return slices.Equal(v.Hops(prefix), hops) })
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		return at, fmt.Errorf("the route to %s leads over %v, want %v: %w", prefix, w.hops[prefix], hops, err)
	}
	for _, c := range w.changes {
		if c.Prefix == prefix {
			at = c.At
		}
	}
	return at, nil
}

// Await waits until the routes match; it calls match again at every change.
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
			w.mu.Lock()
			defer w.mu.Unlock()
			return fmt.Errorf("%s has %d routes, by next hop %v: %w", w.node.Name(), len(w.hops), w.through, context.Cause(ctx))
		}
	}
}

// Close ends the watch and returns its errors.
func (w *Watch) Close() error {
	w.mu.Lock()
	w.closing = true
	w.mu.Unlock()
	close(w.stop)
	<-w.done
	return errors.Join(w.err)
}
