package proxy

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/balancer"
)

const (
	// lastCall is the time without a new connection, twice in a row, after which a stopped listener closes: closing
	// earlier would reset clients in the backlog.
	lastCall = 5 * time.Millisecond
	// closing is the time after which it closes in any case: clients that never pause must not keep it open.
	closing = 250 * time.Millisecond
	// breath is the pause after a failed accept, for lack of descriptors or memory.
	breath = 50 * time.Millisecond
	// hush is the least interval between logs of too many connections.
	hush = time.Minute
)

// alive detects a vanished peer within a minute.
var alive = net.KeepAliveConfig{Enable: true, Idle: 30 * time.Second, Interval: 10 * time.Second, Count: 3}

// acceptor is the part of *net.TCPListener that a listener uses.
type acceptor interface {
	net.Listener
	AcceptTCP() (*net.TCPConn, error)
	SetDeadline(time.Time) error
}

// listener accepts connections for a service.
type listener struct {
	acceptor
	service string        // guarded by DataPlane.mu
	last    chan struct{} // closed to stop it
	done    chan struct{} // closed when it has stopped
}

// open listens at an address. This node need not have the address, as a VIP moves.
func open(addr netip.AddrPort, service string) (*listener, error) {
	config := net.ListenConfig{KeepAliveConfig: alive, Control: freebind}
	config.SetMultipathTCP(false) // MPTCP sockets cannot be spliced
	network := "tcp4"
	if addr.Addr().Is6() {
		network = "tcp6"
	}
	l, err := config.Listen(context.Background(), network, addr.String())
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		err = fmt.Errorf("cannot listen at %s: another program does: stop it, or choose another port", addr)
	case errors.Is(err, syscall.EACCES):
		err = fmt.Errorf("cannot listen at %s: ports below 1024 need CAP_NET_BIND_SERVICE", addr)
	case err != nil:
		err = fmt.Errorf("cannot listen: %w", err)
	}
	if err != nil {
		return nil, &balancer.ServiceError{Service: service, Err: err}
	}
	return &listener{acceptor: l.(*net.TCPListener), service: service, last: make(chan struct{}), done: make(chan struct{})}, nil
}

func freebind(network, _ string, c syscall.RawConn) error {
	level, option := unix.SOL_IP, unix.IP_FREEBIND
	if network == "tcp6" {
		level, option = unix.SOL_IPV6, unix.IPV6_FREEBIND
	}
	var err error
	controlled := c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), level, option, 1) })
	return errors.Join(controlled, err)
}

// stop stops listeners and waits for them.
func stop(all []*listener) {
	for _, l := range all {
		_ = l.SetDeadline(time.Now())
		close(l.last)
	}
	for _, l := range all {
		<-l.done
	}
}

// accept accepts connections until the listener is stopped, and closes it.
func (p *DataPlane) accept(l *listener) {
	defer close(l.done)
	defer func() { _ = l.Close() }()
	var end time.Time // when to close at the latest; zero before stop
	quiet := 0        // deadlines in a row without a connection
	for p.reserve(l) {
		if !end.IsZero() {
			_ = l.SetDeadline(time.Now().Add(min(lastCall, time.Until(end))))
		}
		client, err := l.AcceptTCP()
		if err == nil {
			quiet = 0
			p.running.Go(func() {
				defer p.release()
				p.carry(l, client)
			})
			continue
		}
		p.release()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			if end.IsZero() {
				<-l.last
				end = time.Now().Add(closing)
				continue
			}
			// If this process was not scheduled in time, the deadline is reported before a waiting connection. So one
			// deadline does not prove that the backlog is empty.
			if quiet++; quiet == 2 || time.Now().After(end) {
				return
			}
			continue
		}
		// A connection was aborted in the backlog, or this process lacks descriptors or memory.
		if p.mayLog() {
			p.options.Log.Warn("proxy cannot accept a connection, trying again", "listen", l.Addr(), "err", err)
		}
		select {
		case <-time.After(breath):
		case <-l.last:
		}
	}
}

// reserve waits until one more connection is allowed. It returns false if the listener is stopped.
func (p *DataPlane) reserve(l *listener) bool {
	select {
	case p.slots <- struct{}{}:
		return true
	default:
	}
	if p.mayLog() {
		p.options.Log.Warn("proxy is at its limit of connections, or of descriptors (nofile): further connections wait",
			"listen", l.Addr(), "connections", p.options.MaxConnections)
	}
	select {
	case p.slots <- struct{}{}:
		return true
	case <-l.last:
		return false
	}
}

func (p *DataPlane) release() { <-p.slots }

// mayLog limits log lines about single connections to one per hush.
func (p *DataPlane) mayLog() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.logged.IsZero() && time.Since(p.logged) < hush {
		return false
	}
	p.logged = time.Now()
	return true
}

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
			var answers sync.WaitGroup
			answers.Go(func() { relay(client, backend) })
			relay(backend, client)
			answers.Wait()
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
