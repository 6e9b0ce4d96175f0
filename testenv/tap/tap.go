// Package tap listens to the frames on an interface of a lab's node, those that
// the node sends too, each with the time at which the kernel had it.
package tap

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/testenv/lab"
)

// buffer is how much the kernel keeps of what was not yet read, in bytes: a
// second of a flood, for a machine that is busy.
const buffer = 64 << 20

// Frame is an Ethernet frame. Its data is good until the next one comes.
type Frame struct {
	// At is when the kernel sent or received it, by the wall clock.
	At time.Time
	// Data begins with the Ethernet header.
	Data []byte
	// Outgoing is whether the node sent it.
	Outgoing bool
}

// Tap is an open ear.
type Tap struct {
	file *os.File
	done chan struct{}
	err  error // of the reading, once done
}

// Open listens on the node's interface to the frames that the filter lets pass,
// and hands them one by one to take until Close.
func Open(n *lab.Node, link string, filter []bpf.Instruction, take func(Frame)) (*Tap, error) {
	program, err := bpf.Assemble(filter)
	if err != nil {
		return nil, fmt.Errorf("tap filter: %w", err)
	}
	var fd int
	err = n.Do(func() (err error) {
		// Protocol 0: it hears nothing before the filter is in place.
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			return err
		}
		if err := prepare(fd, link, program); err != nil {
			return errors.Join(err, unix.Close(fd))
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("tap %s of %s: %w", link, n.Name(), err)
	}
	t := &Tap{file: os.NewFile(uintptr(fd), link+" of "+n.Name()), done: make(chan struct{})}
	raw, err := t.file.SyscallConn()
	if err != nil {
		return nil, errors.Join(err, t.file.Close())
	}
	go func() {
		defer close(t.done)
		t.err = read(raw.Read, take)
	}()
	return t, nil
}

// prepare makes the socket deaf to all but what the filter lets pass, asks for
// time stamps, and only then opens its ears.
func prepare(fd int, link string, program []bpf.RawInstruction) error {
	dev, err := net.InterfaceByName(link)
	if err != nil {
		return err
	}
	filter := make([]unix.SockFilter, len(program))
	for i, ins := range program {
		filter[i] = unix.SockFilter{Code: ins.Op, Jt: ins.Jt, Jf: ins.Jf, K: ins.K}
	}
	return errors.Join(
		unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}),
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1),
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, buffer),
		unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: htons(unix.ETH_P_ALL), Ifindex: dev.Index}),
	)
}

func htons(v uint16) uint16 { return v<<8 | v>>8 }

// read takes frames until the socket is closed, which is no error.
func read(wait func(func(fd uintptr) bool) error, take func(Frame)) error {
	data, control := make([]byte, 1<<16), make([]byte, 256)
	for {
		var n, controlLen int
		var from unix.Sockaddr
		var got error
		err := wait(func(fd uintptr) bool {
			n, controlLen, _, from, got = unix.Recvmsg(int(fd), data, control, 0)
			return got != unix.EAGAIN
		})
		switch {
		case err != nil:
			return nil
		case got == unix.EINTR, got == unix.ENETDOWN: // the latter once, when the link goes down
			continue
		case got != nil:
			return got
		}
		ll, ok := from.(*unix.SockaddrLinklayer)
		take(Frame{At: stamp(control[:controlLen]), Data: data[:n], Outgoing: ok && ll.Pkttype == unix.PACKET_OUTGOING})
	}
}

// stamp is the kernel's time of a frame, or now if it has none.
func stamp(control []byte) time.Time {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return time.Now()
	}
	for _, m := range messages {
		if m.Header.Level == unix.SOL_SOCKET && m.Header.Type == unix.SCM_TIMESTAMPNS && len(m.Data) >= 16 {
			return time.Unix(int64(binary.NativeEndian.Uint64(m.Data)), int64(binary.NativeEndian.Uint64(m.Data[8:])))
		}
	}
	return time.Now()
}

// Close stops listening and returns when the last frame is taken. It is an
// error if frames were lost: what was heard is not all there was.
func (t *Tap) Close() error {
	lost, err := t.lost()
	err = errors.Join(err, t.file.Close())
	<-t.done
	if lost > 0 {
		err = errors.Join(err, fmt.Errorf("tap of %s: %d frames were lost", t.file.Name(), lost))
	}
	return errors.Join(err, t.err)
}

func (t *Tap) lost() (n uint32, err error) {
	raw, err := t.file.SyscallConn()
	if err != nil {
		return 0, err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		var s *unix.TpacketStats
		if s, failed = unix.GetsockoptTpacketStats(int(fd), unix.SOL_PACKET, unix.PACKET_STATISTICS); failed == nil {
			n = s.Drops
		}
	})
	return n, errors.Join(err, failed)
}
