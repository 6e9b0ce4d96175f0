package bench

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

// routes follows the next hops of the VIP in a router's kernel.
type routes struct {
	name string
	stop chan struct{}
	done chan struct{}

	mu      sync.Mutex
	hops    []netip.Addr  // as they are now
	steps   []step        // since the last mark, what came to be
	changed chan struct{} // closed at every change
	closing bool
	err     error
}

// step is a set of next hops, and when the route came to have it.
type step struct {
	at   time.Time
	hops []netip.Addr
}

// follow begins to follow the route in the router's network; there is none yet.
func follow(n *lab.Node) (*routes, error) {
	r := &routes{name: n.Name(), stop: make(chan struct{}), done: make(chan struct{}), changed: make(chan struct{})}
	updates := make(chan netlink.RouteUpdate)
	err := n.Do(func() error {
		return netlink.RouteSubscribeWithOptions(updates, r.stop, netlink.RouteSubscribeOptions{
			ErrorCallback: r.fail,
			// Room for all that a router does at once while this process waits for a CPU.
			ReceiveBufferSize:      4 << 20,
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

func (r *routes) take(u netlink.RouteUpdate, at time.Time) {
	if u.Table != unix.RT_TABLE_MAIN || u.Dst == nil || u.Dst.String() != vip+"/32" {
		return
	}
	var hops []netip.Addr
	if u.Type == unix.RTM_NEWROUTE {
		hops = nextHops(u.Route)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if slices.Equal(hops, r.hops) {
		return
	}
	r.hops = hops
	r.steps = append(r.steps, step{at, hops})
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

func (r *routes) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closing {
		r.err = fmt.Errorf("follow the routes of %s: %w", r.name, err)
	}
}

// mark forgets the past.
func (r *routes) mark() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.steps = nil
}

// gone is when the route first led around the hop, after the last mark.
func (r *routes) gone(hop netip.Addr) (time.Time, bool) {
	return r.first(func(hops []netip.Addr) bool { return !slices.Contains(hops, hop) })
}

// back is when the route first led over the hop, after the last mark.
func (r *routes) back(hop netip.Addr) (time.Time, bool) {
	return r.first(func(hops []netip.Addr) bool { return slices.Contains(hops, hop) })
}

func (r *routes) first(match func([]netip.Addr) bool) (time.Time, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.steps {
		if match(s.hops) {
			return s.at, true
		}
	}
	return time.Time{}, false
}

// await waits until the route has just these next hops.
func (r *routes) await(ctx context.Context, hops []netip.Addr) error {
	return r.wait(ctx, func(now []netip.Addr) bool { return slices.Equal(now, hops) })
}

// without waits until the route does not lead over the hop.
func (r *routes) without(ctx context.Context, hop netip.Addr) error {
	return r.wait(ctx, func(now []netip.Addr) bool { return !slices.Contains(now, hop) })
}

// with waits until the route leads over the hop.
func (r *routes) with(ctx context.Context, hop netip.Addr) error {
	return r.wait(ctx, func(now []netip.Addr) bool { return slices.Contains(now, hop) })
}

func (r *routes) wait(ctx context.Context, match func([]netip.Addr) bool) error {
	for {
		r.mu.Lock()
		hops, changed, err := r.hops, r.changed, r.err
		r.mu.Unlock()
		if err != nil {
			return err
		}
		if match(hops) {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("the route of %s has the next hops %v: %w", r.name, hops, context.Cause(ctx))
		}
	}
}

// close ends it and returns what went wrong meanwhile.
func (r *routes) close() error {
	r.mu.Lock()
	r.closing = true
	r.mu.Unlock()
	close(r.stop)
	<-r.done
	return errors.Join(r.err)
}
