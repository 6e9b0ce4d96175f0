package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
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
	var err error
	controlled := c.Control(func(fd uintptr) {
		if network == "tcp6" {
			err = unix.SetsockoptInt(int(fd), unix.SOL_IPV6, unix.IPV6_FREEBIND, 1)
		} else {
			err = unix.SetsockoptInt(int(fd), unix.SOL_IP, unix.IP_FREEBIND, 1)
		}
	})
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
