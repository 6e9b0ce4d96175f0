package arp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"

	"github.com/mdlayher/ethernet"
	"github.com/mdlayher/packet"
	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/netutil/link"
	"github.com/herald-vip/herald/netutil/rtnetlink"
)

// network is the host's links and packet sockets.
type network interface {
	// watchLinks is link.Watch.
	watchLinks(ctx context.Context, changed func(map[string]link.Link)) error
	// permitted returns the error of opening any wire, such as a missing right.
	permitted() error
	// open opens a wire that receives statements about the watched addresses.
	open(l link.Link, f family, watched []netip.Addr) (wire, error)
}

// wire is a socket for the frames of one family on one link. Only the goroutine that receives closes it.
type wire interface {
	// send sends a frame without waiting.
	send(frame []byte) error
	// receive waits for the next frame. After an error the wire cannot be used.
	receive(b []byte) (int, error)
	// watch changes the watched addresses.
	watch(watched []netip.Addr) error
	// interrupt ends receive.
	interrupt()
	close()
}

// host is the running host.
type host struct {
	watcher *rtnetlink.Watcher
	// inside calls a function on a thread in the host's network namespace.
	inside func(func() error) error
}

func (h host) watchLinks(ctx context.Context, changed func(map[string]link.Link)) error {
	return h.inside(func() error { return link.Watch(ctx, h.watcher, changed) })
}

// socket is a packet socket bound to one EtherType, so that it never receives the link's other traffic. It receives
// frames as the network stack does: without VLAN tags, and on the bridge or bond rather than its ports.
type socket struct {
	family family
	conn   *packet.Conn
	raw    syscall.RawConn
}

func (h host) permitted() error {
	return h.inside(func() error {
		socket, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return explainSocket(err)
		}
		return unix.Close(socket)
	})
}

// explainSocket adds the cure to an error.
func explainSocket(err error) error {
	err = fmt.Errorf("open packet socket: %w", err)
	if errors.Is(err, unix.EPERM) {
		return fmt.Errorf("%w: Herald needs CAP_NET_RAW", err)
	}
	return err
}

func (h host) open(l link.Link, f family, watched []netip.Addr) (wire, error) {
	program, err := filter(f, watched)
	if err != nil {
		return nil, err
	}
	protocol := ethernet.EtherTypeARP
	if f == inet6 {
		protocol = ethernet.EtherTypeIPv6
	}
	s := &socket{family: f}
	err = h.inside(func() error {
		s.conn, err = packet.Listen(&net.Interface{Index: l.Index, HardwareAddr: l.MAC}, packet.Raw, int(protocol), &packet.Config{Filter: program})
		return err
	})
	if err != nil {
		return nil, explainSocket(err)
	}
	if s.raw, err = s.conn.SyscallConn(); err != nil {
		s.close()
		return nil, explainSocket(err)
	}
	return s, nil
}

// send avoids packet.Conn.WriteTo, which waits while the socket's buffer is full.
func (s *socket) send(frame []byte) error {
	var sendErr error
	err := s.raw.Write(func(fd uintptr) bool {
		_, sendErr = unix.Write(int(fd), frame)
		return true
	})
	return cmp.Or(err, sendErr)
}

func (s *socket) receive(b []byte) (int, error) {
	n, _, err := s.conn.ReadFrom(b)
	return n, err
}

func (s *socket) watch(watched []netip.Addr) error {
	program, err := filter(s.family, watched)
	if err != nil {
		return err
	}
	if err := s.conn.SetBPF(program); err != nil {
		return fmt.Errorf("change packet filter: %w", err)
	}
	return nil
}

func (s *socket) interrupt() { _ = s.conn.SetReadDeadline(time.Unix(0, 0)) }

// close may take long: the kernel waits until no CPU uses the socket.
func (s *socket) close() { _ = s.conn.Close() }
