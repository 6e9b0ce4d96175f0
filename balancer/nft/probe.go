package nft

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/balancer"
)

// Probe says whether balancing in the kernel can be had here: nil if so, an ErrUnsupported
// with the reason if not. It tries in an empty network namespace of its own, which goes at
// once, so that the host's is not touched.
func Probe() error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlock: the thread, which is elsewhere now, ends with the goroutine
		done <- probe()
	}()
	return <-done
}

func probe() error {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		if errors.Is(err, syscall.EPERM) {
			return fmt.Errorf("%w: only root can try: %w", ErrUnsupported, err)
		}
		return fmt.Errorf("try balancing in a network namespace: %w", err)
	}
	netns, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("try balancing in a network namespace: %w", err)
	}
	defer unix.Close(netns)
	p, err := newPlane(slog.New(slog.DiscardHandler), Options{}, netns)
	if err != nil {
		return err
	}
	place := netip.AddrFrom4([4]byte{192, 0, 2, 1}) // TEST-NET-1 (RFC 5737)
	_, _, err = p.apply([]balancer.Service{{
		Name: "probe", Listen: []netip.AddrPort{netip.AddrPortFrom(place, 1)}, Method: balancer.SourceHash,
		Backends: []balancer.Backend{{Addr: netip.AddrPortFrom(place, 2), State: balancer.Serving}},
	}})
	p.kernel.Close()
	if err != nil {
		return unsupported(err)
	}
	return nil
}
