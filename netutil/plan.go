package netutil

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// ErrForeign means that the host has the address already and that somebody else
// than Herald put it there. Herald neither uses nor touches such an address.
var ErrForeign = errors.New("not put there by Herald")

// ipvsLink is where kube-proxy in IPVS mode has the addresses of all Services, on every
// node. They are there for the kernel to take their packets; who may answer for them is
// another matter. That an address is there is nobody's claim to it.
const ipvsLink = "kube-ipvs0"

// step is what to do about a wanted address.
type step int

const (
	leave  step = iota // nothing that may be done
	create             // the link lacks it
	keep               // Herald's, and there
)

// plan decides about one wanted address. With leave the error says why; with
// keep it may report somebody's second copy, which is no reason to give up one
// that serves.
func (v *view) plan(b Binding, mark uint8) (step, error) {
	l, exists := v.byName(b.Interface)
	own := place{l.index, netip.PrefixFrom(b.Addr, b.Addr.BitLen())}
	next := create
	var foreign error
	for at, a := range v.places[b.Addr] {
		switch on := v.links[at.link]; {
		case !ours(a, on.name, mark, v.marks):
			if on.name == ipvsLink && b.Interface != ipvsLink {
				continue
			}
			if e := foreignError(a, on.name); foreign == nil || e.Error() < foreign.Error() {
				foreign = e // whichever the map yields first, say the same
			}
		case exists && at == own:
			next = keep
		}
	}
	switch {
	case !exists:
		return leave, fmt.Errorf("link %s does not exist", b.Interface)
	case !l.up:
		return leave, fmt.Errorf("link %s is down", b.Interface)
	case next == create && foreign != nil:
		return leave, foreign
	}
	return next, foreign
}

// foreignError tells where the address is, what is known of who put it there, and what to do.
func foreignError(a address, link string) error {
	cidr := netip.PrefixFrom(a.ip, a.subnet.Bits())
	var traits string
	if a.label != "" && a.label != link {
		traits += " labelled " + a.label
	}
	if a.proto != 0 {
		traits += fmt.Sprintf(" with protocol %d", a.proto)
	}
	return fmt.Errorf("%s is on %s already%s, %w: remove it with `ip address del %s dev %s` or take it out of Herald's configuration",
		cidr, link, traits, ErrForeign, cidr, link)
}

// ours recognises what Herald, this process or an earlier one, put on a link.
//
// Kernels that know marks (IFA_PROTO) say so. Older ones do not, and there it is
// the combination that nobody else makes: a host address, deprecated from the
// start, about to expire, without a route, and labelled (IPv4) or set without
// duplicate address detection (IPv6).
func ours(a address, link string, mark uint8, marks bool) bool {
	if marks || a.proto != 0 {
		return a.proto == mark
	}
	const shape = unix.IFA_F_NOPREFIXROUTE | unix.IFA_F_DEPRECATED
	if a.subnet != netip.PrefixFrom(a.ip, a.ip.BitLen()) ||
		a.flags&shape != shape || a.flags&unix.IFA_F_PERMANENT != 0 ||
		a.preferred != 0 || time.Duration(a.valid)*time.Second > maxLifetime {
		return false
	}
	if a.ip.Is6() {
		return a.flags&unix.IFA_F_NODAD != 0
	}
	return a.label == label(link)
}

// An address that is removed again and again is put back at once the first time,
// then after a pause that doubles up to maxPause, until one stayed for calm. What
// the kernel refuses is tried again in the same rhythm.
const (
	minPause = 100 * time.Millisecond
	maxPause = 5 * time.Second
	calm     = 4 * maxPause
)

// pause is how long to wait after so many removals or failures in a row.
func pause(n int) time.Duration {
	if n == 0 {
		return 0
	}
	return min(minPause<<min(n-1, 16), maxPause)
}

// explain adds what to do to errors of the kernel that do not say so.
func explain(b Binding, err error) error {
	switch {
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("put %s on %s: %w: Herald needs CAP_NET_ADMIN", b.Addr, b.Interface, err)
	case errors.Is(err, unix.EACCES) && b.Addr.Is6():
		return fmt.Errorf("put %s on %s: %w: is IPv6 off there? set net.ipv6.conf.%s.disable_ipv6=0", b.Addr, b.Interface, err, b.Interface)
	}
	return fmt.Errorf("put %s on %s: %w", b.Addr, b.Interface, err)
}
