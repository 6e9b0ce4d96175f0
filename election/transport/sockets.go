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
	// maxPacket is the maximum UDP payload read, in bytes. It exceeds the minimum MTU of IPv6 (RFC 8200 section 5),
	// which limits memberlist's packets.
	maxPacket = 2048
	// socketBuffer is the requested buffer size in bytes per direction. It holds some hundred milliseconds of a flood
	// while the process waits for a CPU, and packets that wait for neighbour resolution.
	socketBuffer = 4 << 20
	// maxStreams is the maximum number of open connections. Members exchange lists over one connection per other member
	// now and then.
	maxStreams = 32
	// maxStream is the maximum number of bytes read from a connection: a list of the maximum number of members with
	// full descriptions.
	maxStream = 1 << 20
	// afterError is the pause after a socket error, which may persist.
	afterError = 10 * time.Millisecond
)

// sockets implements memberlist.Transport over UDP and TCP. Unlike memberlist's own, it asks the admission before it
// allocates memory or decrypts, limits connections, and closes them on Shutdown.
type sockets struct {
	admission *Admission
	local     netip.AddrPort
	udp       *net.UDPConn
	tcp       *net.TCPListener
	packets   chan *memberlist.Packet
	streams   chan net.Conn
	ctx       context.Context // ends with Shutdown and cancels dialling
	cancel    context.CancelFunc
	readers   sync.WaitGroup
	end       func() error // runs shutdown once

	mu   sync.Mutex
	open map[*stream]bool
}

// Listen listens at this member's address for admitted members. The address need not exist yet, because nodes may start
// before their networks.
func Listen(at netip.AddrPort, a *Admission) (memberlist.Transport, error) {
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

// prepare configures a socket before it is bound, with buffers as large as the kernel allows.
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

// enlarge sets a buffer's size, limited by the system if necessary.
func enlarge(fd, force, option int) {
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, force, socketBuffer) != nil {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, option, socketBuffer) // a smaller one is sufficient
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

// bound wraps a connection with limits. It returns nil if too many are open or after Shutdown. Unknown addresses get
// half of the slots, so that members keep theirs.
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

// FinalAdvertiseAddr returns this member's configured address. It implements memberlist.Transport.
func (s *sockets) FinalAdvertiseAddr(string, int) (net.IP, int, error) {
	return s.local.Addr().AsSlice(), int(s.local.Port()), nil
}

// WriteTo sends a packet to another member. It silently drops packets to other addresses: an indirect ping must not
// reach third parties, and a former member must be detected as dead. It implements memberlist.Transport.
func (s *sockets) WriteTo(b []byte, addr string) (time.Time, error) {
	dst, err := netip.ParseAddrPort(addr)
	if err != nil || !s.admission.Knows(dst) {
		return time.Now(), nil
	}
	_, err = s.udp.WriteToUDPAddrPort(b, dst)
	return time.Now(), err
}

// PacketCh implements memberlist.Transport.
func (s *sockets) PacketCh() <-chan *memberlist.Packet { return s.packets }

// StreamCh implements memberlist.Transport.
func (s *sockets) StreamCh() <-chan net.Conn { return s.streams }

// DialTimeout connects to another member from this member's known address. It implements memberlist.Transport.
func (s *sockets) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	if dst, err := netip.ParseAddrPort(addr); err != nil || !s.admission.Knows(dst) {
		return nil, fmt.Errorf("connect to %s: not the address of a member", addr)
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

// Shutdown closes all sockets and returns when all goroutines have ended. It is idempotent. It implements
// memberlist.Transport.
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

// stream is a connection that delivers at most maxStream bytes.
type stream struct {
	net.Conn
	sockets *sockets
	left    int // used by one goroutine at a time
	once    sync.Once
}

// Read fails after maxStream bytes.
func (c *stream) Read(b []byte) (int, error) {
	if c.left <= 0 {
		return 0, io.ErrUnexpectedEOF
	}
	n, err := c.Conn.Read(b[:min(len(b), c.left)])
	c.left -= n
	return n, err
}

// Close closes the connection and frees its slot. It is idempotent.
func (c *stream) Close() (err error) {
	c.once.Do(func() {
		c.sockets.mu.Lock()
		delete(c.sockets.open, c)
		c.sockets.mu.Unlock()
		err = c.Conn.Close()
	})
	return err
}
