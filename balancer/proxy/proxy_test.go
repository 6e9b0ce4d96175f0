package proxy_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/herald-vip/herald/balancer"
	"github.com/herald-vip/herald/balancer/proxy"
	"github.com/herald-vip/herald/testenv/must"
	"github.com/herald-vip/herald/testenv/recorder"
	"github.com/herald-vip/herald/testenv/wait"
)

// TestRefused stops backends before Herald notices: clients do not notice.
func TestRefused(t *testing.T) {
	s, addr := newServer(t), free(t)
	p := newPlane(t, proxy.Options{})
	apply(t, p, service(addr, free(t), s.addr, free(t)))
	for range 30 {
		client := dial(t, addr)
		backend := s.next(t)
		say(t, backend, "here")
		_ = backend.Close()
		receive(t, client, "here")
	}
	for _, c := range must.Get[[]balancer.Count](t)(p.Counts()) {
		if want := map[bool]uint64{true: 30}[c.Backend == s.addr]; c.Connections != want {
			t.Errorf("%s got %d connections, want %d", c.Backend, c.Connections, want)
		}
	}

	apply(t, p, service(addr, free(t)))
	wantReset(t, addr)
}

// TestDeathWhileDialling lets a backend die during a dial: the connection goes to another backend.
func TestDeathWhileDialling(t *testing.T) {
	s, addr, full := newServer(t), free(t), crowded(t)
	p := newPlane(t, proxy.Options{DialTimeout: time.Hour})
	apply(t, p, service(addr, full))
	client := dial(t, addr)
	wait.Until(t, "the dial has begun", func() bool {
		counts, err := p.Counts()
		return err == nil && len(counts) == 1 && counts[0].Open == 1
	})
	dead := service(addr, full, s.addr)
	dead.Backends[0].State = balancer.Dead
	apply(t, p, dead)
	backend := s.next(t)
	say(t, backend, "here")
	_ = backend.Close()
	receive(t, client, "here")
}

// crowded returns the address of a listener with a full backlog: dials block.
func crowded(t *testing.T) netip.AddrPort {
	t.Helper()
	fd := must.Get[int](t)(syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0))
	t.Cleanup(func() { _ = syscall.Close(fd) })
	must.Do(t, errors.Join(syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}), syscall.Listen(fd, 0)))
	name := must.Get[syscall.Sockaddr](t)(syscall.Getsockname(fd))
	addr := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), uint16(name.(*syscall.SockaddrInet4).Port))
	dial(t, addr) // fills the backlog
	return addr
}

// TestAddressInUse listens at a port of another program: the error has one sentence, other services work, and a retry succeeds.
func TestAddressInUse(t *testing.T) {
	s, addr, taken := newServer(t), free(t), newServer(t)
	p := newPlane(t, proxy.Options{})
	registry := service(taken.addr, s.addr)
	registry.Name = "registry"
	err := p.Apply([]balancer.Service{service(addr, s.addr), registry})
	want := fmt.Sprintf("balancer registry cannot listen at %s: another program does: stop it, or choose another port", taken.addr)
	if err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
	dial(t, addr)
	s.next(t)

	l := must.Get[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
	registry.Listen = []netip.AddrPort{l.Addr().(*net.TCPAddr).AddrPort()}
	if err := p.Apply([]balancer.Service{registry}); err == nil {
		t.Error("no error though another program listens")
	}
	_ = l.Close()
	apply(t, p, registry)
	dial(t, registry.Listen[0])
	s.next(t)
}

// TestOwnListener has a balancer's listener as a backend, as a DNS name may resolve to it: connections must not loop.
func TestOwnListener(t *testing.T) {
	s, addr, other := newServer(t), free(t), free(t)
	p := newPlane(t, proxy.Options{})
	mirror := service(other, addr)
	mirror.Name = "mirror"
	err := p.Apply([]balancer.Service{service(addr, addr, s.addr), mirror})
	for _, want := range []string{
		"balancer api cannot have " + addr.String() + " as a backend: balancer api listens there",
		"balancer mirror cannot have " + addr.String() + " as a backend: balancer api listens there",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	for range 4 {
		dial(t, addr)
		s.next(t)
	}
	wantReset(t, other)
}

// TestForeignAddress listens at addresses that the node does not have, such as a VIP that may come later.
func TestForeignAddress(t *testing.T) {
	p := newPlane(t, proxy.Options{})
	apply(t, p, service(netip.MustParseAddrPort("192.0.2.1:6443")), balancer.Service{
		Name: "six", Listen: []netip.AddrPort{netip.MustParseAddrPort("[2001:db8::1]:6443")},
	})
}

// TestTooMany opens connections beyond the limit: they wait, and one log line says so.
func TestTooMany(t *testing.T) {
	var log recorder.Log
	s, addr := newServer(t), free(t)
	p := newPlane(t, proxy.Options{Log: log.Logger(), MaxConnections: 3})
	apply(t, p, service(addr, s.addr))
	var clients []*net.TCPConn
	for range 6 {
		clients = append(clients, dial(t, addr))
	}
	for range 3 {
		s.next(t)
	}
	wait.Until(t, "the log says that connections wait", func() bool { return log.Count("is at its limit of connections") > 0 })
	if n := len(s.conns); n > 0 {
		t.Errorf("%d connections above the limit", n)
	}
	for _, c := range clients[:3] {
		_ = c.SetLinger(0)
		_ = c.Close()
	}
	for range 3 {
		s.next(t)
	}
	if n := log.Count(""); n != 1 {
		t.Errorf("the log has %d lines, want 1:\n%s", n, &log)
	}
}

// TestFlood opens many connections at once: each is answered.
func TestFlood(t *testing.T) {
	const clients, each = 50, 40
	addr := free(t)
	p := newPlane(t, proxy.Options{MaxConnections: 30})
	a, b, c := newServer(t), newServer(t), newServer(t)
	var serving, dialling sync.WaitGroup
	over := make(chan struct{})
	for _, s := range []*server{a, b, c} {
		serving.Go(func() {
			for {
				select {
				case conn := <-s.conns:
					_, _ = io.WriteString(conn, "answer")
					_ = conn.Close()
				case <-over:
					return
				}
			}
		})
	}
	apply(t, p, service(addr, a.addr, b.addr, c.addr))
	for range clients {
		dialling.Go(func() {
			for range each {
				conn, err := net.Dial("tcp", addr.String())
				if err != nil {
					t.Error(err)
					return
				}
				_ = conn.SetDeadline(time.Now().Add(patience))
				if got, err := io.ReadAll(conn); string(got) != "answer" || err != nil {
					t.Errorf("received %q (%v)", got, err)
				}
				_ = conn.Close()
			}
		})
	}
	dialling.Wait()
	close(over)
	serving.Wait()
	for _, n := range must.Get[[]balancer.Count](t)(p.Counts()) {
		if fair := uint64(clients * each / 3); n.Connections < fair*95/100 || n.Connections > fair*105/100 {
			t.Errorf("%s got %d connections, the fair share is %d", n.Backend, n.Connections, fair)
		}
	}
}

// TestClose closes the listeners at once, and lets established connections end.
func TestClose(t *testing.T) {
	s, addr := newServer(t), free(t)
	p := proxy.New(proxy.Options{Linger: time.Hour})
	apply(t, p, service(addr, s.addr))
	client := dial(t, addr)
	backend := s.next(t)

	closed := make(chan error, 1)
	go func() { closed <- p.Close() }()
	wait.Until(t, "the listener is closed", func() bool {
		conn, err := net.Dial("tcp", addr.String())
		if err == nil { // accepted at the last moment
			_ = conn.(*net.TCPConn).SetLinger(0)
			_ = conn.Close()
		}
		return errors.Is(err, syscall.ECONNREFUSED)
	})
	say(t, client, "still here")
	_ = client.CloseWrite()
	receive(t, backend, "still here")
	_ = backend.Close()
	receive(t, client, "")
	must.Do(t, <-closed)
	if err := p.Apply(nil); err == nil {
		t.Error("Apply succeeds after Close")
	}
	if err := p.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
}

// TestCloseHasADeadline resets connections that do not end in time.
func TestCloseHasADeadline(t *testing.T) {
	s, addr := newServer(t), free(t)
	p := proxy.New(proxy.Options{Linger: 10 * time.Millisecond})
	apply(t, p, service(addr, s.addr, crowded(t)))
	first, second := dial(t, addr), dial(t, addr)
	s.next(t)
	must.Do(t, p.Close())
	for _, c := range []*net.TCPConn{first, second} {
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("error %v, want a reset", err)
		}
	}
}
