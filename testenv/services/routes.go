package services

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/herald-vip/herald/testenv/routes"
)

// Routes follows the routes to the addresses of [PoolBGP] in the router's kernel.
type Routes struct {
	*routes.Watch
	through map[netip.Addr]int // how many prefixes lead over each hop
	last    map[netip.Prefix]time.Time
}

// WatchRoutes begins to follow the routes. The caller closes it.
func (l *Lab) WatchRoutes() (_ *Routes, err error) {
	r := &Routes{through: make(map[netip.Addr]int), last: make(map[netip.Prefix]time.Time)}
	r.Watch, err = routes.Follow(l.Node("r1"), netip.MustParsePrefix(ByBGP), r.take)
	if err != nil {
		return nil, err
	}
	return r, nil
}

func (r *Routes) take(c routes.Change) {
	for _, hop := range c.Before {
		r.through[hop]--
	}
	for _, hop := range c.Now {
		r.through[hop]++
	}
	r.last[c.Prefix] = c.At
}

// View is the routes at an instant.
type View struct {
	routes.View
	r *Routes
}

// Through is how many lead over a node.
func (v View) Through(node netip.Addr) int { return v.r.through[node] }

// Await waits until the routes match, which is asked again at every change of one.
func (r *Routes) Await(ctx context.Context, match func(View) bool) error {
	err := r.Watch.Await(ctx, func(v routes.View) bool { return match(View{v, r}) })
	if err != nil {
		r.Look(func(v routes.View) {
			err = fmt.Errorf("the router has %d prefixes, by hop %v: %w", v.Prefixes(), r.through, err)
		})
	}
	return err
}

// AwaitHops waits until the route to an address leads over just these nodes, in
// order, and returns when it came to.
func (r *Routes) AwaitHops(ctx context.Context, address netip.Addr, nodes ...netip.Addr) (at time.Time, err error) {
	prefix := netip.PrefixFrom(address, address.BitLen())
	err = r.Await(ctx, func(v View) bool { return slices.Equal(v.Hops(prefix), nodes) })
	r.Look(func(v routes.View) {
		if at = r.last[prefix]; err != nil {
			err = fmt.Errorf("the route to %s leads over %v, want %v: %w", prefix, v.Hops(prefix), nodes, err)
		}
	})
	return at, err
}
