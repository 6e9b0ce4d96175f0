package proxy_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/herald-vip/herald/balancer"
	"github.com/herald-vip/herald/balancer/proxy"
	"github.com/herald-vip/herald/testenv/wait"
)

// TestRefused: a client does not notice that a backend has gone before Herald did.
func TestRefused(t *testing.T) {
	s, at := newServer(t), free(t)
	p := newPlane(t, proxy.Options{})
	apply(t, p, service(at, free(t), s.addr, free(t)))
	for range 30 {
		client := dial(t, at)
		backend := s.next(t)
		say(t, backend, "here")
		_ = backend.Close()
		hear(t, client, "here")
	}
	counts, err := p.Counts()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range counts {
		if want := map[bool]uint64{true: 30}[c.Backend == s.addr]; c.Connections != want {
			t.Errorf("%s has been given %d connections, want %d", c.Backend, c.Connections, want)
		}
	}

	apply(t, p, service(at, free(t)))
	wantReset(t, at)
}

// TestDeathWhileDialling: a connection that is being opened to a backend that dies goes to another.
func TestDeathWhileDialling(t *testing.T) {
	s, at, full := newServer(t), free(t), crowded(t)
	p := newPlane(t, proxy.Options{DialTimeout: time.Hour})
	apply(t, p, service(at, full))
	client := dial(t, at)
	wait.Until(t, "it is dialled", func() bool {
		counts, err := p.Counts()
		return err == nil && len(counts) == 1 && counts[0].Open == 1
	})
	dead := service(at, full, s.addr)
	dead.Backends[0].State = balancer.Dead
	apply(t, p, dead)
	backend := s.next(t)
	say(t, backend, "here")
	_ = backend.Close()
	hear(t, client, "here")
}

// crowded returns the address of a listener whose backlog is full: who dials it waits.
func crowded(t *testing.T) netip.AddrPort {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	if err := errors.Join(syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}), syscall.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	at := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), uint16(name.(*syscall.SockaddrInet4).Port))
	dial(t, at) // the one that it has room for
	return at
}

// TestAddressInUse: it is said in one sentence, stops nothing else, and passes.
func TestAddressInUse(t *testing.T) {
	s, at, taken := newServer(t), free(t), newServer(t)
	p := newPlane(t, proxy.Options{})
	registry := service(taken.addr, s.addr)
	registry.Name = "registry"
	err := p.Apply([]balancer.Service{service(at, s.addr), registry})
	want := fmt.Sprintf("balancer registry cannot listen at %s: another program does: stop it, or choose another port", taken.addr)
	if err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
	dial(t, at)
	s.next(t)

	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	registry.Listen = []netip.AddrPort{l.Addr().(*net.TCPAddr).AddrPort()}
	if err := p.Apply([]balancer.Service{registry}); err == nil {
		t.Error("no error although another program listens")
	}
	_ = l.Close()
	apply(t, p, registry)
	dial(t, registry.Listen[0])
	s.next(t)
}

// TestOwnListener: a name may turn out to be where a balancer listens. Connections that were sent
// there would come back for ever.
func TestOwnListener(t *testing.T) {
	s, at, other := newServer(t), free(t), free(t)
	p := newPlane(t, proxy.Options{})
	mirror := service(other, at)
	mirror.Name = "mirror"
	err := p.Apply([]balancer.Service{service(at, at, s.addr), mirror})
	for _, want := range []string{
		"balancer api cannot have " + at.String() + " as a backend: balancer api listens there",
		"balancer mirror cannot have " + at.String() + " as a backend: balancer api listens there",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	for range 4 {
		dial(t, at)
		s.next(t)
	}
	wantReset(t, other)
}

// TestForeignAddress: a VIP that is elsewhere now may come here any time.
func TestForeignAddress(t *testing.T) {
	p := newPlane(t, proxy.Options{})
	apply(t, p, service(netip.MustParseAddrPort("192.0.2.1:6443")), balancer.Service{
		Name: "six", Listen: []netip.AddrPort{netip.MustParseAddrPort("[2001:db8::1]:6443")},
	})
}

// TestTooMany: those beyond the limit wait, and the log says so once.
func TestTooMany(t *testing.T) {
	var log lines
	s, at := newServer(t), free(t)
	p := newPlane(t, proxy.Options{Log: slog.New(slog.NewTextHandler(&log, nil)), MaxConnections: 3})
	apply(t, p, service(at, s.addr))
	var clients []*net.TCPConn
	for range 6 {
		clients = append(clients, dial(t, at))
	}
	for range 3 {
		s.next(t)
	}
	wait.Until(t, "the log says that others wait", func() bool { return log.contain("carries as many connections as it may") })
	if n := len(s.conns); n > 0 {
		t.Errorf("%d connections too many", n)
	}
	for _, c := range clients[:3] {
		_ = c.SetLinger(0)
		_ = c.Close()
	}
	for range 3 {
		s.next(t)
	}
	if n := strings.Count(log.String(), "\n"); n != 1 {
		t.Errorf("the log has %d lines, want 1:\n%s", n, &log)
	}
}

// lines is a log.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func (l *lines) contain(text string) bool { return strings.Contains(l.String(), text) }

// TestFlood opens many connections at once, each of which has to be answered.
func TestFlood(t *testing.T) {
	const clients, each = 50, 40
	at := free(t)
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
	apply(t, p, service(at, a.addr, b.addr, c.addr))
	for range clients {
		dialling.Go(func() {
			for range each {
				conn, err := net.Dial("tcp", at.String())
				if err != nil {
					t.Error(err)
					return
				}
				_ = conn.SetDeadline(time.Now().Add(patience))
				if got, err := io.ReadAll(conn); string(got) != "answer" || err != nil {
					t.Errorf("heard %q (%v)", got, err)
				}
				_ = conn.Close()
			}
		})
	}
	dialling.Wait()
	close(over)
	serving.Wait()
	counts, err := p.Counts()
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range counts {
		if fair := uint64(clients * each / 3); n.Connections < fair*95/100 || n.Connections > fair*105/100 {
			t.Errorf("%s has got %d connections, %d would be fair", n.Backend, n.Connections, fair)
		}
	}
}

// TestClose stops listening at once; what is established may end by itself for a while.
func TestClose(t *testing.T) {
	s, at := newServer(t), free(t)
	p := proxy.New(proxy.Options{Linger: time.Hour})
	apply(t, p, service(at, s.addr))
	client := dial(t, at)
	backend := s.next(t)

	closed := make(chan error, 1)
	go func() { closed <- p.Close() }()
	wait.Until(t, "nobody listens any more", func() bool {
		conn, err := net.Dial("tcp", at.String())
		if err == nil { // taken at the last moment, to nobody's use
			_ = conn.(*net.TCPConn).SetLinger(0)
			_ = conn.Close()
		}
		return errors.Is(err, syscall.ECONNREFUSED)
	})
	say(t, client, "still here")
	_ = client.CloseWrite()
	hear(t, backend, "still here")
	_ = backend.Close()
	hear(t, client, "")
	if err := <-closed; err != nil {
		t.Error(err)
	}
	if err := p.Apply(nil); err == nil {
		t.Error("a closed plane was given services")
	}
	if err := p.Close(); err != nil {
		t.Errorf("closed again: %v", err)
	}
}

// TestCloseHasADeadline: what has not ended by then is ended.
func TestCloseHasADeadline(t *testing.T) {
	s, at := newServer(t), free(t)
	p := proxy.New(proxy.Options{Linger: 10 * time.Millisecond})
	apply(t, p, service(at, s.addr, crowded(t)))
	one, other := dial(t, at), dial(t, at)
	s.next(t)
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	for _, c := range []*net.TCPConn{one, other} {
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("a connection met %v, want a reset", err)
		}
	}
}
