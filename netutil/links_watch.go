package netutil

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"net"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// WatchLinks calls changed with all links by name, at once and after each change,
// until ctx is done, and returns nil then. An error means that it could not begin.
// Changes that the kernel lost are made up for by a look at everything. Changed is
// called on this goroutine, should not keep the next change waiting, and owns what it is given.
func WatchLinks(ctx context.Context, changed func(map[string]Link)) error {
	return watchLinks(ctx, &rtnetlink{buffer: defaultBuffer, mark: defaultMark}, changed)
}

func watchLinks(ctx context.Context, r *rtnetlink, changed func(map[string]Link)) error {
	defer r.close()
	w := linkWatch{kernel: r, changed: changed}
	for {
		err := w.listen(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case w.told == nil:
			return fmt.Errorf("watch links: %w", err)
		}
		// Changes went unheard (ENOBUFS), or the kernel is short of memory.
		select {
		case <-ctx.Done():
		case <-time.After(blind):
		}
	}
}

type linkWatch struct {
	kernel  *rtnetlink
	changed func(map[string]Link)
	told    map[string]Link // last
}

// listen subscribes, looks at everything, and then tells of changes until the
// subscription fails or ctx is done.
func (w *linkWatch) listen(ctx context.Context) error {
	conn, err := w.kernel.subscribe()
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Unix(0, 0)) })()
	defer conn.Close()
	t, err := readLinks(w.kernel)
	if err != nil {
		return err
	}
	w.kernel.close()
	w.tell(t)
	for {
		msgs, err := conn.Receive()
		if err != nil {
			return err
		}
		for _, m := range msgs {
			news, err := t.apply(m)
			if err != nil {
				return err
			}
			if news { // each by itself: a link that goes down and up was down
				w.tell(t)
			}
		}
	}
}

func (w *linkWatch) tell(t linkTable) {
	now := t.byName()
	if w.told != nil && maps.EqualFunc(w.told, now, Link.equal) {
		return
	}
	w.told = t.byName()
	w.changed(now)
}

// readLinks reads the table of all links.
func readLinks(r *rtnetlink) (linkTable, error) {
	links, err := dump(r, unix.RTM_GETLINK, make([]byte, unix.SizeofIfInfomsg), decodeLinkState)
	if err != nil {
		return linkTable{}, fmt.Errorf("read links: %w", err)
	}
	addrs, err := dump(r, unix.RTM_GETADDR, make([]byte, unix.SizeofIfAddrmsg), decodeAddress)
	if err != nil {
		return linkTable{}, fmt.Errorf("read addresses: %w", err)
	}
	return newLinkTable(links, addrs), nil
}

// decodeLinkState reads an ifinfomsg; ok is false as with decodeLink.
func decodeLinkState(b []byte) (l Link, ok bool, err error) {
	base, ok, err := decodeLink(b)
	if err != nil || !ok {
		return Link{}, ok, err
	}
	const passes = unix.IFF_UP | unix.IFF_LOWER_UP | unix.IFF_RUNNING
	l = Link{
		Name:  base.name,
		Index: base.index,
		Up:    binary.NativeEndian.Uint32(b[8:12])&passes == passes,
	}
	attrs, err := netlink.NewAttributeDecoder(b[unix.SizeofIfInfomsg:])
	if err != nil {
		return Link{}, false, fmt.Errorf("link message: %w", err)
	}
	for attrs.Next() {
		switch attrs.Type() {
		case unix.IFLA_ADDRESS:
			if mac := attrs.Bytes(); len(bytes.Trim(mac, "\x00")) > 0 {
				l.MAC = net.HardwareAddr(bytes.Clone(mac))
			}
		case unix.IFLA_MTU:
			l.MTU = int(attrs.Uint32())
		case unix.IFLA_LINKINFO:
			attrs.Nested(func(info *netlink.AttributeDecoder) error {
				for info.Next() {
					if info.Type() == unix.IFLA_INFO_KIND {
						l.Kind = info.String()
					}
				}
				return info.Err()
			})
		}
	}
	if err := attrs.Err(); err != nil {
		return Link{}, false, fmt.Errorf("link message: %w", err)
	}
	return l, true, nil
}
