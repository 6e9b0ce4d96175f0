package soak

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/testenv/lab"
)

const (
	// look is how often the observers look for themselves. Most of what there is
	// to see the kernel tells at once; a route that loses next hops along with a
	// link, for one, it does not.
	look = 50 * time.Millisecond
	// pulse is how often this process is to run, and stall how late it may be
	// before the time counts as a stall.
	pulse = 10 * time.Millisecond
	stall = 50 * time.Millisecond
)

// observers watch the routers' routes and the masters' addresses.
type observers struct {
	rec     *recorder
	running sync.WaitGroup

	mu      sync.Mutex
	handles map[string]*netlink.Handle // of the masters; nil while one has no power
	failed  error
}

func newObservers(rec *recorder) *observers {
	return &observers{rec: rec, handles: make(map[string]*netlink.Handle)}
}

// wait returns when all observers have ended, and what they failed of.
func (o *observers) wait() error {
	o.running.Wait()
	return o.failed
}

func (o *observers) fail(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.failed = errors.Join(o.failed, err)
}

// router follows the kernel's routes on a router until ctx ends.
func (o *observers) router(ctx context.Context, n *lab.Node) error {
	h, err := n.Handle()
	if err != nil {
		return err
	}
	ways, err := waysOf(h)
	if err != nil {
		h.Close()
		return fmt.Errorf("links of %s: %w", n.Name(), err)
	}
	updates, done := make(chan netlink.RouteUpdate, 64), make(chan struct{})
	err = n.Do(func() error {
		return netlink.RouteSubscribeWithOptions(updates, done, netlink.RouteSubscribeOptions{
			ReceiveBufferSize: 4 << 20, ReceiveBufferForceSize: true,
		})
	})
	if err != nil {
		h.Close()
		return fmt.Errorf("routes of %s: %w", n.Name(), err)
	}
	o.running.Go(func() {
		defer h.Close()
		defer func() {
			close(done)
			for range updates { // its sender waits for that
			}
		}()
		err := o.follow(ctx, updates, func() error { return o.routes(h, n.Name(), ways) })
		if err != nil {
			o.fail(fmt.Errorf("routes of %s: %w", n.Name(), err))
		}
	})
	return nil
}

// stalls notes the times in which this process did not get to run, until ctx ends.
func (o *observers) stalls(ctx context.Context) {
	o.running.Go(func() {
		tick := time.NewTicker(pulse)
		defer tick.Stop()
		for due := o.rec.clock() + pulse; ; due = o.rec.clock() + pulse {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
			if now := o.rec.clock(); now-due > stall {
				o.rec.add(func(t *Trace, _ time.Duration) { t.Stalls = append(t.Stalls, Span{due, now}) })
			}
		}
	})
}

// follow looks at each update and once in a while besides.
func (o *observers) follow(ctx context.Context, updates <-chan netlink.RouteUpdate, see func() error) error {
	tick := time.NewTicker(look)
	defer tick.Stop()
	for {
		select {
		case u, ok := <-updates:
			if !ok {
				return errors.New("the kernel's messages have ended")
			}
			if !isVIP(u.Dst) {
				continue
			}
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		if err := see(); err != nil {
			return err
		}
	}
}

// waysOf returns the masters at the far ends of a router's links, by the
// links' indexes: interface ethI leads to master mI.
func waysOf(h *netlink.Handle) (map[int]string, error) {
	links, err := h.LinkList()
	if err != nil {
		return nil, err
	}
	ways := make(map[int]string)
	for _, l := range links {
		if m := "m" + strings.TrimPrefix(l.Attrs().Name, "eth"); slices.Contains(masters, m) {
			ways[l.Attrs().Index] = m
		}
	}
	return ways, nil
}

// routes notes by way of which masters a router reaches the VIP.
func (o *observers) routes(h *netlink.Handle, router string, ways map[int]string) error {
	here := make(map[Sign]bool)
	for _, family := range families {
		list, err := h.RouteListFiltered(netlinkFamily(family), &netlink.Route{Dst: hostNet(vip(family))}, netlink.RT_FILTER_DST)
		if errors.Is(err, netlink.ErrDumpInterrupted) {
			return nil // the next look is near
		}
		if err != nil {
			return err
		}
		for _, route := range list {
			hops := route.MultiPath
			if route.LinkIndex != 0 {
				hops = append(hops, &netlink.NexthopInfo{LinkIndex: route.LinkIndex, Flags: route.Flags})
			}
			for _, hop := range hops {
				master, ok := ways[hop.LinkIndex]
				if ok && hop.Flags&(unix.RTNH_F_DEAD|unix.RTNH_F_LINKDOWN) == 0 {
					here[Sign{Router: router, Master: master, Family: family}] = true
				}
			}
		}
	}
	o.rec.see(router, "", here)
	return nil
}

// master follows the addresses of a master until ctx ends, with breaks while
// it has no power.
func (o *observers) master(ctx context.Context, n *lab.Node) error {
	if err := o.powerOn(n); err != nil {
		return err
	}
	o.running.Go(func() {
		defer o.powerCut(n.Name())
		if err := o.follow(ctx, nil, func() error { return o.addresses(n.Name()) }); err != nil {
			o.fail(fmt.Errorf("addresses of %s: %w", n.Name(), err))
		}
	})
	return nil
}

// powerOn begins to look at a master. Without observers, as on a flat segment,
// there is nothing to do.
func (o *observers) powerOn(n *lab.Node) error {
	if o == nil {
		return nil
	}
	h, err := n.Handle()
	if err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.handles[n.Name()] = h
	return nil
}

// powerCut stops looking at a master, which is about to lose its power and its
// addresses with it.
func (o *observers) powerCut(master string) {
	if o == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if h := o.handles[master]; h != nil {
		h.Close()
		o.handles[master] = nil
		o.rec.see("", master, nil)
	}
}

// addresses notes which addresses of the VIP a master has.
func (o *observers) addresses(master string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	h := o.handles[master]
	if h == nil {
		return nil
	}
	list, err := h.AddrList(nil, netlink.FAMILY_ALL)
	if errors.Is(err, netlink.ErrDumpInterrupted) {
		return nil
	}
	if err != nil {
		return err
	}
	here := make(map[Sign]bool)
	for _, a := range list {
		for _, family := range families {
			if a.IP.Equal(vip(family).AsSlice()) {
				here[Sign{Master: master, Family: family}] = true
			}
		}
	}
	o.rec.see("", master, here)
	return nil
}

func netlinkFamily(f Family) int {
	if f == 6 {
		return unix.AF_INET6
	}
	return unix.AF_INET
}

func hostNet(a netip.Addr) *net.IPNet {
	return &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen(), a.BitLen())}
}

func isVIP(n *net.IPNet) bool {
	return n != nil && slices.ContainsFunc(families, func(f Family) bool { return n.String() == hostNet(vip(f)).String() })
}
