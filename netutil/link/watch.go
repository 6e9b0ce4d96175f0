package link

import (
	"context"
	"fmt"
	"maps"

	"github.com/herald-vip/herald/internal/wake"
	"github.com/herald-vip/herald/netutil/rtnetlink"
)

// Watch calls changed with all links by name, at once and after each change, until ctx is
// done; then it returns nil. An error means that it could not start. After the kernel has lost
// changes Watch reads everything again. It calls changed on this goroutine. changed should
// return soon, and owns its argument.
func Watch(ctx context.Context, watcher *rtnetlink.Watcher, changed func(map[string]Link)) error {
	k := &rtnetlink.Conn{NetNS: watcher.NetNS}
	defer k.Close()
	var reported map[string]Link // last
	report := func(t linkTable) {
		now := t.byName()
		if reported == nil || !maps.EqualFunc(reported, now, Link.Equal) {
			reported = t.byName()
			changed(now)
		}
	}
	for {
		err := listen(ctx, k, watcher, report)
		switch {
		case ctx.Err() != nil:
			return nil
		case reported == nil:
			return fmt.Errorf("watch links: %w", err)
		}
		// The kernel lost changes (ENOBUFS) or is short of memory.
		wake.Pause(ctx, rtnetlink.Pause)
	}
}

// listen subscribes, reads everything, and then reports changes until the subscription fails or ctx
// is done.
func listen(ctx context.Context, k *rtnetlink.Conn, watcher *rtnetlink.Watcher, report func(linkTable)) error {
	sub, err := watcher.Subscribe()
	if err != nil {
		return err
	}
	defer sub.Close()
	t, err := readLinks(k)
	if err != nil {
		return err
	}
	k.Close()
	report(t)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-sub.Ready():
		}
		events, err := sub.Take()
		if err != nil {
			return err
		}
		for _, e := range events {
			if t.apply(e) { // reports each event: a link that goes down and up was down
				report(t)
			}
		}
	}
}

// readLinks reads the table of all links.
func readLinks(r *rtnetlink.Conn) (linkTable, error) {
	links, addrs, err := r.Dump()
	return newLinkTable(links, addrs), err
}
