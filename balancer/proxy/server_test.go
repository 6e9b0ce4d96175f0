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
)

// patience is how long anything may take before a test fails.
const patience = 20 * time.Second

// server is a backend that does with each connection what a test wants.
type server struct {
	addr  netip.AddrPort
	conns chan *net.TCPConn
}

// newServer accepts connections for a test to take from conns.
func newServer(t *testing.T) *server {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
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

// next returns the next connection that the server has got.
func (s *server) next(t *testing.T) *net.TCPConn {
	t.Helper()
	select {
	case c := <-s.conns:
		_ = c.SetDeadline(time.Now().Add(patience))
		t.Cleanup(func() { _ = c.Close() })
		return c
	case <-time.After(patience):
		t.Fatal("the server has got no connection")
		return nil
	}
}

func dial(t *testing.T, at netip.AddrPort) *net.TCPConn {
	t.Helper()
	conn, err := net.Dial("tcp", at.String())
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.SetDeadline(time.Now().Add(patience))
	t.Cleanup(func() { _ = conn.Close() })
	return conn.(*net.TCPConn)
}

// wantReset checks that a connection, for which there is nobody, is reset, which may overtake the dial.
func wantReset(t *testing.T, at netip.AddrPort) {
	t.Helper()
	conn, err := net.Dial("tcp", at.String())
	if err == nil {
		defer func() { _ = conn.Close() }()
		_ = conn.SetDeadline(time.Now().Add(patience))
		_, err = conn.Read(make([]byte, 1))
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("a connection to %v met %v, want a reset", at, err)
	}
}

func service(at netip.AddrPort, backends ...netip.AddrPort) balancer.Service {
	s := balancer.Service{Name: "api", Listen: []netip.AddrPort{at}}
	for _, addr := range backends {
		s.Backends = append(s.Backends, balancer.Backend{Addr: addr, State: balancer.Serving})
	}
	return s
}

// through returns both ends of a connection through a plane with one backend.
func through(t *testing.T) (client, backend *net.TCPConn) {
	t.Helper()
	s, at := newServer(t), free(t)
	apply(t, newPlane(t, proxy.Options{}), service(at, s.addr))
	client = dial(t, at)
	return client, s.next(t)
}

func say(t *testing.T, to io.Writer, text string) {
	t.Helper()
	if _, err := io.WriteString(to, text); err != nil {
		t.Fatal(err)
	}
}

func hear(t *testing.T, from io.Reader, want string) {
	t.Helper()
	got, err := io.ReadAll(from)
	if err != nil || string(got) != want {
		t.Fatalf("heard %q (%v), want %q and the end", got, err, want)
	}
}
