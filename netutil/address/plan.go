package address

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/internal/wake"
)

// ErrForeign means that another program put the address on the host. Herald neither uses nor touches such an address.
var ErrForeign = errors.New("not put there by Herald")

// ipvsLink is the link on which kube-proxy in IPVS mode has the addresses of all Services, on every
// node, so that the kernel accepts their packets. Such copies do not count as foreign.
const ipvsLink = "kube-ipvs0"

// step is the action for a wanted address.
type step int

const (
	leave  step = iota // it cannot be bound
	create             // the link lacks it
	keep               // the link has it unchanged
	mend               // another program changed it, such as its lifetime
)

// plan returns the step for a wanted address. With leave the error is the reason. With keep and mend it may
// report a foreign second copy; Herald keeps its own nevertheless. held reports whether Herald bound the address on a
// link, even if another program changed it since.
func (v *view) plan(b Binding, mark uint8, held func(link int) bool) (step, error) {
	l, exists := v.byName(b.Interface)
	own := netip.PrefixFrom(b.Addr, b.Addr.BitLen())
	at, there := v.places[b.Addr][place{l.Index, own}]
	foreign := v.foreign(b, mark, held)
	switch {
	case !exists:
		return leave, fmt.Errorf("link %s does not exist", b.Interface)
	case !l.AdminUp:
		return leave, fmt.Errorf("link %s is down", b.Interface)
	case there && asMade(at, l.Name, mark, v.marks):
		return keep, foreign
	case there && (labelled(at, l.Name) || held(l.Index)):
		return mend, foreign
	case foreign != nil:
		return leave, foreign
	}
	return create, nil
}

// foreign returns an ErrForeign with the place of a foreign copy of an address; nil without one.
func (v *view) foreign(b Binding, mark uint8, held func(link int) bool) error {
	own := netip.PrefixFrom(b.Addr, b.Addr.BitLen())
	var foreign error
	for at, a := range v.places[b.Addr] {
		on := v.links[at.link].Name
		if Ours(a, on, mark, v.marks) || at.subnet == own && held(at.link) || on == ipvsLink && b.Interface != ipvsLink {
			continue
		}
		if e := foreignError(a, on); foreign == nil || e.Error() < foreign.Error() {
			foreign = e // does not depend on the map's order
		}
	}
	return foreign
}

// foreignError names the place of the address, its traits and the cure.
func foreignError(a address, link string) error {
	cidr := netip.PrefixFrom(a.IP, a.Subnet.Bits())
	var traits string
	if a.Label != "" && a.Label != link {
		traits += " labelled " + a.Label
	}
	if a.Proto != 0 {
		traits += fmt.Sprintf(" with protocol %d", a.Proto)
	}
	return fmt.Errorf("%s is on %s already%s, %w: remove it with `ip address del %s dev %s` or take it out of Herald's configuration",
		cidr, link, traits, ErrForeign, cidr, link)
}

// Ours reports whether this or an earlier Herald put an address on a link, even if modified since. A modified
// IPv6 address cannot be recognised: IPv6 has no labels.
func Ours(a address, link string, mark uint8, marks bool) bool {
	return asMade(a, link, mark, marks) || labelled(a, link)
}

// labelled reports whether an address has Herald's label but no mark. `ip address change` removes the mark.
func labelled(a address, link string) bool {
	return a.Proto == 0 && a.Subnet == netip.PrefixFrom(a.IP, 32) && a.Label == label(link) && a.Label != link
}

// asMade reports whether an address is as Herald made it. If the kernel has marks (IFA_PROTO), the mark decides.
// Otherwise a combination does that no other program uses: a host address, deprecated, about to expire, without a
// route, and with the label (IPv4) or without duplicate address detection (IPv6).
func asMade(a address, link string, mark uint8, marks bool) bool {
	if marks || a.Proto != 0 {
		return a.Proto == mark
	}
	const shape = unix.IFA_F_NOPREFIXROUTE | unix.IFA_F_DEPRECATED
	if a.Subnet != netip.PrefixFrom(a.IP, a.IP.BitLen()) ||
		a.Flags&shape != shape || a.Flags&unix.IFA_F_PERMANENT != 0 ||
		a.Preferred != 0 || time.Duration(a.Valid)*time.Second > maxLifetime {
		return false
	}
	if a.IP.Is6() {
		return a.Flags&unix.IFA_F_NODAD != 0
	}
	return a.Label == label(link)
}

// Herald puts a removed address back at once the first time, then after pauses that double up to
// maxPause, until the address has stayed for calm. It uses the same pauses after errors of the kernel.
const (
	minPause = 100 * time.Millisecond
	maxPause = 5 * time.Second
	calm     = 4 * maxPause
)

var pauses = wake.Backoff{Min: minPause, Max: maxPause}

// explainError adds the cure to errors of the kernel.
func explainError(b Binding, err error) error {
	switch {
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("put %s on %s: %w: Herald needs CAP_NET_ADMIN", b.Addr, b.Interface, err)
	case errors.Is(err, unix.EACCES) && b.Addr.Is6():
		return fmt.Errorf("put %s on %s: %w: is IPv6 off there? set net.ipv6.conf.%s.disable_ipv6=0", b.Addr, b.Interface, err, b.Interface)
	}
	return fmt.Errorf("put %s on %s: %w", b.Addr, b.Interface, err)
}

// Reserve replaces the reserved addresses: only Bind should put them on this host. Foreign copies of them are logged and
// reported by Foreign while no binding wants the address. They are not touched.
func (a *Binder) Reserve(addrs []netip.Addr) {
	a.mu.Lock()
	defer a.mu.Unlock()
	reserved := make(map[netip.Addr]error, len(addrs))
	for _, addr := range addrs {
		reserved[addr.Unmap()] = a.reserved[addr.Unmap()]
	}
	a.reserved = reserved
	if a.live { // otherwise Run looks when it subscribes
		for addr := range reserved {
			a.checkReserved(addr)
		}
	}
}

// Foreign returns an [ErrForeign] with the place of each reserved address that another program put on this host. For
// wanted addresses Status reports it.
func (a *Binder) Foreign() map[netip.Addr]error {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := maps.Clone(a.reserved)
	maps.DeleteFunc(out, func(_ netip.Addr, err error) bool { return err == nil })
	return out
}

// checkReserved notes and logs whether another program put a reserved address on this host.
func (a *Binder) checkReserved(addr netip.Addr) {
	before, ok := a.reserved[addr]
	if !ok {
		return
	}
	a.reserved[addr] = nil
	for _, on := range a.wants {
		if on[addr] != nil {
			return
		}
	}
	err := a.view.foreign(Binding{Addr: addr}, a.opts.Mark, func(int) bool { return false })
	a.reserved[addr] = err
	switch {
	case sameError(err, before):
	case err != nil:
		a.log.Warn("VIP address is on this host but not announced", "address", addr, "err", err)
	default:
		a.log.Info("VIP address is no longer on this host", "address", addr, "after", before)
	}
}
