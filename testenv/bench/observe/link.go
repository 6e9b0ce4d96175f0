package observe

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"time"

	"github.com/herald-vip/herald/testenv/holders"
	"github.com/herald-vip/herald/testenv/step"
)

const (
	// restWithin bounds the time until a link is at rest. After a cut, clients have kept
	// the wrong MAC address for more than half a minute.
	restWithin = 90 * time.Second
	// restFor is how long a node must have held a VIP, without failed connections, before
	// a fault. Linux ignores gratuitous ARP within a second of a change of its entry
	// (net.ipv4.neigh.*.locktime), and keepalived repeats it after a second. An earlier
	// fault would find the client unable to learn.
	restFor = 2500 * time.Millisecond
)

// AtRest waits until each address has had the same holder for a while, without a
// failed connection of these clients, and check, unless nil, returns no error. It
// returns the holders.
func AtRest(ctx context.Context, seen *holders.Observer, vips []netip.Addr, clients []*Traffic, check func(ctx context.Context, holders map[netip.Addr]string) error) map[netip.Addr]string {
	ctx, cancel := context.WithTimeout(ctx, restWithin)
	defer cancel()
	var since time.Time
	var holders map[netip.Addr]string
	failed := -1
	for {
		now, bad := make(map[netip.Addr]string), Failed(clients)
		for _, vip := range vips {
			if holder, _ := seen.Holder(vip); holder != "" {
				now[vip] = holder
			}
		}
		if len(now) < len(vips) || !maps.Equal(now, holders) || bad != failed {
			holders, failed, since = now, bad, time.Now()
		}
		var err error
		if time.Since(since) > restFor {
			if check != nil {
				err = check(ctx, holders)
			}
			if err == nil {
				return holders
			}
		}
		if late := step.Sleep(ctx, 50*time.Millisecond); late != nil {
			step.Do(fmt.Errorf("the link did not come to rest; the VIPs are on %v: %w", holders, errors.Join(late, err)))
		}
	}
}

// AwaitTaken waits until other nodes than the holder have claimed all these addresses
// since an instant. It returns the time since then; nil if the deadline passed first.
func AwaitTaken(ctx context.Context, seen *holders.Observer, vips []netip.Addr, holder string, since time.Duration, deadline time.Time) *time.Duration {
	for {
		if after, ok := TakenOver(seen.Trace(), vips, holder, since); ok {
			return &after
		}
		if time.Now().After(deadline) {
			return nil
		}
		step.Pause(ctx, 50*time.Millisecond)
	}
}
