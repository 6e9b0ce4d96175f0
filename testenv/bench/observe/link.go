package observe

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"time"

	"github.com/herald-vip/herald/testenv/holders"
)

const (
	// restWithin is how long a link may take to come to rest. After a cut
	// clients have been seen to keep the wrong MAC address for half a minute and more.
	restWithin = 90 * time.Second
	// restFor is how long a node must have held a VIP, with no connection
	// failing, before a fault. Linux believes no gratuitous ARP within a second of a
	// change of its entry (net.ipv4.neigh.*.locktime), and keepalived sends them
	// again after a second; a fault as early as that would find the client deaf.
	restFor = 2500 * time.Millisecond
)

// AtRest waits until each address has had the same holder for a while in which no connection of
// these clients failed, and check, unless it is nil, has nothing against them. It returns the holders.
func AtRest(ctx context.Context, seen *holders.Observer, vips []netip.Addr, clients []*Traffic, check func(ctx context.Context, holders map[netip.Addr]string) error) (map[netip.Addr]string, error) {
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
			if check == nil {
				return holders, nil
			}
			if err = check(ctx, holders); err == nil {
				return holders, nil
			}
		}
		if late := Pause(ctx, 50*time.Millisecond); late != nil {
			return nil, fmt.Errorf("the link did not come to rest; the VIPs are on %v: %w", holders, errors.Join(late, err))
		}
	}
}

// AwaitTaken waits until others than the holder have claimed all these addresses since an instant,
// and returns how long after it that was; nil if it was not until the deadline.
func AwaitTaken(ctx context.Context, seen *holders.Observer, vips []netip.Addr, holder string, since time.Duration, deadline time.Time) (*time.Duration, error) {
	for {
		if after, ok := TakenOver(seen.Trace(), vips, holder, since); ok {
			return &after, nil
		}
		if time.Now().After(deadline) {
			return nil, nil
		}
		if err := Pause(ctx, 50*time.Millisecond); err != nil {
			return nil, err
		}
	}
}
