package services

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

// Routes follows the routes to the addresses of [PoolBGP] in the router's kernel, by
// what the kernel tells of every change.
type Routes struct {
	pool netip.Prefix
	stop chan struct{}
	done chan struct{}

	mu      sync.Mutex
	hops    map[netip.Prefix][]netip.Addr
	through map[netip.Addr]int // how many prefixes lead over each hop
	last    map[netip.Prefix]time.Time
	changed chan struct{} // closed at every change
	closing bool
	err     error
}

// WatchRoutes begins to follow the routes; there are none yet. The caller closes it.
func (l *Lab) WatchRoutes() (*Routes, error) { return follow(l.Node("r1")) }

func follow(n *lab.Node) (*Routes, error) {
	r := &Routes{
		pool: netip.MustParsePrefix(ByBGP), stop: make(chan struct{}), done: make(chan struct{}),
		hops: make(map[netip.Prefix][]netip.Addr), through: make(map[netip.Addr]int),
		last: make(map[netip.Prefix]time.Time), changed: make(chan struct{}),
	}
	updates := make(chan netlink.RouteUpdate, 1024)
	err := n.Do(func() error {
		return netlink.RouteSubscribeWithOptions(updates, r.stop, netlink.RouteSubscribeOptions{
			ListExisting:  true,
			ErrorCallback: r.fail,
			// Room for ten thousand routes while this process waits for a CPU.
			ReceiveBufferSize:      64 << 20,
			ReceiveBufferForceSize: true,
		})
	})
	if err != nil {
		return nil, fmt.Errorf("follow the routes of %s: %w", n.Name(), err)
	}
	go func() {
		defer close(r.done)
		for u := range updates {
			r.take(u, time.Now())
		}
	}()
	return r, nil
}

func (r *Routes) take(u netlink.RouteUpdate, at time.Time) {
	if u.Table != unix.RT_TABLE_MAIN || u.Dst == nil {
		return
	}
	address, ok := netip.AddrFromSlice(u.Dst.IP)
	if !ok || !r.pool.Contains(address.Unmap()) {
		return
	}
	length, _ := u.Dst.Mask.Size()
	prefix := netip.PrefixFrom(address.Unmap(), length)
	var hops []netip.Addr
	if u.Type == unix.RTM_NEWROUTE {
		hops = nextHops(u.Route)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if slices.Equal(hops, r.hops[prefix]) {
		return
	}
	for _, hop := range r.hops[prefix] {
		r.through[hop]--
	}
	for _, hop := range hops {
		r.through[hop]++
	}
	r.last[prefix] = at
	if r.hops[prefix] = hops; hops == nil {
		delete(r.hops, prefix)
	}
	close(r.changed)
	r.changed = make(chan struct{})
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

func (r *Routes) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closing {
		r.err = fmt.Errorf("follow the routes: %w", err)
		close(r.changed)
		r.changed = make(chan struct{})
	}
}

// View is the routes at an instant.
type View struct{ r *Routes }

// Prefixes is how many there are a route to.
func (v View) Prefixes() int { return len(v.r.hops) }

// Through is how many lead over a node.
func (v View) Through(node netip.Addr) int { return v.r.through[node] }

// Hops are the nodes that the route to a prefix leads over, in order; none if there is no route.
func (v View) Hops(prefix netip.Prefix) []netip.Addr { return v.r.hops[prefix] }

// Await waits until the routes match, which is asked again at every change of one.
func (r *Routes) Await(ctx context.Context, match func(View) bool) error {
	for {
		r.mu.Lock()
		ok, changed, err := match(View{r}), r.changed, r.err
		r.mu.Unlock()
		if err != nil || ok {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			r.mu.Lock()
			defer r.mu.Unlock()
			return fmt.Errorf("the router has %d prefixes, by hop %v: %w", len(r.hops), r.through, context.Cause(ctx))
		}
	}
}

// AwaitHops waits until the route to an address leads over just these nodes, in
// order, and returns when it came to.
func (r *Routes) AwaitHops(ctx context.Context, address netip.Addr, nodes ...netip.Addr) (time.Time, error) {
	prefix := netip.PrefixFrom(address, address.BitLen())
	err := r.Await(ctx, func(v View) bool { return slices.Equal(v.Hops(prefix), nodes) })
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		return time.Time{}, fmt.Errorf("the route to %s leads over %v, want %v: %w", prefix, r.hops[prefix], nodes, err)
	}
	return r.last[prefix], nil
}

// Close ends it and returns what went wrong meanwhile.
func (r *Routes) Close() error {
	r.mu.Lock()
	r.closing = true
	r.mu.Unlock()
	close(r.stop)
	<-r.done
	return errors.Join(r.err)
}
