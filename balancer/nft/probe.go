package nft

import (
	"fmt"
	"log/slog"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/balancer"
	"github.com/herald-vip/herald/netutil/ruleset"
)

// Probe reports whether this kernel can balance: nil, or an ErrUnsupported with the reason. It tries in a new network
// namespace and leaves the host's unchanged.
func Probe() error {
	return unsupported(ruleset.Try(probe))
}

func probe() error {
	netns, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open the network namespace: %w", err)
	}
	defer unix.Close(netns)
	p := newPlane(slog.New(slog.DiscardHandler), Options{}, netns)
	defer p.owner.kernel.Close()
	if err := p.owner.adopt(); err != nil {
		return err
	}
	place := netip.AddrFrom4([4]byte{192, 0, 2, 1}) // TEST-NET-1 (RFC 5737)
	_, _, err = p.owner.apply([]balancer.Service{{
		Name: "probe", Listen: []netip.AddrPort{netip.AddrPortFrom(place, 1)}, Method: balancer.SourceHash,
		Backends: []balancer.Backend{{Addr: netip.AddrPortFrom(place, 2), State: balancer.Serving}},
	}})
	return err
}
