package rtnetlink

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

// Conn asks the kernel, for one caller at a time. It opens its socket when it needs it.
type Conn struct {
	// NetNS is a file descriptor of a network namespace; 0 is that of the calling thread.
	NetNS int

	conn *netlink.Conn
}

const (
	// Pause is how long a subscriber waits before it subscribes again: a flood of changes
	// must not become a flood of reading everything.
	Pause = 100 * time.Millisecond

	// The kernel answers within the system call, unless it lost the answer.
	answerTimeout = 2 * time.Second

	dumpAttempts = 8

	answersInARow = 64 // fit every socket's receive buffer
)

// Dump reads every link and address of the host.
func (r *Conn) Dump() ([]Link, []Address, error) {
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

// dump reads a table, again if it changes meanwhile, without entries for which decode returns false.
func dump[T any](r *Conn, typ netlink.HeaderType, filter []byte, decode func([]byte) (T, bool, error)) ([]T, error) {
	for range dumpAttempts {
		out, err := dumpOnce(r, typ, filter, decode)
		if !errors.Is(err, errInterrupted) {
			return out, err
		}
	}
	return nil, errInterrupted
}

func dumpOnce[T any](r *Conn, typ netlink.HeaderType, filter []byte, decode func([]byte) (T, bool, error)) ([]T, error) {
	replies, err := r.execute(typ, netlink.Dump, filter)
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

// Link reads one link; if there is none the error is unix.ENODEV.
func (r *Conn) Link(index int) (Link, error) {
	filter := make([]byte, unix.SizeofIfInfomsg)
	binary.NativeEndian.PutUint32(filter[4:], uint32(index))
	replies, err := r.execute(unix.RTM_GETLINK, 0, filter)
	if err != nil {
		return Link{}, err
	}
	if len(replies) != 1 {
		return Link{}, fmt.Errorf("read link %d: %d answers", index, len(replies))
	}
	l, ok, err := decodeLink(replies[0].Data)
	if err == nil && !ok {
		err = fmt.Errorf("read link %d: answer is about something else", index)
	}
	return l, err
}

// Add creates an address; if the link has it the error is unix.EEXIST. The host forgets which neighbour had
// it: once the address is removed, packets that still come would be forwarded to that one, and might come back.
func (r *Conn) Add(a Address) error {
	if err := r.change(unix.RTM_NEWADDR, netlink.Create|netlink.Excl, a); err != nil {
		return err
	}
	neighbour, err := encodeNeighbour(a)
	if err != nil {
		return err
	}
	if _, err := r.execute(unix.RTM_DELNEIGH, netlink.Acknowledge, neighbour); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("forget the neighbour %s: %w", a.IP, err)
	}
	return nil
}

// Refresh starts lifetimes anew, and creates what is not there. It is cheaper for
// many at once, but the error does not say which of them failed.
func (r *Conn) Refresh(addrs ...Address) error {
	return r.change(unix.RTM_NEWADDR, netlink.Create|netlink.Replace, addrs...)
}

// Remove deletes addresses; one that is not there is no error. It ends at the first
// error, which does not say which of them failed.
func (r *Conn) Remove(addrs ...Address) error {
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

// change makes the same request for each address. The kernel answers every one that
// fails, and the last in any case.
func (r *Conn) change(typ netlink.HeaderType, flags netlink.HeaderFlags, addrs ...Address) error {
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
func requests(typ netlink.HeaderType, flags netlink.HeaderFlags, addrs []Address) ([]netlink.Message, error) {
	msgs := make([]netlink.Message, len(addrs))
	for i, a := range addrs {
		data, err := EncodeAddress(a)
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

// execute makes a request of the kernel and returns its answers.
func (r *Conn) execute(typ netlink.HeaderType, flags netlink.HeaderFlags, data []byte) (replies []netlink.Message, err error) {
	err = r.do(func() error {
		replies, err = r.conn.Execute(request(typ, flags, data))
		return err
	})
	return replies, err
}

// do calls f with conn open, and again if there was no answer, perhaps because this
// process stood still meanwhile.
func (r *Conn) do(f func() error) error {
	err := r.try(f)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = r.try(f)
	}
	if answer := (*netlink.OpError)(nil); errors.As(err, &answer) && answer.Message != "" {
		return fmt.Errorf("%w (%s)", answer.Err, answer.Message)
	}
	return err
}

func (r *Conn) try(f func() error) error {
	if r.conn == nil {
		conn, err := netlink.Dial(unix.NETLINK_ROUTE, &netlink.Config{NetNS: r.NetNS})
		if err != nil {
			return fmt.Errorf("open netlink socket: %w", err)
		}
		_ = conn.SetOption(netlink.ExtendedAcknowledge, true) // says more in errors, where the kernel can
		r.conn = conn
	}
	_ = r.conn.SetDeadline(time.Now().Add(answerTimeout)) // if that fails, so does f
	err := f()
	if err != nil {
		r.Close() // more answers may be on their way, which the next call would take for its own
	}
	return err
}

// Close frees what is held between calls; another call may follow.
func (r *Conn) Close() {
	if r.conn != nil {
		_ = r.conn.Close()
		r.conn = nil
	}
}

// except is a socket filter that drops RTM_NEWADDR with a mark: each refresh causes
// one, which would cost far more than the refresh itself. It drops routes that are not
// default ones: a router's daemon may change a million of them.
func except(mark uint8) ([]bpf.RawInstruction, error) {
	const (
		typeOffset   = 4 // in struct nlmsghdr, in host byte order; BPF loads in network byte order
		lengthOffset = unix.SizeofNlMsghdr + lengthInRoute
		attrsOffset  = unix.SizeofNlMsghdr + unix.SizeofIfAddrmsg
	)
	loaded := func(typ uint16) uint32 {
		return uint32(binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, typ)))
	}
	return bpf.Assemble([]bpf.Instruction{
		bpf.LoadAbsolute{Off: typeOffset, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: loaded(unix.RTM_NEWADDR), SkipTrue: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: loaded(unix.RTM_NEWROUTE), SkipTrue: 1},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: loaded(unix.RTM_DELROUTE), SkipTrue: 9},
		bpf.LoadAbsolute{Off: lengthOffset, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: 0, SkipTrue: 7, SkipFalse: 8},
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
