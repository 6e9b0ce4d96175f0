// Package route keeps routes in kernel tables, from which other routing daemons on the node redistribute them, and makes the host
// answer for addresses. All routes use a device that lives as long as this process. When the process ends, the kernel removes the
// device and its routes. The kernel kills a process that is stopped: [Keeper] renews a deadline for that.
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
	"unsafe"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const (
	// Device is the name of the routes' link.
	Device = "herald0"
	// TunDevice is the device file that makes the link.
	TunDevice = "/dev/net/tun"
	// Protocol is the number that marks routes as Herald's: the origin of a route in rtnetlink(7).
	Protocol = 213
	// Worst is the highest metric. zebra takes a higher number for an administrative distance.
	Worst = 1<<24 - 1
	// Patience is the maximum time between two calls of Announce while there are routes.
	Patience = 5 * time.Second
)

// Route is a route to this node.
type Route struct {
	Prefix netip.Prefix
	// Table is the number of the kernel's table. Metric is the route's priority there, 1 to Worst; the lowest wins.
	Table, Metric int
}

// Keeper keeps routes. Its methods are safe for concurrent use.
type Keeper struct {
	mu       sync.Mutex
	device   *os.File // nil without a device
	index    int
	routes   map[netip.Prefix]Route
	stale    []Route // still to remove
	answers  map[netip.Addr]bool
	deadline deadline
}

// New returns a Keeper without routes.
func New() *Keeper {
	return &Keeper{routes: make(map[netip.Prefix]Route), answers: make(map[netip.Addr]bool)}
}

// Bind makes the host answer for an address, by a route of type local. FRR would take an address on a link for a connected route
// and prefer it to the table's route. The link is always Device.
func (k *Keeper) Bind(_ string, addr netip.Addr) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.open(); err != nil {
		return err
	}
	// Appended to the kernel's own route while the address is still on a link, after a change of the VIP from BGP.
	if err := netlink.RouteAppend(k.local(addr)); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("make the host answer for %s: %w", addr, k.explain(err))
	}
	k.answers[addr] = true
	return nil
}

// Try is Bind: it puts back a removed route.
func (k *Keeper) Try(link string, addr netip.Addr) error { return k.Bind(link, addr) }

// Unbind stops the host from answering for addresses. It ignores addresses that are not bound.
func (k *Keeper) Unbind(_ string, addrs ...netip.Addr) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	var errs []error
	for _, addr := range addrs {
		if !k.answers[addr] {
			continue
		}
		if err := remove(k.local(addr)); err != nil {
			errs = append(errs, fmt.Errorf("stop the host from answering for %s: %w", addr, err))
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

// Announce adds routes, and puts removed ones back. While there are routes, the kernel kills the process unless Announce is
// called within Patience. A changed route to a prefix is added before the old one is removed. After an error some routes may
// exist.
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
	prev, known := k.routes[r.Prefix]
	if err := netlink.RouteAdd(k.message(r)); err != nil && !(errors.Is(err, unix.EEXIST) && known && prev == r) {
		return k.explain(err)
	}
	if known && prev != r {
		k.stale = append(k.stale, prev)
	}
	k.routes[r.Prefix] = r
	return nil
}

// Withdraw removes the routes to prefixes, and ignores unknown ones. Each further call retries failed removals.
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

// settle removes stale routes, and the deadline when no route is left.
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

// explain adds the cure to an error of the kernel. If the device is gone it closes it, so that the next call makes a new one.
func (k *Keeper) explain(err error) error {
	switch {
	case errors.Is(err, unix.EEXIST):
		return errors.New("another program has a route with this metric: remove it or choose another metric")
	case errors.Is(err, unix.ENODEV), errors.Is(err, unix.ENETDOWN):
		k.close()
		return fmt.Errorf("another program removed link %s or set it down, making it again: %w", Device, err)
	}
	return err
}

// remove removes a route if it exists.
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
		k.device.Close() // the kernel then removes the link and its routes
		k.device = nil
	}
	clear(k.routes)
	clear(k.answers)
	k.stale = nil
}

// open makes the device unless it exists.
func (k *Keeper) open() error {
	if k.device != nil {
		return nil
	}
	tun := &netlink.Tuntap{
		LinkAttrs: netlink.LinkAttrs{Name: Device}, Mode: netlink.TUNTAP_MODE_TUN, Flags: netlink.TUNTAP_NO_PI | netlink.TUNTAP_TUN_EXCL, Queues: 1, NonPersist: true,
	}
	if err := netlink.LinkAdd(tun); err != nil {
		return fmt.Errorf("make link %s: %w: herald needs CAP_NET_ADMIN and %s, and must run only once", Device, err, TunDevice)
	}
	k.device, k.index = tun.Fds[0], tun.Attrs().Index
	// FRR 10.7.0 forgets routes over links without an IPv4 address when any other link goes down (its issue 23164). RFC 7600
	// reserves 192.0.0.8 for such links.
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

// deadline is a kernel timer that kills this process when it expires, even if the process is stopped (timer_create(2) with
// SIGKILL), unless extended. IPv4 routes have no lifetime of their own. The kernel does not kill the first process of a
// PID namespace this way.
type deadline struct {
	id  int32
	set bool
}

// extend moves the deadline to Patience from now.
func (d *deadline) extend() error {
	if os.Getpid() == 1 {
		return errors.New("the kernel does not kill process 1 when it is stopped: set shareProcessNamespace: true for the pod, or run herald under an init")
	}
	if !d.set {
		event := sigevent{signal: int32(unix.SIGKILL)}
		if _, _, errno := unix.Syscall(unix.SYS_TIMER_CREATE, unix.CLOCK_MONOTONIC, uintptr(unsafe.Pointer(&event)), uintptr(unsafe.Pointer(&d.id))); errno != 0 {
			return fmt.Errorf("create a timer: %w", errno)
		}
		d.set = true
	}
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(Patience.Nanoseconds())}
	if _, _, errno := unix.Syscall6(unix.SYS_TIMER_SETTIME, uintptr(d.id), 0, uintptr(unsafe.Pointer(&spec)), 0, 0, 0); errno != 0 {
		return fmt.Errorf("set a timer: %w", errno)
	}
	return nil
}

// end removes the deadline.
func (d *deadline) end() error {
	if !d.set {
		return nil
	}
	if _, _, errno := unix.Syscall(unix.SYS_TIMER_DELETE, uintptr(d.id), 0, 0); errno != 0 {
		return fmt.Errorf("delete a timer: %w", errno)
	}
	d.set = false
	return nil
}

// sigevent is struct sigevent of linux/siginfo.h, with 64 bytes. Zero in notify means SIGEV_SIGNAL.
type sigevent struct {
	value          uintptr
	signal, notify int32
	_              [64 - unsafe.Sizeof(uintptr(0)) - 8]byte
}
