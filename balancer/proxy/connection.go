package proxy

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/balancer"
)

// connection is a client's connection that has a backend, which may not be connected yet.
type connection struct {
	client  *net.TCPConn
	backend *net.TCPConn // nil until it is connected
	cancel  func()       // cancels the dial
	ended   bool
}

// end resets a connection. If it is still being dialled it goes to another backend. The mutex of the data plane is held.
func (c *connection) end() {
	c.ended = true
	c.cancel()
	if c.backend != nil {
		reset(c.client)
		reset(c.backend)
	}
}

// carry connects a client to a backend, and copies bytes until both have closed.
func (p *DataPlane) carry(l *listener, client *net.TCPConn) {
	defer func() { _ = client.Close() }()
	source := client.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap()
	dialer := net.Dialer{Timeout: p.options.DialTimeout, KeepAliveConfig: alive}
	dialer.SetMultipathTCP(false)

	tried := make(map[string]bool)
	for {
		ctx, cancel := context.WithCancel(context.Background())
		c := &connection{client: client, cancel: cancel}
		where, ok := p.assign(l, c, source, tried)
		if !ok {
			cancel()
			reset(client) // like a closed port
			return
		}
		conn, err := dialer.DialContext(ctx, "tcp", where.backend.String())
		cancel()
		if err != nil {
			p.remove(where, c)
			p.options.Log.Debug("cannot connect to backend", "balancer", where.service, "backend", where.backend, "err", err)
			continue
		}
		backend := conn.(*net.TCPConn)
		carried := p.connected(where, c, backend)
		if carried {
			join(client, backend)
		}
		_ = backend.Close()
		p.remove(where, c)
		if carried {
			return
		}
	}
}

// assign assigns a connection to an untried backend; ok is false if there is none.
func (p *DataPlane) assign(l *listener, c *connection, source netip.Addr, tried map[string]bool) (where place, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.services[l.service]
	if s == nil || s.buckets == nil {
		return place{}, false
	}
	first := s.bucket(source)
	for i := range balancer.Buckets {
		key := s.buckets[(first+i)%balancer.Buckets]
		if tried[key] {
			continue
		}
		tried[key] = true
		where = place{s.Name, netip.MustParseAddrPort(key)}
		w := p.work[where]
		if w == nil {
			w = &work{open: make(map[*connection]struct{})}
			p.work[where] = w
		}
		w.open[c] = struct{}{}
		return where, true
	}
	return place{}, false
}

func (s *service) bucket(source netip.Addr) int {
	if s.Method == balancer.SourceHash {
		bytes := source.As16()
		sum := sha256.Sum256(bytes[:])
		return int(binary.BigEndian.Uint16(sum[:])) % balancer.Buckets
	}
	turn := s.turn
	s.turn = (turn + 1) % balancer.Buckets
	return turn
}

// connected sets the backend's side of a connection, and returns false if the backend has died meanwhile.
func (p *DataPlane) connected(where place, c *connection, backend *net.TCPConn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.ended {
		return false
	}
	c.backend = backend
	p.work[where].assigned++
	return true
}

func (p *DataPlane) remove(where place, c *connection) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.work[where].open, c)
}

// join copies bytes in both directions until both sides have closed.
func join(client, backend *net.TCPConn) {
	var answers sync.WaitGroup
	answers.Go(func() { relay(client, backend) })
	relay(backend, client)
	answers.Wait()
}

// relay copies bytes in one direction. It passes on the end of the stream or a reset.
func relay(dst, src *net.TCPConn) {
	_, err := io.Copy(dst, src)
	switch {
	case err == nil:
		_ = dst.CloseWrite()
	case gone(src):
		reset(dst)
	default:
		// The other side is gone. Its last bytes may still be in transit in the other direction, where the end is
		// noticed too.
	}
}

// gone reports whether a connection was reset, or closed here.
func gone(conn *net.TCPConn) bool {
	raw, err := conn.SyscallConn()
	if err != nil {
		return true
	}
	var info *unix.TCPInfo
	controlled := raw.Control(func(fd uintptr) {
		info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
	})
	return controlled != nil || err != nil || info.State == unix.BPF_TCP_CLOSE
}

// reset aborts a connection (RFC 9293, section 3.10.5).
func reset(conn *net.TCPConn) {
	_ = conn.SetLinger(0)
	_ = conn.Close()
}
