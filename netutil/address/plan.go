package address

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// ErrForeign means that the host has the address already and that Herald did not put
// it there. Herald neither uses nor touches such an address.
var ErrForeign = errors.New("not put there by Herald")

// ipvsLink is where kube-proxy in IPVS mode has the addresses of all Services, on every
// node, so that the kernel accepts their packets. That does not make them foreign.
const ipvsLink = "kube-ipvs0"

// step is what to do about a wanted address.
type step int

const (
	leave  step = iota // nothing can be done
	create             // the link lacks it
	keep               // the link has Herald's
	mend               // and somebody has changed it, such as its lifetime
)

// plan decides about one wanted address. With leave the error says why; with keep and mend
// it may report a foreign second copy, which is no reason to give up Herald's. held tells
// whether Herald has the address on a link, whatever somebody did to it since.
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

// foreign says where a foreign copy of an address is, nil if there is none.
func (v *view) foreign(b Binding, mark uint8, held func(link int) bool) error {
	own := netip.PrefixFrom(b.Addr, b.Addr.BitLen())
	var foreign error
	for at, a := range v.places[b.Addr] {
		on := v.links[at.link].Name
		if Ours(a, on, mark, v.marks) || at.subnet == own && held(at.link) || on == ipvsLink && b.Interface != ipvsLink {
			continue
		}
		if e := foreignError(a, on); foreign == nil || e.Error() < foreign.Error() {
			foreign = e // the same one in whatever order the map yields them
		}
	}
	return foreign
}

// foreignError says where the address is, its traits, and what to do.
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

// Ours recognises what Herald, this process or an earlier one, put on a link, whatever
// somebody did to it since, but that in IPv6 there is no label to know it by then.
func Ours(a address, link string, mark uint8, marks bool) bool {
	return asMade(a, link, mark, marks) || labelled(a, link)
}

// labelled reports whether an address has the label of Herald's, but no mark: `ip address
// change` takes the mark off.
func labelled(a address, link string) bool {
	return a.Proto == 0 && a.Subnet == netip.PrefixFrom(a.IP, 32) && a.Label == label(link) && a.Label != link
}

// asMade recognises what is as Herald made it: by the mark (IFA_PROTO), if the kernel has
// marks, else by a combination that no other program makes: a host address, deprecated from
// the start, about to expire, without a route, and labelled (IPv4) or set without duplicate
// address detection (IPv6).
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

// An address that is removed again and again is put back at once the first time,
// then after a pause that doubles up to maxPause, until it has stayed for calm.
// After a refusal of the kernel, Herald tries again after the same pauses.
const (
	minPause = 100 * time.Millisecond
	maxPause = 5 * time.Second
	calm     = 4 * maxPause
)

// pauseAfter returns how long to wait after n removals or failures in a row.
func pauseAfter(n int) time.Duration {
	if n == 0 {
		return 0
	}
	return min(minPause<<min(n-1, 16), maxPause)
}

// explainError adds what to do to errors of the kernel that do not say so.
func explainError(b Binding, err error) error {
	switch {
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("put %s on %s: %w: Herald needs CAP_NET_ADMIN", b.Addr, b.Interface, err)
	case errors.Is(err, unix.EACCES) && b.Addr.Is6():
		return fmt.Errorf("put %s on %s: %w: is IPv6 off there? set net.ipv6.conf.%s.disable_ipv6=0", b.Addr, b.Interface, err, b.Interface)
	}
	return fmt.Errorf("put %s on %s: %w", b.Addr, b.Interface, err)
}
