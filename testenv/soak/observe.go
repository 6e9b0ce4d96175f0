package soak

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/testenv/lab"
	"github.com/herald-vip/herald/testenv/routes"
	"github.com/herald-vip/herald/testenv/step"
)

// look is the witness's polling interval. The kernel reports most route changes at
// once, but not, for example, a route's loss of next hops with a link.
const look = 50 * time.Millisecond

// allSigns is the number of signs when everything is announced: a route per router,
// master and family, and an address per master and family.
const allSigns = 3 * 2 * (2 + 1)

// bgpWitness watches the routers' routes and the masters' addresses.
type bgpWitness struct {
	stallWatch
	site   *site
	limits Limits
}

func (w *bgpWitness) start(ctx context.Context) error {
	w.watchStalls(ctx)
	for _, name := range routers {
		if err := w.watchRoutes(ctx, w.site.Node(name)); err != nil {
			return fmt.Errorf("routes of %s: %w", name, err)
		}
	}
	for _, name := range masters {
		w.every(ctx, look, nil, func() error { return w.look("addresses of "+name, func() { w.addresses(w.site.Node(name)) }) })
	}
	return nil
}

// moment is how long the state must be good before it counts as recovered.
const moment = 2 * time.Second

// awaitRecovery waits until everything is announced and stays so for a moment.
func (w *bgpWitness) awaitRecovery(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		n, changed := w.rec.present()
		var quiet <-chan time.Time
		if n == allSigns {
			quiet = time.After(moment)
		}
		select {
		case <-changed:
		case <-quiet:
			return nil
		case <-ctx.Done():
			return fmt.Errorf("%d of %d routes and addresses are present: %w", n, allSigns, ctx.Err())
		}
	}
}

func (w *bgpWitness) Move(_ string, change func() error) error { return change() }
func (w *bgpWitness) holder(context.Context) (string, error)   { return "", nil }
func (w *bgpWitness) check(t *Trace) []Violation               { return Check(t, w.limits) }
func (w *bgpWitness) Close() error                             { return nil }

func (w *bgpWitness) report(r *Report) {
	r.Judged, r.Due = Judged(r.Trace, w.limits), Due(r.Trace, w.limits)
}

// watchRoutes follows the kernel's routes on a router until ctx ends.
func (w *bgpWitness) watchRoutes(ctx context.Context, n *lab.Node) error {
	ways, err := waysOf(n)
	if err != nil {
		return err
	}
	wake := make(chan struct{}, 1)
	watch, err := routes.Follow(n, netip.Prefix{}, func(routes.Change) {
		select {
		case wake <- struct{}{}:
		default: // a look is pending already
		}
	})
	if err != nil {
		return err
	}
	w.Go(func() error {
		<-ctx.Done()
		return watch.Close()
	})
	w.every(ctx, look, wake, func() error { return w.look("routes of "+n.Name(), func() { w.routes(n, ways) }) })
	return nil
}

// look calls read, and takes an interrupted dump of the kernel for no error: the next look
// follows soon.
func (w *bgpWitness) look(what string, read func()) error {
	err := step.Run(func() { step.Named(what, read) })
	if errors.Is(err, netlink.ErrDumpInterrupted) {
		return nil
	}
	return err
}

// waysOf returns the masters at the far ends of a router's links, by the
// links' indexes: interface ethI leads to master mI.
func waysOf(n *lab.Node) (map[int]string, error) {
	ways := make(map[int]string)
	return ways, step.Run(func() {
		h := step.Get(n.Handle())
		defer h.Close()
		for _, l := range step.Get(h.LinkList()) {
			if m := "m" + strings.TrimPrefix(l.Attrs().Name, "eth"); slices.Contains(masters, m) {
				ways[l.Attrs().Index] = m
			}
		}
	})
}

// routes records the masters that a router's routes to the VIP lead to.
func (w *bgpWitness) routes(n *lab.Node, ways map[int]string) {
	h := step.Get(n.Handle())
	defer h.Close()
	here := make(map[Sign]bool)
	for _, vip := range w.site.vips() {
		to := &netlink.Route{Dst: netlink.NewIPNet(vip.AsSlice())}
		for _, route := range step.Get(h.RouteListFiltered(nl.GetIPFamily(vip.AsSlice()), to, netlink.RT_FILTER_DST)) {
			hops := route.MultiPath
			if route.LinkIndex != 0 {
				hops = append(hops, &netlink.NexthopInfo{LinkIndex: route.LinkIndex, Flags: route.Flags})
			}
			for _, hop := range hops {
				master, ok := ways[hop.LinkIndex]
				if ok && hop.Flags&(unix.RTNH_F_DEAD|unix.RTNH_F_LINKDOWN) == 0 {
					here[Sign{Router: n.Name(), Master: master, Family: familyOf(vip)}] = true
				}
			}
		}
	}
	w.rec.see(n.Name(), "", here)
}

// addresses records which addresses of the VIP a master has.
func (w *bgpWitness) addresses(n *lab.Node) {
	here := make(map[Sign]bool)
	if h, err := n.Handle(); err == nil { // the node has power
		defer h.Close()
		for _, a := range step.Get(h.AddrList(nil, netlink.FAMILY_ALL)) {
			for _, vip := range w.site.vips() {
				if a.IP.Equal(vip.AsSlice()) {
					here[Sign{Master: n.Name(), Family: familyOf(vip)}] = true
				}
			}
		}
	}
	w.rec.see("", n.Name(), here)
}
