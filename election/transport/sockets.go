package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/herald-vip/herald/internal/wake"
	"golang.org/x/sys/unix"
)

const (
	// maxPacket is the largest payload of a UDP packet that is read: what IPv6
	// carries over every link in one piece is less (RFC 8200 section 5), and
	// memberlist is told to send no more than that.
	maxPacket = 2048
	// socketBuffer is asked for in each direction, in bytes: room for some
	// hundred milliseconds of a flood while the process waits for a processor,
	// and for what waits for a dead neighbour to be resolved.
	socketBuffer = 4 << 20
	// maxStreams is how many connections may be open at once. Members exchange
	// their lists over one for each other member now and then.
	maxStreams = 32
	// maxStream is how much is read from one connection, in bytes: a list of
	// all members there may be, with all they may tell of themselves.
	maxStream = 1 << 20
	// afterError is how long to wait after an error of a socket, which may last.
	afterError = 10 * time.Millisecond
)

// sockets is memberlist's Transport over UDP and TCP. It differs from the one
// that memberlist brings in that the admission decides, before memory is taken or
// anything is decrypted, whether what arrives is looked at, and in that
// connections are bounded and end with it.
type sockets struct {
	admission *Admission
	local     netip.AddrPort
	udp       *net.UDPConn
	tcp       *net.TCPListener
	packets   chan *memberlist.Packet
	streams   chan net.Conn
	ctx       context.Context // ends with Shutdown, and what is being dialled with it
	cancel    context.CancelFunc
	readers   sync.WaitGroup
	end       func() error // Shutdown, once

	mu   sync.Mutex
	open map[*stream]bool
}

var _ memberlist.NodeAwareTransport = (*sockets)(nil)

// Listen listens at this member's address, for those who are admitted.
// The address need not be there yet: nodes may start before their networks do.
func Listen(at netip.AddrPort, a *Admission) (memberlist.NodeAwareTransport, error) {
	ctx, cancel := context.WithCancel(context.Background())
	config := net.ListenConfig{Control: prepare}
	packets, err := config.ListenPacket(ctx, "udp", at.String())
	if err != nil {
		cancel()
		return nil, err
	}
	streams, err := config.Listen(ctx, "tcp", at.String())
	if err != nil {
		cancel()
		return nil, errors.Join(err, packets.Close())
	}
	s := &sockets{
		admission: a, local: at, udp: packets.(*net.UDPConn), tcp: streams.(*net.TCPListener),
		packets: make(chan *memberlist.Packet), streams: make(chan net.Conn),
		ctx: ctx, cancel: cancel, open: make(map[*stream]bool),
	}
	s.end = sync.OnceValue(s.shutdown)
	s.readers.Go(s.receive)
	s.readers.Go(s.accept)
	return s, nil
}

// prepare sets a socket up before it is bound. Buffers are as large as the
// kernel allows.
func prepare(network, _ string, conn syscall.RawConn) error {
	var err error
	ctlErr := conn.Control(func(fd uintptr) {
		if network == "udp6" || network == "tcp6" {
			err = unix.SetsockoptInt(int(fd), unix.SOL_IPV6, unix.IPV6_FREEBIND, 1)
		} else {
			err = unix.SetsockoptInt(int(fd), unix.SOL_IP, unix.IP_FREEBIND, 1)
		}
		if network == "udp4" || network == "udp6" {
			enlarge(int(fd), unix.SO_RCVBUFFORCE, unix.SO_RCVBUF)
			enlarge(int(fd), unix.SO_SNDBUFFORCE, unix.SO_SNDBUF)
		}
	})
	return errors.Join(ctlErr, err)
}

// enlarge sets a buffer's size, within the system's limit if it must be.
func enlarge(fd, force, option int) {
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, force, socketBuffer) != nil {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, option, socketBuffer) // a smaller one does, too
	}
}

func (s *sockets) receive() {
	buf := make([]byte, maxPacket)
	for {
		n, from, err := s.udp.ReadFromUDPAddrPort(buf)
		now := time.Now()
		if err != nil {
			if !wake.Pause(s.ctx, afterError) {
				return
			}
			continue
		}
		from = netip.AddrPortFrom(from.Addr().Unmap(), from.Port())
		if !s.admission.AdmitPacket(from) || n == 0 {
			continue
		}
		p := &memberlist.Packet{Buf: append([]byte(nil), buf[:n]...), From: net.UDPAddrFromAddrPort(from), Timestamp: now}
		select {
		case s.packets <- p:
		case <-s.ctx.Done():
			return
		}
	}
}

func (s *sockets) accept() {
	for {
		conn, err := s.tcp.AcceptTCP()
		if err != nil {
			if !wake.Pause(s.ctx, afterError) {
				return
			}
			continue
		}
		from := conn.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap()
		var kept *stream
		if ok, known := s.admission.admitStream(from); ok {
			kept = s.bound(conn, known)
		}
		if kept == nil {
			_ = conn.Close()
			continue
		}
		select {
		case s.streams <- kept:
		case <-s.ctx.Done():
			_ = kept.Close()
			return
		}
	}
}

// bound bounds a connection, or returns nil if there are too many or all is over.
// Strangers get fewer, so that the others keep theirs.
func (s *sockets) bound(conn net.Conn, known bool) *stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	most := maxStreams
	if !known {
		most = maxStreams / 2
	}
	if len(s.open) >= most || s.ctx.Err() != nil {
		return nil
	}
	kept := &stream{Conn: conn, left: maxStream, sockets: s}
	s.open[kept] = true
	return kept
}

// FinalAdvertiseAddr says where this member is, which is where the others'
// configuration has it. It serves memberlist.Transport.
func (s *sockets) FinalAdvertiseAddr(string, int) (net.IP, int, error) {
	return s.local.Addr().AsSlice(), int(s.local.Port()), nil
}

// WriteTo sends a packet to another member. What is for anybody else is lost, as
// if on the way: nobody is to be reached by a ping that asks for an answer to
// somewhere else, and who is a member no more is to be found dead. It serves
// memberlist.Transport.
func (s *sockets) WriteTo(b []byte, addr string) (time.Time, error) {
	dst, err := netip.ParseAddrPort(addr)
	if err != nil || !s.admission.Knows(dst) {
		return time.Now(), nil
	}
	_, err = s.udp.WriteToUDPAddrPort(b, dst)
	return time.Now(), err
}

// WriteToAddress is WriteTo. It serves memberlist.NodeAwareTransport.
func (s *sockets) WriteToAddress(b []byte, dst memberlist.Address) (time.Time, error) {
	return s.WriteTo(b, dst.Addr)
}

// PacketCh serves memberlist.Transport.
func (s *sockets) PacketCh() <-chan *memberlist.Packet { return s.packets }

// StreamCh serves memberlist.Transport.
func (s *sockets) StreamCh() <-chan net.Conn { return s.streams }

// DialTimeout connects to another member, from the address that it knows this one
// by. It serves memberlist.Transport.
func (s *sockets) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	if dst, err := netip.ParseAddrPort(addr); err != nil || !s.admission.Knows(dst) {
		return nil, fmt.Errorf("connect to %s: no member is there", addr)
	}
	dialer := net.Dialer{Timeout: timeout, LocalAddr: &net.TCPAddr{IP: s.local.Addr().AsSlice()}}
	conn, err := dialer.DialContext(s.ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	kept := s.bound(conn, true)
	if kept == nil {
		return nil, errors.Join(fmt.Errorf("connect to %s: too many connections", addr), conn.Close())
	}
	return kept, nil
}

// DialAddressTimeout is DialTimeout. It serves memberlist.NodeAwareTransport.
func (s *sockets) DialAddressTimeout(dst memberlist.Address, timeout time.Duration) (net.Conn, error) {
	return s.DialTimeout(dst.Addr, timeout)
}

// Shutdown closes everything and returns when nothing is left running. It may
// be called again. It serves memberlist.Transport.
func (s *sockets) Shutdown() error { return s.end() }

func (s *sockets) shutdown() error {
	s.cancel()
	err := errors.Join(s.udp.Close(), s.tcp.Close())
	s.readers.Wait()
	s.mu.Lock()
	open := slices.Collect(maps.Keys(s.open))
	s.mu.Unlock()
	for _, conn := range open {
		err = errors.Join(err, conn.Close())
	}
	return err
}

// stream is a connection that says no more than maxStream bytes.
type stream struct {
	net.Conn
	sockets *sockets
	left    int // read by one goroutine at a time
	once    sync.Once
}

// Read ends a connection that says too much.
func (c *stream) Read(b []byte) (int, error) {
	if c.left <= 0 {
		return 0, io.ErrUnexpectedEOF
	}
	n, err := c.Conn.Read(b[:min(len(b), c.left)])
	c.left -= n
	return n, err
}

// Close makes room for another connection. It may be called again.
func (c *stream) Close() (err error) {
	c.once.Do(func() {
		c.sockets.mu.Lock()
		delete(c.sockets.open, c)
		c.sockets.mu.Unlock()
		err = c.Conn.Close()
	})
	return err
}
