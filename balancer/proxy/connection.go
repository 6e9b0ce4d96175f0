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

// connection is a client's that has been given to a backend, which may not have answered yet.
type connection struct {
	client  *net.TCPConn
	backend *net.TCPConn // nil until it has answered
	cancel  func()       // ends the dialling
	ended   bool
}

// end ends a connection; one that is still dialled goes to another backend. The plane's mu is held.
func (c *connection) end() {
	c.ended = true
	c.cancel()
	if c.backend != nil {
		reset(c.client)
		reset(c.backend)
	}
}

// carry gives a client's connection to a backend, and moves bytes until both have ended.
func (p *DataPlane) carry(l *listener, client *net.TCPConn) {
	defer func() { _ = client.Close() }()
	from := client.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap()
	dialer := net.Dialer{Timeout: p.options.DialTimeout, KeepAliveConfig: alive}
	dialer.SetMultipathTCP(false)

	tried := make(map[string]bool)
	for {
		ctx, cancel := context.WithCancel(context.Background())
		c := &connection{client: client, cancel: cancel}
		where, ok := p.give(l, c, from, tried)
		if !ok {
			cancel()
			reset(client) // as if nobody listened
			return
		}
		conn, err := dialer.DialContext(ctx, "tcp", where.backend.String())
		cancel()
		if err != nil {
			p.take(where, c)
			p.options.Log.Debug("backend cannot be reached", "balancer", where.service, "backend", where.backend, "err", err)
			continue
		}
		backend := conn.(*net.TCPConn)
		carried := p.connected(where, c, backend)
		if carried {
			join(client, backend)
		}
		_ = backend.Close()
		p.take(where, c)
		if carried {
			return
		}
	}
}

// give chooses a backend that has not been tried and gives it the connection; ok is false if there is none.
func (p *DataPlane) give(l *listener, c *connection, from netip.Addr, tried map[string]bool) (where place, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.services[l.service]
	if s == nil || s.buckets == nil {
		return place{}, false
	}
	first := s.bucket(from)
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

// bucket is where a new connection falls.
func (s *service) bucket(from netip.Addr) int {
	if s.Method == balancer.SourceHash {
		bytes := from.As16()
		sum := sha256.Sum256(bytes[:])
		return int(binary.BigEndian.Uint16(sum[:])) % balancer.Buckets
	}
	turn := s.turn
	s.turn = (turn + 1) % balancer.Buckets
	return turn
}

// connected completes a connection, unless its backend has died meanwhile.
func (p *DataPlane) connected(where place, c *connection, backend *net.TCPConn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.ended {
		return false
	}
	c.backend = backend
	p.work[where].given++
	return true
}

// take takes a connection away again.
func (p *DataPlane) take(where place, c *connection) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.work[where].open, c)
}

// join moves bytes both ways until both have ended.
func join(client, backend *net.TCPConn) {
	var answers sync.WaitGroup
	answers.Go(func() { relay(client, backend) })
	relay(backend, client)
	answers.Wait()
}

// relay moves bytes one way. The end of them, and a reset, is passed on.
func relay(to, from *net.TCPConn) {
	_, err := io.Copy(to, from)
	switch {
	case err == nil:
		_ = to.CloseWrite()
	case gone(from):
		reset(to)
	default:
		// The other side has gone. What it said before may still be on its way the other way, where
		// its end will be seen as well.
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

// reset ends a connection without a word of goodbye (RFC 9293, section 3.10.5).
func reset(conn *net.TCPConn) {
	_ = conn.SetLinger(0)
	_ = conn.Close()
}
