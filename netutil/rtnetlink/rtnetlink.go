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

// Conn makes requests of the kernel, for one caller at a time. It opens its socket when needed.
type Conn struct {
	// NetNS is a file descriptor of a network namespace; 0 means the calling thread's.
	NetNS int

	conn *netlink.Conn
}

const (
	// Pause is the wait before subscribing again. It bounds the cost of reading everything during a flood of changes.
	Pause = 100 * time.Millisecond

	// answerTimeout bounds a call. The kernel answers within the system call, unless it lost the answer.
	answerTimeout = 2 * time.Second

	dumpAttempts = 8

	answersInARow = 64 // fits every socket's receive buffer
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

// errInterrupted means NLM_F_DUMP_INTR: the table changed during the reading, and entries may be missing.
var errInterrupted = errors.New("the table changed during each attempt to read it")

// dump reads a table, and reads it again if it changed meanwhile. It skips entries that decode rejects with false.
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

// Link reads one link. The error is unix.ENODEV if it does not exist.
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
		err = fmt.Errorf("read link %d: unexpected answer", index)
	}
	return l, err
}

// Add creates an address. The error is unix.EEXIST if the link has it. Add also deletes the neighbour entry of a
// previous holder. Otherwise, once the address is removed, the host would forward late packets to that neighbour, which
// might send them back.
func (r *Conn) Add(a Address) error {
	if err := r.change(unix.RTM_NEWADDR, netlink.Create|netlink.Excl, a); err != nil {
		return err
	}
	neighbour, err := encodeNeighbour(a)
	if err != nil {
		return err
	}
	if _, err := r.execute(unix.RTM_DELNEIGH, netlink.Acknowledge, neighbour); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("delete the neighbour entry of %s: %w", a.IP, err)
	}
	return nil
}

// Refresh restarts lifetimes, and creates missing addresses. Many at once are cheaper, but the error does
// not name the address that failed.
func (r *Conn) Refresh(addrs ...Address) error {
	return r.change(unix.RTM_NEWADDR, netlink.Create|netlink.Replace, addrs...)
}

// Remove deletes addresses. A missing address is no error. Remove stops at the first error, which
// does not name the address that failed.
func (r *Conn) Remove(addrs ...Address) error {
	for some := range slices.Chunk(addrs, answersInARow) {
		msgs, err := requests(unix.RTM_DELADDR, netlink.Acknowledge, some)
		if err != nil {
			return err
		}
		missing := func(err error) bool { return errors.Is(err, unix.EADDRNOTAVAIL) || errors.Is(err, unix.ENODEV) }
		if err := r.send(msgs, len(msgs), missing); err != nil {
			return err
		}
	}
	return nil
}

// change sends the same request for each address. The kernel answers each failed request, and always the last one.
func (r *Conn) change(typ netlink.HeaderType, flags netlink.HeaderFlags, addrs ...Address) error {
	msgs, err := requests(typ, flags, addrs)
	if err != nil || len(msgs) == 0 {
		return err
	}
	msgs[len(msgs)-1].Header.Flags |= netlink.Acknowledge
	return r.send(msgs, 1, func(error) bool { return false })
}

// send sends messages and receives their answers, up to the first error that does not pass.
func (r *Conn) send(msgs []netlink.Message, answers int, pass func(error) bool) error {
	return r.do(func() error {
		if _, err := r.conn.SendMessages(msgs); err != nil {
			return err
		}
		for range answers {
			if _, err := r.conn.Receive(); err != nil && !pass(err) {
				return err
			}
		}
		return nil
	})
}

// requests returns a message for each address.
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

// execute sends a request to the kernel and returns its answers.
func (r *Conn) execute(typ netlink.HeaderType, flags netlink.HeaderFlags, data []byte) (replies []netlink.Message, err error) {
	err = r.do(func() error {
		replies, err = r.conn.Execute(request(typ, flags, data))
		return err
	})
	return replies, err
}

// do calls f with conn open, and a second time after a timeout: this process may have been stopped meanwhile.
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
		_ = conn.SetOption(netlink.ExtendedAcknowledge, true) // errors then have a text, if the kernel supports it
		r.conn = conn
	}
	_ = r.conn.SetDeadline(time.Now().Add(answerTimeout)) // if this fails, so does f
	err := f()
	if err != nil {
		r.Close() // the next call must not receive late answers
	}
	return err
}

// Close closes the socket; the next call opens it again.
func (r *Conn) Close() {
	if r.conn != nil {
		_ = r.conn.Close()
		r.conn = nil
	}
}

// except returns a socket filter that drops RTM_NEWADDR with a mark: each refresh causes such a message,
// and reading it would cost far more than the refresh. It also drops all routes except default
// routes: a routing daemon may change a million of them.
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
