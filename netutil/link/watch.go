package link

import (
	"context"
	"fmt"
	"maps"

	"github.com/herald-vip/herald/netutil/rtnetlink"
	"github.com/herald-vip/herald/wake"
)

// Watch calls changed with all links by name, at once and after each change,
// until ctx is done, and returns nil then. An error means that it could not begin.
// After the kernel has lost changes Watch reads everything again. It calls changed on this
// goroutine; changed should return soon, and owns its argument.
func Watch(ctx context.Context, watcher *rtnetlink.Watcher, changed func(map[string]Link)) error {
	r := &rtnetlink.Conn{NetNS: watcher.NetNS}
	defer r.Close()
	w := linkWatch{kernel: r, watcher: watcher, changed: changed}
	for {
		err := w.listen(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case w.reported == nil:
			return fmt.Errorf("watch links: %w", err)
		}
		// Changes were lost (ENOBUFS), or the kernel is short of memory.
		wake.Pause(ctx, rtnetlink.Pause)
	}
}

type linkWatch struct {
	kernel   *rtnetlink.Conn
	watcher  *rtnetlink.Watcher
	changed  func(map[string]Link)
	reported map[string]Link // last
}

// listen subscribes, reads everything, and then reports changes until the
// subscription fails or ctx is done.
func (w *linkWatch) listen(ctx context.Context) error {
	sub, err := w.watcher.Subscribe()
	if err != nil {
		return err
	}
	defer sub.Close()
	t, err := readLinks(w.kernel)
	if err != nil {
		return err
	}
	w.kernel.Close()
	w.report(t)
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
			if t.apply(e) { // each by itself: a link that goes down and up was down
				w.report(t)
			}
		}
	}
}

func (w *linkWatch) report(t linkTable) {
	now := t.byName()
	if w.reported != nil && maps.EqualFunc(w.reported, now, Link.equal) {
		return
	}
	w.reported = t.byName()
	w.changed(now)
}

// readLinks reads the table of all links.
func readLinks(r *rtnetlink.Conn) (linkTable, error) {
	links, addrs, err := r.Dump()
	return newLinkTable(links, addrs), err
}
