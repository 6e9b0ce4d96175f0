// Package route keeps routes in tables of the kernel, from which other routing daemons on the node take them up, and has the host
// answer for addresses. All of it goes by a device that lives as long as this process: whatever ends that, the kernel removes the device and its
// routes. A process that stands still is ended by the kernel, see deadline.go.
package route

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const (
	// Device is the name of the link that the routes lead to.
	Device = "herald0"
	// TunDevice is by which the link is made.
	TunDevice = "/dev/net/tun"
	// Protocol is what rtnetlink(7) calls the origin of a route: Herald's are those that have this number.
	Protocol = 213
	// Worst is the metric of a route that others are to be preferred to: zebra takes what is above for an administrative distance.
	Worst = 1<<24 - 1
	// Patience is how long a process may stand still that has routes.
	Patience = 5 * time.Second
)

// Route is a route to this node.
type Route struct {
	Prefix netip.Prefix
	// Table is the number of the kernel's table, and Metric the route's priority there, 1 to Worst: lower is better.
	Table, Metric int
}

// Keeper keeps routes. Its methods are safe for concurrent use.
type Keeper struct {
	mu       sync.Mutex
	device   *os.File // nil if there is none
	index    int
	routes   map[netip.Prefix]Route
	stale    []Route // that are to be removed
	answers  map[netip.Addr]bool
	deadline deadline
}

// New returns a Keeper of no routes.
func New() *Keeper {
	return &Keeper{routes: make(map[netip.Prefix]Route), answers: make(map[netip.Addr]bool)}
}

// Bind has the host answer for an address, by a route of type local: FRR would take an address on a link for a connected route, and prefer
// it to that of a table. The link is Device.
func (k *Keeper) Bind(_ string, addr netip.Addr) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.open(); err != nil {
		return err
	}
	// Beside the kernel's own while the address is still on a link, since the VIP was announced by BGP before.
	if err := netlink.RouteAppend(k.local(addr)); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("have the host answer for %s: %w", addr, k.explain(err))
	}
	k.answers[addr] = true
	return nil
}

// Try is Bind, which puts back what somebody took away.
func (k *Keeper) Try(link string, addr netip.Addr) error { return k.Bind(link, addr) }

// Unbind has the host no longer answer for addresses; one for which it does not is passed over.
func (k *Keeper) Unbind(_ string, addrs ...netip.Addr) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	var errs []error
	for _, addr := range addrs {
		if !k.answers[addr] {
			continue
		}
		if err := remove(k.local(addr)); err != nil {
			errs = append(errs, fmt.Errorf("have the host no longer answer for %s: %w", addr, err))
			continue
		}
		delete(k.answers, addr)
	}
	return errors.Join(errs...)
}

func (k *Keeper) local(addr netip.Addr) *netlink.Route {
	r := k.message(Route{Prefix: netip.PrefixFrom(addr, addr.BitLen()), Table: unix.RT_TABLE_LOCAL})
	r.Type, r.Scope = unix.RTN_LOCAL, unix.RT_SCOPE_HOST
	return r
}

// Announce makes routes, and puts back what is missing of those that it made. If it is not called within Patience
// while there are any, the kernel ends the process. A route that differs from the one before it to the same prefix is
// made before that goes. After an error some may be made.
func (k *Keeper) Announce(routes ...Route) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(routes)+len(k.routes)+len(k.stale) == 0 {
		return nil
	}
	if err := cmp.Or(k.deadline.extend(), k.open()); err != nil {
		return errors.Join(err, k.settle())
	}
	var errs []error
	for _, r := range routes {
		if err := k.add(r); err != nil {
			errs = append(errs, fmt.Errorf("route to %s in table %d: %w", r.Prefix, r.Table, err))
		}
	}
	return errors.Join(append(errs, k.settle())...)
}

func (k *Keeper) add(r Route) error {
	was, known := k.routes[r.Prefix]
	if err := netlink.RouteAdd(k.message(r)); err != nil && !(errors.Is(err, unix.EEXIST) && known && was == r) {
		return k.explain(err)
	}
	if known && was != r {
		k.stale = append(k.stale, was)
	}
	k.routes[r.Prefix] = r
	return nil
}

// Withdraw removes the routes to prefixes; one that is not kept is passed over. What cannot be removed is tried again at each call.
func (k *Keeper) Withdraw(prefixes ...netip.Prefix) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, prefix := range prefixes {
		if r, known := k.routes[prefix]; known {
			k.stale = append(k.stale, r)
			delete(k.routes, prefix)
		}
	}
	return k.settle()
}

// settle removes the routes that are to go, and the deadline if none is left.
func (k *Keeper) settle() error {
	var errs []error
	k.stale = slices.DeleteFunc(k.stale, func(r Route) bool {
		err := remove(k.message(r))
		if err != nil {
			errs = append(errs, fmt.Errorf("remove the route to %s from table %d: %w", r.Prefix, r.Table, err))
		}
		return err == nil
	})
	if len(k.routes)+len(k.stale) == 0 {
		errs = append(errs, k.deadline.end())
	}
	return errors.Join(errs...)
}

// explain is an error of the kernel's, with what to do. If the device is gone, it will be made anew.
func (k *Keeper) explain(err error) error {
	switch {
	case errors.Is(err, unix.EEXIST):
		return errors.New("there is one that is not Herald's: remove it, or choose another metric")
	case errors.Is(err, unix.ENODEV), errors.Is(err, unix.ENETDOWN):
		k.close()
		return fmt.Errorf("somebody removed %s or set it down, it is made anew: %w", Device, err)
	}
	return err
}

// remove removes a route, if it is there.
func remove(r *netlink.Route) error {
	err := netlink.RouteDel(r)
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.ENODEV) {
		return nil
	}
	return err
}

// Close removes all routes.
func (k *Keeper) Close() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.close()
	return k.deadline.end()
}

func (k *Keeper) close() {
	if k.device != nil {
		k.device.Close() // with which the kernel removes the link, and with that the routes
		k.device = nil
	}
	clear(k.routes)
	clear(k.answers)
	k.stale = nil
}

// open makes the device, if it is not there.
func (k *Keeper) open() error {
	if k.device != nil {
		return nil
	}
	tun := &netlink.Tuntap{
		LinkAttrs: netlink.LinkAttrs{Name: Device}, Mode: netlink.TUNTAP_MODE_TUN, Flags: netlink.TUNTAP_NO_PI | netlink.TUNTAP_TUN_EXCL, Queues: 1, NonPersist: true,
	}
	if err := netlink.LinkAdd(tun); err != nil {
		return fmt.Errorf("make the link %s, for which herald needs CAP_NET_ADMIN and %s, and to be alone: %w", Device, TunDevice, err)
	}
	k.device, k.index = tun.Fds[0], tun.Attrs().Index
	// FRR 10.7.0 forgets routes by links without an IPv4 address when any other link goes down (its issue 23164). RFC 7600 has one for such a link.
	dummy := &netlink.Addr{IPNet: &net.IPNet{IP: net.IPv4(192, 0, 0, 8), Mask: net.CIDRMask(32, 32)}, Scope: unix.RT_SCOPE_LINK}
	if err := errors.Join(netlink.LinkSetUp(tun), netlink.AddrReplace(tun, dummy)); err != nil {
		k.close()
		return fmt.Errorf("set up %s: %w", Device, err)
	}
	return nil
}

func (k *Keeper) message(r Route) *netlink.Route {
	bits := r.Prefix.Addr().BitLen()
	return &netlink.Route{
		LinkIndex: k.index, Dst: &net.IPNet{IP: r.Prefix.Addr().AsSlice(), Mask: net.CIDRMask(r.Prefix.Bits(), bits)},
		Table: r.Table, Priority: r.Metric, Protocol: Protocol,
	}
}
