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
	// lastCall is for how long, and twice in a row, nobody must have connected before a
	// listener that is to go does: who has arrived already would be reset otherwise.
	lastCall = 5 * time.Millisecond
	// closing is when it goes in any case: clients that never pause must not keep it for good.
	closing = 250 * time.Millisecond
	// breath is how long accepting rests when this process is out of descriptors or memory.
	breath = 50 * time.Millisecond
	// hush is how often it is logged at most that there are too many connections.
	hush = time.Minute
)

// alive finds out within a minute that a peer has vanished.
var alive = net.KeepAliveConfig{Enable: true, Idle: 30 * time.Second, Interval: 10 * time.Second, Count: 3}

// acceptor is what a listener needs of a *net.TCPListener.
type acceptor interface {
	net.Listener
	AcceptTCP() (*net.TCPConn, error)
	SetDeadline(time.Time) error
}

// listener takes connections for a service.
type listener struct {
	acceptor
	service string        // guarded by the plane's mu
	last    chan struct{} // closed when it is to go
	done    chan struct{} // closed when it is gone
}

// open listens at an address, which need not be this node's yet: a VIP comes and goes.
func open(addr netip.AddrPort, service string) (*listener, error) {
	config := net.ListenConfig{KeepAliveConfig: alive, Control: freebind}
	config.SetMultipathTCP(false) // its sockets cannot be spliced
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
	return &listener{
		acceptor: l.(*net.TCPListener),
		service:  service,
		last:     make(chan struct{}),
		done:     make(chan struct{}),
	}, nil
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

// stop ends listeners and returns when they have.
func stop(all []*listener) {
	for _, l := range all {
		_ = l.SetDeadline(time.Now())
		close(l.last)
	}
	for _, l := range all {
		<-l.done
	}
}

// accept takes connections until the listener is to go, and closes it.
func (p *DataPlane) accept(l *listener) {
	defer close(l.done)
	defer func() { _ = l.Close() }()
	var end time.Time // zero until the last call
	quiet := 0        // calls in a row that nobody has answered
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
			// A deadline comes before a connection if this process was not run in time for
			// either, so one is no proof that nobody has come.
			if quiet++; quiet == 2 || time.Now().After(end) {
				return
			}
			continue
		}
		// A connection that was aborted in the backlog, or this process is out of something.
		if p.mayLog() {
			p.options.Log.Warn("proxy cannot take a connection: will try again", "listen", l.Addr(), "err", err)
		}
		select {
		case <-time.After(breath):
		case <-l.last:
		}
	}
}

// reserve waits until one more connection may be carried, or reports that the listener is to go.
func (p *DataPlane) reserve(l *listener) bool {
	select {
	case p.slots <- struct{}{}:
		return true
	default:
	}
	if p.mayLog() {
		p.options.Log.Warn("proxy carries as many connections as it may, or has descriptors for (nofile): others wait",
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

// mayLog reports whether the log can bear one more line of what may happen at each connection.
func (p *DataPlane) mayLog() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.logged.IsZero() && time.Since(p.logged) < hush {
		return false
	}
	p.logged = time.Now()
	return true
}
