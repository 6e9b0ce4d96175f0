package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/herald-vip/herald/balancer"
	"github.com/herald-vip/herald/balancer/nft"
	"github.com/herald-vip/herald/config"
)

// kernelPlane is a plane in the kernel; [nft.Plane] is.
type kernelPlane interface {
	balancer.Plane
	Run(ctx context.Context)
	Bridge() *nft.Bridge
}

// lazyPlane is the plane in the kernel, which is made when something is to be carried: most
// nodes have neither balancers nor, before others are known, a bridge.
type lazyPlane struct {
	open func() (kernelPlane, error)
	made chan struct{} // closed once there is a plane

	mu     sync.Mutex
	plane  kernelPlane // nil until then
	failed error       // why it could not be made, and
	again  time.Time   // when that is to be tried again
	closed bool
}

// remake is how long after a failure the plane is tried to be made again: a kernel that lacks
// something lacks it for long.
const remake = 5 * time.Second

var _ balancer.Plane = (*lazyPlane)(nil)

func newLazyPlane(log *slog.Logger, node string) *lazyPlane {
	return &lazyPlane{made: make(chan struct{}), open: func() (kernelPlane, error) {
		plane, err := nft.New(log, nft.Options{Node: node})
		if err != nil {
			return nil, err // no plane, rather than one that is nil
		}
		return plane, nil
	}}
}

// need returns the plane and makes it if there is none.
func (k *lazyPlane) need() (kernelPlane, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.plane != nil:
		return k.plane, nil
	case k.closed:
		return nil, errors.New("herald is stopping")
	case k.failed != nil && time.Now().Before(k.again):
		return nil, k.failed
	}
	plane, err := k.open()
	if err != nil {
		k.failed, k.again = err, time.Now().Add(remake)
		return nil, err
	}
	k.plane = plane
	close(k.made)
	return plane, nil
}

// has returns the plane, nil if there is none. It does not wait for one that is being made,
// as the bridge is opened in the midst of a withdrawal.
func (k *lazyPlane) has() kernelPlane {
	select {
	case <-k.made:
		return k.plane // which nobody changes any more
	default:
		return nil
	}
}

// Apply implements [balancer.Plane].
func (k *lazyPlane) Apply(services []balancer.Service) error {
	if len(services) == 0 && k.has() == nil {
		return nil
	}
	plane, err := k.need()
	if err != nil {
		return fmt.Errorf("%w; a balancer with mode: proxy does without", err)
	}
	return plane.Apply(services)
}

// Counts implements [balancer.Plane].
func (k *lazyPlane) Counts() ([]balancer.Count, error) {
	if plane := k.has(); plane != nil {
		return plane.Counts()
	}
	return nil, nil
}

// run does the plane's background work, once there is one, until ctx is done.
func (k *lazyPlane) run(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-k.made:
		k.has().Run(ctx)
	}
}

// Close implements [balancer.Plane].
func (k *lazyPlane) Close() error {
	k.mu.Lock()
	k.closed = true
	k.mu.Unlock()
	if plane := k.has(); plane != nil {
		return plane.Close()
	}
	return nil
}

// crossover is the bridge in the same plane. It is made when other members are known.
type crossover struct{ *lazyPlane }

// Prepare says where new connections to VIPs would be sent on to, see [nft.Bridge.Prepare].
func (c crossover) Prepare(towards map[netip.Addr][]netip.Addr) error {
	if len(towards) == 0 && c.has() == nil {
		return nil
	}
	plane, err := c.need()
	if err != nil {
		return err
	}
	return plane.Bridge().Prepare(towards)
}

// Open implements [forwarder].
func (c crossover) Open(limit time.Duration, vips ...netip.Addr) {
	if plane := c.has(); plane != nil {
		plane.Bridge().Open(limit, vips...)
	}
}

// Close implements [forwarder].
func (c crossover) Close(vips ...netip.Addr) error {
	if plane := c.has(); plane != nil {
		return plane.Bridge().Close(vips...)
	}
	return nil
}

// Received implements [forwarder].
func (c crossover) Received(vip netip.Addr) (uint64, error) {
	if plane := c.has(); plane != nil {
		return plane.Bridge().Received(vip)
	}
	return 0, nil
}

// clearKernel ends the listening that a predecessor has left in the kernel if nothing of c
// takes it over.
func clearKernel(log *slog.Logger, c *config.Config) {
	for _, b := range c.Balancers {
		if b.Mode == config.Kernel {
			return
		}
	}
	for _, v := range c.VIPs {
		if *v.Bridge {
			return
		}
	}
	if err := nft.Clear(); err != nil {
		log.Debug("balancers of an earlier herald may be left", "err", err)
	}
}
