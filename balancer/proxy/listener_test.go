package proxy

import (
	"net"
	"net/netip"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/herald-vip/herald/balancer"
	"github.com/herald-vip/herald/testenv/must"
)

// TestLastCall stops a listener with connections in its backlog: all are served.
func TestLastCall(t *testing.T) {
	backend := must.Get[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
	defer func() { _ = backend.Close() }()
	l := must.Get[*listener](t)(open(netip.MustParseAddrPort("127.0.0.1:0"), "api"))
	p := New(Options{})
	defer func() { _ = p.Close() }()
	addr := backend.Addr().(*net.TCPAddr).AddrPort()
	must.Do(t, p.Apply([]balancer.Service{{Name: "api", Backends: []balancer.Backend{{Addr: addr, State: balancer.Serving}}}}))
	_ = backend.(*net.TCPListener).SetDeadline(time.Now().Add(20 * time.Second))
	const clients = 10
	var conns []net.Conn
	for range clients {
		conn := must.Get[net.Conn](t)(net.Dial("tcp", l.Addr().String()))
		defer func() { _ = conn.Close() }()
		conns = append(conns, conn)
	}

	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		stop([]*listener{l})
	}()
	<-l.last
	p.accept(l)
	<-stopped
	for range clients {
		conn := must.Get[net.Conn](t)(backend.Accept())
		if _, err := conn.Write([]byte("x")); err != nil {
			t.Error(err)
		}
		_ = conn.Close()
	}
	for _, conn := range conns {
		_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
		if _, err := conn.Read(make([]byte, 1)); err != nil {
			t.Errorf("a client in the backlog was not served: %v", err)
		}
	}
}

// crowd is a listener with a new connection every other millisecond. Every second call returns a deadline instead, as if the
// process had not been scheduled.
type crowd struct {
	*net.TCPListener
	deadline time.Time
	turn     int
}

func (c *crowd) SetDeadline(t time.Time) error {
	c.deadline = t
	return nil
}

func (c *crowd) AcceptTCP() (*net.TCPConn, error) {
	if c.turn++; c.turn%2 == 0 || !time.Now().Before(c.deadline) {
		time.Sleep(time.Until(c.deadline)) // in a synctest bubble
		return nil, os.ErrDeadlineExceeded
	}
	time.Sleep(time.Millisecond)
	conn, err := net.Dial("tcp", c.Addr().String())
	if err != nil {
		return nil, err
	}
	_ = conn.(*net.TCPConn).SetLinger(0)
	defer func() { _ = conn.Close() }()
	return c.TCPListener.AcceptTCP()
}

// TestLastCallIsOver stops a listener under constant new connections: it closes after a time limit, and not at the first
// deadline.
func TestLastCallIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := must.Get[*listener](t)(open(netip.MustParseAddrPort("127.0.0.1:0"), "api"))
		c := &crowd{TCPListener: l.acceptor.(*net.TCPListener)}
		l.acceptor = c
		p := New(Options{})
		defer func() { _ = p.Close() }()
		gone := make(chan struct{})
		go func() {
			defer close(gone)
			stop([]*listener{l})
		}()
		<-l.last
		began := time.Now()
		p.accept(l)
		<-gone
		if took := time.Since(began); took < closing || took > closing+lastCall {
			t.Errorf("closed after %v and %d calls", took, c.turn)
		}
	})
}
