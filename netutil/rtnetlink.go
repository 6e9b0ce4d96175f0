package netutil

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// kernel is what this package asks of rtnetlink. Calls do not overlap.
type kernel interface {
	// dump reads every link and address of the host.
	dump() ([]link, []address, error)
	// link reads one link; if there is none the error is unix.ENODEV.
	link(index int) (link, error)
	// add creates an address; if the link has it the error is unix.EEXIST.
	add(address) error
	// refresh starts lifetimes anew, and creates what is not there. It is cheaper for
	// many at once, but the error does not tell them apart.
	refresh(...address) error
	// remove deletes addresses; one that is not there is no error. It ends at the first
	// error, which does not tell them apart.
	remove(...address) error
	// watch reports what changes from now on, but need not tell of the caller's own
	// add and refresh.
	watch() (watcher, error)
	// close frees what is held between calls; another call may follow.
	close()
}

// watcher is a subscription. After an error it has missed something and is of no more use.
type watcher interface {
	// next waits for changes. close ends the wait.
	next() ([]event, error)
	close()
}

// rtnetlink is the kernel itself.
type rtnetlink struct {
	netns  int   // file descriptor; 0 is the calling thread's namespace
	buffer int   // bytes that a watcher may lag behind
	mark   uint8 // of addresses that a watcher need not tell when they are set
	conn   *netlink.Conn
}

var _ kernel = (*rtnetlink)(nil)

const (
	// The kernel answers within the system call, unless it lost the answer.
	answerTimeout = 2 * time.Second

	dumpAttempts = 8

	answersInARow = 64 // fit every socket's receive buffer
)

func (r *rtnetlink) dump() ([]link, []address, error) {
	links, err := dump(r, unix.RTM_GETLINK, make([]byte, unix.SizeofIfInfomsg), decodeLink)
	if err != nil {
		return nil, nil, fmt.Errorf("read links: %w", err)
	}
	addrs, err := dump(r, unix.RTM_GETADDR, make([]byte, unix.SizeofIfAddrmsg), decodeAddress)
	if err != nil {
		return nil, nil, fmt.Errorf("read addresses: %w", err)
	}
	return links, addrs, nil
}

// errInterrupted is NLM_F_DUMP_INTR: the table changed while it was read, entries may be missing.
var errInterrupted = errors.New("changed again and again while it was read")

func dump[T any](r *rtnetlink, typ netlink.HeaderType, filter []byte, decode func([]byte) (T, bool, error)) ([]T, error) {
	for range dumpAttempts {
		out, err := dumpOnce(r, typ, filter, decode)
		if !errors.Is(err, errInterrupted) {
			return out, err
		}
	}
	return nil, errInterrupted
}

func dumpOnce[T any](r *rtnetlink, typ netlink.HeaderType, filter []byte, decode func([]byte) (T, bool, error)) ([]T, error) {
	replies, err := r.execute(request(typ, netlink.Dump, filter))
	if err != nil {
		return nil, err
	}
	out := make([]T, 0, len(replies))
	for _, m := range replies {
		if m.Header.Flags&netlink.DumpInterrupted != 0 {
			return nil, errInterrupted
		}
		t, ok, err := decode(m.Data)
		if err != nil {
			return nil, err
		}
		if ok {
			out = append(out, t)
		}
	}
	return out, nil
}

func (r *rtnetlink) link(index int) (link, error) {
	filter := make([]byte, unix.SizeofIfInfomsg)
	binary.NativeEndian.PutUint32(filter[4:], uint32(index))
	replies, err := r.execute(request(unix.RTM_GETLINK, 0, filter))
	if err != nil {
		return link{}, err
	}
	if len(replies) != 1 {
		return link{}, fmt.Errorf("read link %d: %d answers", index, len(replies))
	}
	l, ok, err := decodeLink(replies[0].Data)
	if err == nil && !ok {
		err = fmt.Errorf("read link %d: answer is about something else", index)
	}
	return l, err
}

func (r *rtnetlink) add(a address) error {
	return r.change(unix.RTM_NEWADDR, netlink.Create|netlink.Excl, a)
}

func (r *rtnetlink) refresh(addrs ...address) error {
	return r.change(unix.RTM_NEWADDR, netlink.Create|netlink.Replace, addrs...)
}

func (r *rtnetlink) remove(addrs ...address) error {
	for some := range slices.Chunk(addrs, answersInARow) {
		msgs, err := requests(unix.RTM_DELADDR, netlink.Acknowledge, some)
		if err != nil {
			return err
		}
		if err := r.do(func() error {
			if _, err := r.conn.SendMessages(msgs); err != nil {
				return err
			}
			for range msgs {
				_, err := r.conn.Receive()
				if err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) && !errors.Is(err, unix.ENODEV) {
					return err
				}
			}
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// change asks for the same about each address. The kernel answers what fails in any
// case, and the last when all is done.
func (r *rtnetlink) change(typ netlink.HeaderType, flags netlink.HeaderFlags, addrs ...address) error {
	msgs, err := requests(typ, flags, addrs)
	if err != nil || len(msgs) == 0 {
		return err
	}
	msgs[len(msgs)-1].Header.Flags |= netlink.Acknowledge
	return r.do(func() error {
		if _, err := r.conn.SendMessages(msgs); err != nil {
			return err
		}
		_, err := r.conn.Receive()
		return err
	})
}

// requests makes a message about each address.
func requests(typ netlink.HeaderType, flags netlink.HeaderFlags, addrs []address) ([]netlink.Message, error) {
	msgs := make([]netlink.Message, len(addrs))
	for i, a := range addrs {
		data, err := encodeAddress(a)
		if err != nil {
			return nil, err
		}
		msgs[i] = request(typ, flags, data)
	}
	return msgs, nil
}

func request(typ netlink.HeaderType, flags netlink.HeaderFlags, data []byte) netlink.Message {
	return netlink.Message{Header: netlink.Header{Type: typ, Flags: netlink.Request | flags}, Data: data}
}

func (r *rtnetlink) execute(m netlink.Message) (replies []netlink.Message, err error) {
	err = r.do(func() error {
		replies, err = r.conn.Execute(m)
		return err
	})
	return replies, err
}

// do calls f with conn open. f must bear to be called twice: without an answer,
// perhaps because this process stood still meanwhile, it is.
func (r *rtnetlink) do(f func() error) error {
	err := r.try(f)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = r.try(f)
	}
	if answer := (*netlink.OpError)(nil); errors.As(err, &answer) && answer.Message != "" {
		return fmt.Errorf("%w (%s)", answer.Err, answer.Message)
	}
	return err
}

func (r *rtnetlink) try(f func() error) error {
	if r.conn == nil {
		conn, err := netlink.Dial(unix.NETLINK_ROUTE, &netlink.Config{NetNS: r.netns})
		if err != nil {
			return fmt.Errorf("open netlink socket: %w", err)
		}
		_ = conn.SetOption(netlink.ExtendedAcknowledge, true) // says more in errors, where the kernel can
		r.conn = conn
	}
	_ = r.conn.SetDeadline(time.Now().Add(answerTimeout)) // if that fails, so does f
	err := f()
	if err != nil {
		r.close() // more answers may be on their way, and are not to be taken for the next one's
	}
	return err
}

func (r *rtnetlink) close() {
	if r.conn != nil {
		_ = r.conn.Close()
		r.conn = nil
	}
}

// subscription is a watcher of links and addresses in one socket, so that their changes arrive in order.
type subscription struct{ conn *netlink.Conn }

func (r *rtnetlink) watch() (watcher, error) {
	conn, err := r.subscribe()
	if err != nil {
		return nil, err
	}
	return subscription{conn}, nil
}

func (r *rtnetlink) subscribe() (*netlink.Conn, error) {
	conn, err := netlink.Dial(unix.NETLINK_ROUTE, &netlink.Config{
		NetNS:  r.netns,
		Groups: unix.RTMGRP_LINK | unix.RTMGRP_IPV4_IFADDR | unix.RTMGRP_IPV6_IFADDR,
	})
	if err != nil {
		return nil, fmt.Errorf("open netlink socket: %w", err)
	}
	filter, err := except(r.mark)
	if err := errors.Join(err, conn.SetReadBuffer(r.buffer), conn.SetBPF(filter)); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("set up netlink socket: %w", err)
	}
	return conn, nil
}

// except is a socket filter that drops RTM_NEWADDR with a mark: each refresh causes
// one, which would cost far more than the refresh itself.
func except(mark uint8) ([]bpf.RawInstruction, error) {
	const (
		typeOffset  = 4 // in struct nlmsghdr, in host byte order; BPF loads in network byte order
		attrsOffset = unix.SizeofNlMsghdr + unix.SizeofIfAddrmsg
	)
	newAddr := binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, unix.RTM_NEWADDR))
	return bpf.Assemble([]bpf.Instruction{
		bpf.LoadAbsolute{Off: typeOffset, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: uint32(newAddr), SkipTrue: 7},
		bpf.LoadConstant{Dst: bpf.RegA, Val: attrsOffset},
		bpf.LoadConstant{Dst: bpf.RegX, Val: attrProto},
		bpf.LoadExtension{Num: bpf.ExtNetlinkAttr}, // the attribute's offset, or 0
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: 0, SkipTrue: 3},
		bpf.TAX{},
		bpf.LoadIndirect{Off: unix.SizeofNlAttr, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(mark), SkipTrue: 1},
		bpf.RetConstant{Val: math.MaxUint32},
		bpf.RetConstant{Val: 0},
	})
}

func (s subscription) close() { _ = s.conn.Close() }

func (s subscription) next() ([]event, error) {
	msgs, err := s.conn.Receive()
	if err != nil {
		return nil, err
	}
	events := make([]event, 0, len(msgs))
	for _, m := range msgs {
		switch m.Header.Type {
		case unix.RTM_NEWLINK, unix.RTM_DELLINK:
			l, ok, err := decodeLink(m.Data)
			if err != nil {
				return nil, err
			}
			if ok {
				events = append(events, event{gone: m.Header.Type == unix.RTM_DELLINK, link: &l})
			}
		case unix.RTM_NEWADDR, unix.RTM_DELADDR:
			a, ok, err := decodeAddress(m.Data)
			if err != nil {
				return nil, err
			}
			if ok {
				events = append(events, event{gone: m.Header.Type == unix.RTM_DELADDR, address: &a})
			}
		}
	}
	return events, nil
}
