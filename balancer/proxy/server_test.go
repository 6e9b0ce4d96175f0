package proxy_test

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/herald-vip/herald/balancer"
	"github.com/herald-vip/herald/balancer/proxy"
	"github.com/herald-vip/herald/testenv/must"
)

// patience is the time limit of each step.
const patience = 20 * time.Second

// server is a backend that hands its connections to a test.
type server struct {
	addr  netip.AddrPort
	conns chan *net.TCPConn
}

// newServer returns a running server.
func newServer(t *testing.T) *server {
	t.Helper()
	l := must.Get[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
	s := &server{addr: l.Addr().(*net.TCPAddr).AddrPort(), conns: make(chan *net.TCPConn, 10_000)}
	over, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			select {
			case s.conns <- conn.(*net.TCPConn):
			case <-over:
				_ = conn.Close()
			}
		}
	}()
	t.Cleanup(func() {
		close(over)
		_ = l.Close()
		<-done
		for {
			select {
			case c := <-s.conns:
				_ = c.Close()
			default:
				return
			}
		}
	})
	return s
}

// next returns the server's next connection.
func (s *server) next(t *testing.T) *net.TCPConn {
	t.Helper()
	select {
	case c := <-s.conns:
		_ = c.SetDeadline(time.Now().Add(patience))
		t.Cleanup(func() { _ = c.Close() })
		return c
	case <-time.After(patience):
		t.Fatal("the server got no connection")
		return nil
	}
}

func dial(t *testing.T, addr netip.AddrPort) *net.TCPConn {
	t.Helper()
	conn := must.Get[net.Conn](t)(net.Dial("tcp", addr.String()))
	_ = conn.SetDeadline(time.Now().Add(patience))
	t.Cleanup(func() { _ = conn.Close() })
	return conn.(*net.TCPConn)
}

// wantReset checks that a connection is reset, during the dial or after it.
func wantReset(t *testing.T, addr netip.AddrPort) {
	t.Helper()
	conn, err := net.Dial("tcp", addr.String())
	if err == nil {
		defer func() { _ = conn.Close() }()
		_ = conn.SetDeadline(time.Now().Add(patience))
		_, err = conn.Read(make([]byte, 1))
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("connection to %v: error %v, want a reset", addr, err)
	}
}

func service(listen netip.AddrPort, backends ...netip.AddrPort) balancer.Service {
	s := balancer.Service{Name: "api", Listen: []netip.AddrPort{listen}}
	for _, addr := range backends {
		s.Backends = append(s.Backends, balancer.Backend{Addr: addr, State: balancer.Serving})
	}
	return s
}

// through returns both ends of a connection through a data plane with one backend.
func through(t *testing.T) (client, backend *net.TCPConn) {
	t.Helper()
	s, addr := newServer(t), free(t)
	apply(t, newPlane(t, proxy.Options{}), service(addr, s.addr))
	client = dial(t, addr)
	return client, s.next(t)
}

func say(t *testing.T, w io.Writer, text string) {
	t.Helper()
	must.Get[int](t)(io.WriteString(w, text))
}

func receive(t *testing.T, r io.Reader, want string) {
	t.Helper()
	got, err := io.ReadAll(r)
	if err != nil || string(got) != want {
		t.Fatalf("received %q (%v), want %q and the end", got, err, want)
	}
}
