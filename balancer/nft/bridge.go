package nft

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/herald-vip/herald/internal/wake"
)

// Bridge forwards new TCP connections to a VIP, at any port, to healthy masters. It sends them to a
// master's own address, never to a VIP, so no second bridge forwards them again: there is one hop.
// Forwarded connections are masqueraded. Its methods are safe for concurrent use.
type Bridge struct {
	plane *DataPlane
	wake  chan struct{} // holds one element while there are requests
}

// Prepare sets the masters of each VIP: their own addresses, of the VIP's family, if they are healthy. It opens no VIP, but
// spreads the connections of open ones over the new masters at once. It closes VIPs that masters does not have, and VIPs of
// a family that this host cannot forward. Call it again after an error.
//
// The Bridge keeps masters and changes it.
func (b *Bridge) Prepare(masters map[netip.Addr][]netip.Addr) error {
	p := b.plane
	p.changing.Lock()
	defer p.changing.Unlock()
	if len(masters) == 0 && !p.isOpen() {
		return nil
	}
	if err := p.open(); err != nil {
		return err
	}
	var unforwarded error
	for _, vip := range slices.SortedFunc(maps.Keys(masters), netip.Addr.Compare) {
		if err := p.forward(vip.Is4()); err != nil {
			delete(masters, vip) // a client notices a refused connection sooner than a lost one
			unforwarded = cmp.Or(unforwarded, err)
		}
	}
	if err := p.owner.prepare(masters); err != nil {
		return fmt.Errorf("prepare bridge: %w", err)
	}
	return unforwarded
}

// Open forwards new connections to vips for at most limit, after which the kernel stops by itself. Opening again sets a new
// limit. Open never blocks: DataPlane.Run carries it out, and logs errors. VIPs without masters stay closed.
func (b *Bridge) Open(limit time.Duration, vips ...netip.Addr) {
	b.plane.owner.requests.add(time.Now().Add(limit), vips)
	wake.Up(b.wake)
}

// Close stops forwarding new connections to vips. Established ones stay. Call it before a VIP is bound or announced here again.
func (b *Bridge) Close(vips ...netip.Addr) error {
	b.plane.owner.requests.remove(vips)
	if !b.plane.isOpen() {
		return nil
	}
	if err := b.plane.owner.closeBridge(vips); err != nil {
		return fmt.Errorf("close bridge: %w", err)
	}
	return nil
}

// Received returns how many new connections to vip were forwarded since it was last opened.
func (b *Bridge) Received(vip netip.Addr) (uint64, error) {
	if !b.plane.isOpen() {
		return 0, nil
	}
	n, err := b.plane.owner.received(vip)
	if err != nil {
		return 0, fmt.Errorf("count forwarded connections: %w", err)
	}
	return n, nil
}

// run carries out requests until ctx ends.
func (b *Bridge) run(ctx context.Context) {
	wake.Loop(ctx, b.wake, func() (never time.Time) {
		if err := b.plane.owner.openBridge(); err != nil {
			b.plane.log.Error("bridge not opened", "err", err)
		}
		return never
	})
}
