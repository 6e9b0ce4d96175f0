package proxy

import (
	"net"
	"net/netip"
	"testing"
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
