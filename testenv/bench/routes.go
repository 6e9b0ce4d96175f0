package bench

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/herald-vip/herald/testenv/lab"
	"github.com/herald-vip/herald/testenv/routes"
)

// vipRoute follows the next hops of the VIP in a router's kernel.
type vipRoute struct {
	*routes.Watch
	name  string
	steps []step // since the last mark, what came to be
}

// step is a set of next hops, and when the route came to have it.
type step struct {
	at   time.Time
	hops []netip.Addr
}

// follow begins to follow the route in the router's network. The caller closes it.
func follow(n *lab.Node) (_ *vipRoute, err error) {
	r := &vipRoute{name: n.Name()}
	r.Watch, err = routes.Follow(n, vipPrefix(), func(c routes.Change) { r.steps = append(r.steps, step{c.At, c.Now}) })
	if err != nil {
		return nil, err
	}
	return r, nil
}

// vipPrefix is what the VIP's route leads to.
func vipPrefix() netip.Prefix { return netip.MustParsePrefix(vip + "/32") }

// mark forgets the past.
func (r *vipRoute) mark() {
	r.Look(func(routes.View) { r.steps = nil })
}

// gone is when the route first led around the hop, after the last mark.
func (r *vipRoute) gone(hop netip.Addr) (time.Time, bool) {
	return r.first(func(hops []netip.Addr) bool { return !slices.Contains(hops, hop) })
}

// back is when the route first led over the hop, after the last mark.
func (r *vipRoute) back(hop netip.Addr) (time.Time, bool) {
	return r.first(func(hops []netip.Addr) bool { return slices.Contains(hops, hop) })
}

func (r *vipRoute) first(match func([]netip.Addr) bool) (at time.Time, ok bool) {
	r.Look(func(routes.View) {
		if i := slices.IndexFunc(r.steps, func(s step) bool { return match(s.hops) }); i >= 0 {
			at, ok = r.steps[i].at, true
		}
	})
	return at, ok
}

// await waits until the route has just these next hops.
func (r *vipRoute) await(ctx context.Context, hops []netip.Addr) error {
	return r.wait(ctx, func(now []netip.Addr) bool { return slices.Equal(now, hops) })
}

// without waits until the route does not lead over the hop.
func (r *vipRoute) without(ctx context.Context, hop netip.Addr) error {
	return r.wait(ctx, func(now []netip.Addr) bool { return !slices.Contains(now, hop) })
}

// with waits until the route leads over the hop.
func (r *vipRoute) with(ctx context.Context, hop netip.Addr) error {
	return r.wait(ctx, func(now []netip.Addr) bool { return slices.Contains(now, hop) })
}

func (r *vipRoute) wait(ctx context.Context, match func([]netip.Addr) bool) error {
	err := r.Await(ctx, func(v routes.View) bool { return match(v.Hops(vipPrefix())) })
	if err != nil {
		r.Look(func(v routes.View) {
			err = fmt.Errorf("the route of %s has the next hops %v: %w", r.name, v.Hops(vipPrefix()), err)
		})
	}
	return err
}
