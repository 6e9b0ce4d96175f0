// Package tap captures the frames on an interface of a lab's node, incoming and
// outgoing, each with the kernel's time stamp.
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

// buffer is the size of the kernel's buffer for unread frames, in bytes: a second of a
// flood, for a busy machine.
const buffer = 64 << 20

// Frame is an Ethernet frame. Its data is valid until the next one comes.
type Frame struct {
	// At is when the kernel sent or received it, by the wall clock.
	At time.Time
	// Data begins with the Ethernet header.
	Data []byte
	// Outgoing reports whether the node sent it.
	Outgoing bool
}

// Tap is a running capture.
type Tap struct {
	conn *packet.Conn
	name string
	done chan struct{}
	err  error // of the reading, once done
}

// Open captures the frames that the filter lets pass on the node's interface, or on
// all of them if link is empty. It calls take for each frame until Close.
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

// prepare enables time stamps, and sets the size of the buffer.
func prepare(raw syscall.RawConn) error {
	var stamps, room error
	err := raw.Control(func(fd uintptr) {
		stamps = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1)
		room = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, buffer)
	})
	return errors.Join(err, stamps, room)
}

// read reads frames until the socket is closed, which is no error.
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

// stamp returns the kernel's time of a frame, or now if it has none.
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

// Close ends the capture and returns when the last frame is taken. It returns an error
// if frames were lost.
func (t *Tap) Close() error {
	stats, err := t.conn.Stats()
	if err == nil && stats.Drops > 0 {
		err = fmt.Errorf("tap of %s: %d frames were lost", t.name, stats.Drops)
	}
	err = errors.Join(err, t.conn.Close())
	<-t.done
	return errors.Join(err, t.err)
}
