package demo

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/herald-vip/herald/testenv/routes"
	"github.com/herald-vip/herald/testenv/step"
	"github.com/herald-vip/herald/testenv/stub"
)

// routers are the routers of the bgp topology.
var routers = []string{"r1", "r2"}

// routedVIPs returns the VIP's addresses in the bgp topology; the client connects to the first.
func routedVIPs() []netip.Addr {
	return []netip.Addr{netip.MustParseAddr("10.99.0.10"), netip.MustParseAddr("fd00:99::10")}
}

// routed is the demo on the bgp topology.
type routed struct {
	*show
	watches []*routes.Watch // of the routers
}

func newRouted(s *show, v *view) {
	s.play = &routed{show: s}
	s.view, s.vips, s.client, s.until, s.heads = v, routedVIPs()[:1], "client", "the routers had acted", [2]string{"", "acted in"}
}

func (r *routed) watch() error {
	for _, name := range routers {
		w, err := routes.Follow(r.lab.Node(name), netip.Prefix{}, func(c routes.Change) {
			if c.Prefix.Addr() == routedVIPs()[0] {
				r.view.uses(name, mastersOf(c.Now)...)
			}
		})
		if err != nil {
			return err
		}
		r.watches = append(r.watches, w)
	}
	return nil
}

func (r *routed) close() (err error) {
	for _, w := range r.watches {
		err = errors.Join(err, w.Close())
	}
	return err
}

func (r *routed) cast() string {
	return "Two routers, three masters with apiserver, registry and speaker, and a client"
}

func (r *routed) opening(ctx context.Context) (string, error) {
	_, err := r.await(ctx, masters)
	return fmt.Sprintf("Every master is healthy and announces %s: both routers have three next hops", routedVIPs()[0]), err
}

func (r *routed) verdict() error { return nil }

func (r *routed) perform(ctx context.Context) {
	r.view.title("Load is spread")
	r.spread(ctx)
	node := r.lab.Node
	registry := func(parameters string) func() error {
		return func() error { return stub.Tell(ctx, node("m3").DialContext, "127.0.0.1:5001/stub/v2", parameters) }
	}
	for _, a := range []act{
		{title: "An apiserver dies", event: "apiserver of m1 killed", do: node("m1-apiserver").Kill, left: []string{"m2", "m3"}, allowed: unplanned},
		{title: "and comes back", event: "apiserver of m1 back", do: func() error { return node("m1-apiserver").Boot(ctx) }, left: masters, allowed: planned},
		{title: "A speaker is killed", event: "speaker of m2 killed", do: node("m2-speaker").Kill, left: []string{"m1", "m3"}, allowed: planned},
		{title: "and is restarted", event: "speaker of m2 restarted", do: func() error { return node("m2-speaker").Boot(ctx) }, left: masters, allowed: planned},
		{title: "A registry fails", event: "registry of m3 fails", do: registry("status=500"), left: []string{"m1", "m2"}, allowed: unplanned},
		{title: "and recovers", event: "registry of m3 recovers", do: registry(""), left: masters, allowed: planned},
		{title: "A master is drained for maintenance", event: "m1 drained", do: func() error { return r.herald(ctx, "m1", "drain") }, left: []string{"m2", "m3"}, allowed: planned},
		{title: "and put back", event: "m1 undrained", do: func() error { return r.herald(ctx, "m1", "undrain") }, left: masters, allowed: planned},
	} {
		r.act(ctx, a)
	}
}

// spread waits for enough connections to show that each master gets its share.
func (r *routed) spread(ctx context.Context) {
	r.traffic.Mark()
	r.works(ctx, 600)
	steady := row{event: "steady, three masters", allowed: planned, count: r.traffic.Count()}
	steady.judge()
	total := steady.count.Attempts - steady.count.Failed()
	line := fmt.Sprintf("Of %d connections", total)
	for _, m := range masters {
		share := 100 * steady.count.Servers[m] / max(total, 1)
		line += fmt.Sprintf(", %s answered %d %%", m, share)
		if share < 20 {
			steady.problem = "the load is not spread over all masters"
		}
	}
	r.view.say("%s.", line)
	r.rows = append(r.rows, steady)
	step.Do(ctx.Err())
}

func (r *routed) settle(ctx context.Context, a act) (row, error) {
	reached, err := r.await(ctx, a.left)
	if ctx.Err() != nil {
		return row{}, ctx.Err()
	}
	if err == nil {
		err = r.addressesOn(ctx, a.left)
	}
	out := row{after: reached.Sub(a.began)}
	out.what = "both routers acted in " + ms(out.after)
	if err != nil {
		out.problem = err.Error()
	}
	r.works(ctx, r.pace)
	return out, nil
}

// await waits until both routers use exactly the given masters, in both address
// families, and returns when the last one did.
func (r *routed) await(ctx context.Context, names []string) (last time.Time, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for i, w := range r.watches {
		for _, vip := range routedVIPs() {
			at, err := w.AwaitHops(ctx, vip, hops(i+1, vip, names)...)
			if err != nil {
				return time.Now(), fmt.Errorf("%s does not use %s: %w", routers[i], strings.Join(names, ", "), err)
			}
			if at.After(last) {
				last = at
			}
		}
	}
	return last, nil
}

// hops returns the masters' addresses on their links with a router, in the family of the VIP.
func hops(router int, vip netip.Addr, names []string) (list []netip.Addr) {
	form := "10.%d.%s.1"
	if vip.Is6() {
		form = "fd00:%d:%s::1"
	}
	for _, m := range names {
		list = append(list, netip.MustParseAddr(fmt.Sprintf(form, router, m[1:])))
	}
	return list
}

// mastersOf returns the masters that IPv4 next hops belong to.
func mastersOf(hops []netip.Addr) (names []string) {
	for _, hop := range hops {
		names = append(names, fmt.Sprintf("m%d", hop.As4()[2]))
	}
	return names
}

// addressesOn checks that exactly the named masters have the VIP on lo.
func (r *routed) addressesOn(ctx context.Context, names []string) error {
	for _, m := range masters {
		shown, err := r.lab.Node(m).Run(ctx, "ip", "address", "show", "dev", "lo", "to", routedVIPs()[0].String())
		if err != nil {
			return err
		}
		// A killed speaker's address expires within its lifetime.
		if present, want := shown != "", slices.Contains(names, m); present != want && r.lab.Node(m+"-speaker").Running() {
			return fmt.Errorf("%s has the VIP on lo: %t, want %t", m, present, want)
		}
	}
	return nil
}
