package proxy

import (
	"net"
	"net/netip"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/herald-vip/herald/balancer"
)

// TestLastCall: who has connected is served, even if nobody had taken the connection before the
// listener was to go.
func TestLastCall(t *testing.T) {
	backend, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = backend.Close() }()
	l, err := open(netip.MustParseAddrPort("127.0.0.1:0"), "api")
	if err != nil {
		t.Fatal(err)
	}
	p := New(Options{})
	defer func() { _ = p.Close() }()
	at := backend.Addr().(*net.TCPAddr).AddrPort()
	err = p.Apply([]balancer.Service{{Name: "api", Backends: []balancer.Backend{{Addr: at, State: balancer.Serving}}}})
	if err != nil {
		t.Fatal(err)
	}
	_ = backend.(*net.TCPListener).SetDeadline(time.Now().Add(20 * time.Second))
	const clients = 10
	var conns []net.Conn
	for range clients {
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
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
		conn, err := backend.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write([]byte("x")); err != nil {
			t.Error(err)
		}
		_ = conn.Close()
	}
	for _, conn := range conns {
		_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
		if _, err := conn.Read(make([]byte, 1)); err != nil {
			t.Errorf("a client that had connected was turned away: %v", err)
		}
	}
}

// crowd is a listener at which somebody arrives every other millisecond, and at which each
// second deadline comes first: the process had not been run.
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

// TestLastCallIsOver: a listener waits for those who have come already, not for as long as
// others do; and one deadline that comes first does not turn them away.
func TestLastCallIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := open(netip.MustParseAddrPort("127.0.0.1:0"), "api")
		if err != nil {
			t.Fatal(err)
		}
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
			t.Errorf("it went after %v and %d calls", took, c.turn)
		}
	})
}
