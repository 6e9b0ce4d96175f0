//go:build e2e

package e2e

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/testenv/lab"
)

// change is one message of the kernel about a route to a VIP.
type change struct {
	at       time.Time
	dst      netip.Prefix
	removed  bool
	nextHops []netip.Addr
}

func (c change) String() string {
	if c.removed {
		return fmt.Sprintf("%s: %s removed", c.at.Format(time.StampMilli), c.dst)
	}
	return fmt.Sprintf("%s: %s via %v", c.at.Format(time.StampMilli), c.dst, c.nextHops)
}

// recorder follows what a router's kernel does about the routes to VIPs.
type recorder struct {
	t    *testing.T
	node *lab.Node

	mu      sync.Mutex
	marker  int // the metric of the last marker that was heard of
	changes []change
	closing bool // errors are due to that
	broken  error
}

// record starts a recorder in the router's network. It misses nothing from here on.
func record(t *testing.T, n *lab.Node) *recorder {
	t.Helper()
	r := &recorder{t: t, node: n}
	updates := make(chan netlink.RouteUpdate)
	done := make(chan struct{})
	must(t, n.Do(func() error {
		return netlink.RouteSubscribeWithOptions(updates, done, netlink.RouteSubscribeOptions{
			ErrorCallback: r.fail,
			// Room for all that FRR does at once while this process waits for a CPU.
			ReceiveBufferSize:      4 << 20,
			ReceiveBufferForceSize: true,
		})
	}))
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		for u := range updates {
			r.add(u)
		}
	}()
	t.Cleanup(func() {
		r.close()
		close(done)
		<-finished
		if r.broken != nil {
			t.Errorf("routes of %s: %v", n.Name(), r.broken)
		}
	})
	return r
}

func (r *recorder) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closing {
		r.broken = err
	}
}

func (r *recorder) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closing = true
}

// add notes an update that is about a VIP.
func (r *recorder) add(u netlink.RouteUpdate) {
	if u.Table == markers && u.Type == unix.RTM_NEWROUTE {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.marker = u.Priority
		return
	}
	dst, ok := prefix(u.Dst)
	if !ok || !isVIP(dst) || u.Table != unix.RT_TABLE_MAIN {
		return
	}
	c := change{at: time.Now(), dst: dst, removed: u.Type == unix.RTM_DELROUTE, nextHops: nextHops(u.Route)}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changes = append(r.changes, c)
}

// first is when the first route by way of the next hop appeared; zero if none has.
func (r *recorder) first(hop netip.Addr) time.Time {
	for _, c := range r.since() {
		if !c.removed && slices.Contains(c.nextHops, hop) {
			return c.at
		}
	}
	return time.Time{}
}

// goneAfter is how long after the cause the route to the VIP was lost, to be
// logged. The kernel does not tell of IPv4 routes that go with their link.
func (r *recorder) goneAfter(cause time.Time) string {
	for _, s := range r.steps(vip4) {
		if len(s.nextHops) == 0 {
			return s.at.Sub(cause).Round(time.Millisecond).String()
		}
	}
	return "unknown"
}

// markers is a table that nothing looks up.
const markers = 4242

// mark forgets all changes up to now, of which the kernel may have told a moment ago: the recorder
// has caught up when it hears of a route that is made now.
func (r *recorder) mark() {
	r.t.Helper()
	h, err := r.node.Handle()
	must(r.t, err)
	defer h.Close()
	marker := &netlink.Route{
		Dst: ipNet(netip.MustParsePrefix("192.0.2.1/32")), Type: unix.RTN_BLACKHOLE, Table: markers,
		Priority: time.Now().Nanosecond() + 1, // that of another recorder is another
	}
	must(r.t, h.RouteAdd(marker))
	eventually(r.t, soon, func() error {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.marker != marker.Priority {
			return fmt.Errorf("what becomes of the routes of %s is not known yet", r.node.Name())
		}
		r.changes = nil
		return nil
	})
	must(r.t, h.RouteDel(marker))
}

// since returns the changes since the last mark.
func (r *recorder) since() []change {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.changes)
}

// replacement is how long FRR takes at most between the two messages with
// which it changes an IPv6 route: it removes the old one and adds the new one.
const replacement = 100 * time.Millisecond

// steps are the sets of next hops that the route to the VIP has gone through
// since the last mark, each sorted and empty if there was no route.
func (r *recorder) steps(vip string) []step {
	changes := slices.DeleteFunc(r.since(), func(c change) bool { return c.dst != hostPrefix(vip) })
	var out []step
	for i, c := range changes {
		s := step{at: c.at}
		if !c.removed {
			s.nextHops = slices.SortedFunc(slices.Values(c.nextHops), netip.Addr.Compare)
		} else if i+1 < len(changes) && !changes[i+1].removed && changes[i+1].at.Sub(c.at) < replacement {
			continue
		}
		if len(out) == 0 || !slices.Equal(out[len(out)-1].nextHops, s.nextHops) {
			out = append(out, s)
		}
	}
	return out
}

// step is a set of next hops, and when the route came to have it.
type step struct {
	at       time.Time
	nextHops []netip.Addr
}

func (s step) String() string { return fmt.Sprintf("%s: %v", s.at.Format(time.StampMilli), s.nextHops) }

// kernelRoutes returns the node's routes to the VIP.
func kernelRoutes(n *lab.Node, vip string) ([]netlink.Route, error) {
	h, err := n.Handle()
	if err != nil {
		return nil, err
	}
	defer h.Close()
	dst := hostPrefix(vip)
	netlinkFamily := unix.AF_INET
	if dst.Addr().Is6() {
		netlinkFamily = unix.AF_INET6
	}
	list, err := h.RouteListFiltered(netlinkFamily, &netlink.Route{Dst: ipNet(dst)}, netlink.RT_FILTER_DST)
	if err != nil {
		return nil, fmt.Errorf("routes of %s: %w", n.Name(), err)
	}
	return list, nil
}

func nextHops(r netlink.Route) []netip.Addr {
	var out []netip.Addr
	if a, ok := netip.AddrFromSlice(r.Gw); ok {
		out = append(out, a.Unmap())
	}
	for _, hop := range r.MultiPath {
		if a, ok := netip.AddrFromSlice(hop.Gw); ok {
			out = append(out, a.Unmap())
		}
	}
	return out
}

func isVIP(p netip.Prefix) bool {
	return p.IsSingleIP() && (netip.MustParsePrefix("10.99.0.0/16").Contains(p.Addr()) ||
		netip.MustParsePrefix("fd00:99::/64").Contains(p.Addr()))
}

func prefix(n *net.IPNet) (netip.Prefix, bool) {
	if n == nil {
		return netip.Prefix{}, false
	}
	a, ok := netip.AddrFromSlice(n.IP)
	bits, _ := n.Mask.Size()
	return netip.PrefixFrom(a.Unmap(), bits), ok
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
