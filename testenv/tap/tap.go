// Package tap listens to the frames on an interface of a lab's node, those that
// the node sends too, each with the time at which the kernel had it.
package tap

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"

	"github.com/mdlayher/packet"
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
	conn *packet.Conn
	name string
	done chan struct{}
	err  error // of the reading, once done
}

// Open listens on the node's interface, or on all of them if link is empty, to the frames that the filter lets pass,
// and hands them one by one to take until Close.
func Open(n *lab.Node, link string, filter []bpf.Instruction, take func(Frame)) (*Tap, error) {
	t := &Tap{name: link + " of " + n.Name(), done: make(chan struct{})}
	program, err := bpf.Assemble(filter)
	if err != nil {
		return nil, fmt.Errorf("tap filter: %w", err)
	}
	err = n.Do(func() (err error) {
		dev := new(net.Interface)
		if link != "" {
			if dev, err = net.InterfaceByName(link); err != nil {
				return err
			}
		}
		t.conn, err = packet.Listen(dev, packet.Raw, unix.ETH_P_ALL, &packet.Config{Filter: program})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("tap %s: %w", t.name, err)
	}
	raw, err := t.conn.SyscallConn()
	if err == nil {
		err = prepare(raw)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("tap %s: %w", t.name, err), t.conn.Close())
	}
	go func() {
		defer close(t.done)
		t.err = read(raw.Read, take)
	}()
	return t, nil
}

// prepare asks for time stamps, and for room for what was not yet read.
func prepare(raw syscall.RawConn) error {
	var stamps, room error
	err := raw.Control(func(fd uintptr) {
		stamps = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1)
		room = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, buffer)
	})
	return errors.Join(err, stamps, room)
}

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
	stats, err := t.conn.Stats()
	if err == nil && stats.Drops > 0 {
		err = fmt.Errorf("tap of %s: %d frames were lost", t.name, stats.Drops)
	}
	err = errors.Join(err, t.conn.Close())
	<-t.done
	return errors.Join(err, t.err)
}
