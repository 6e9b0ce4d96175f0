package proxy_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

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
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			s.conns <- conn.(*net.TCPConn)
		}
	}()
	t.Cleanup(func() {
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
	s, at := newServer(t), free(t, "127.0.0.1")
	apply(t, newPlane(t, proxy.Options{}), service(at, s.addr))
	client = dial(t, at)
	return client, s.next(t)
}

// eventually waits for a condition.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !holds(); {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
		<-time.After(time.Millisecond)
	}
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

// TestHalfClose: either side may end first, and still hear all of the other.
func TestHalfClose(t *testing.T) {
	for _, order := range []string{"client first", "backend first"} {
		t.Run(order, func(t *testing.T) {
			first, second := through(t)
			if order == "backend first" {
				first, second = second, first
			}
			say(t, first, "question")
			if err := first.CloseWrite(); err != nil {
				t.Fatal(err)
			}
			hear(t, second, "question")
			say(t, second, "answer")
			_ = second.Close()
			hear(t, first, "answer")
		})
	}
}

// TestReset: a reset of one side is one for the other.
func TestReset(t *testing.T) {
	for _, who := range []string{"client", "backend"} {
		t.Run(who, func(t *testing.T) {
			one, other := through(t)
			if who == "backend" {
				one, other = other, one
			}
			say(t, one, "x")
			if _, err := io.ReadFull(other, make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
			_ = one.SetLinger(0)
			_ = one.Close()
			if _, err := other.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("the other side met %v, want a reset", err)
			}
		})
	}
}

// TestEarlyAnswer: what a server said before it hung up on a client that still writes arrives.
func TestEarlyAnswer(t *testing.T) {
	client, backend := through(t)
	say(t, client, "a long story")
	if _, err := io.ReadFull(backend, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	answer := strings.Repeat("too long ", 1000)
	say(t, backend, answer)
	_ = backend.CloseWrite()
	hear(t, client, answer)
}

// TestBulk moves 200 MB each way at once, by way of pipes in the kernel.
func TestBulk(t *testing.T) {
	const size = 200 << 20
	eventually(t, "the pipes that earlier tests have left are collected", func() bool {
		runtime.GC()
		return pipes(t) == 0
	})
	client, backend := through(t)
	block := make([]byte, 1<<20)
	rand.NewChaCha8([32]byte{1}).Read(block)

	var moving sync.WaitGroup
	sums := make(map[*net.TCPConn][]byte)
	var mu sync.Mutex
	var spliced atomic.Bool
	for _, conn := range []*net.TCPConn{client, backend} {
		moving.Go(func() {
			for i := range size / len(block) {
				if i == size/len(block)/2 && pipes(t) > 0 {
					spliced.Store(true)
				}
				if _, err := conn.Write(block); err != nil {
					t.Error(err)
					return
				}
			}
			_ = conn.CloseWrite()
		})
		moving.Go(func() {
			sum := sha256.New()
			if n, err := io.Copy(sum, conn); n != size || err != nil {
				t.Errorf("%d bytes arrived (%v), want %d", n, err, size)
			}
			mu.Lock()
			defer mu.Unlock()
			sums[conn] = sum.Sum(nil)
		})
	}
	moving.Wait()
	want := sha256.New()
	for range size / len(block) {
		want.Write(block)
	}
	for _, got := range sums {
		if !bytes.Equal(got, want.Sum(nil)) {
			t.Error("other bytes arrived than were sent")
		}
	}
	if !spliced.Load() {
		t.Error("no pipe was open meanwhile: the bytes were copied through this process")
	}
}

// pipes counts the pipes that this process has made, and not been started with.
func pipes(t *testing.T) int {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Error(err)
	}
	n := 0
	for _, e := range entries {
		to, err := os.Readlink("/proc/self/fd/" + e.Name())
		if err != nil || !strings.HasPrefix(to, "pipe:") {
			continue // closed meanwhile, or something else
		}
		fd, err := strconv.Atoi(e.Name())
		if err != nil {
			t.Error(err)
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC != 0 {
			n++
		}
	}
	return n
}

// TestRefused: a client does not notice that a backend has gone before Herald did.
func TestRefused(t *testing.T) {
	s, at := newServer(t), free(t, "127.0.0.1")
	p := newPlane(t, proxy.Options{})
	apply(t, p, service(at, free(t, "127.0.0.1"), s.addr, free(t, "127.0.0.1")))
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

	apply(t, p, service(at, free(t, "127.0.0.1")))
	conn, err := net.Dial("tcp", at.String())
	if err == nil { // the reset did not overtake the dial
		defer func() { _ = conn.Close() }()
		_, err = conn.Read(make([]byte, 1))
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("nobody takes a connection: %v, want a reset", err)
	}
}

// TestDeathWhileDialling: a connection that is being opened to a backend that dies goes to another.
func TestDeathWhileDialling(t *testing.T) {
	s, at, full := newServer(t), free(t, "127.0.0.1"), crowded(t)
	p := newPlane(t, proxy.Options{DialTimeout: time.Hour})
	apply(t, p, service(at, full))
	client := dial(t, at)
	eventually(t, "it is dialled", func() bool {
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
	s, at, taken := newServer(t), free(t, "127.0.0.1"), newServer(t)
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

	registry.Listen = []netip.AddrPort{at}
	err = p.Apply([]balancer.Service{service(at, s.addr), registry})
	want = fmt.Sprintf("api and registry both listen at %s: give one of them another address or port", at)
	if err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}

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
	s, at := newServer(t), free(t, "127.0.0.1")
	p := newPlane(t, proxy.Options{Log: slog.New(slog.NewTextHandler(&log, nil)), MaxConnections: 3})
	apply(t, p, service(at, s.addr))
	var clients []*net.TCPConn
	for range 6 {
		clients = append(clients, dial(t, at))
	}
	for range 3 {
		s.next(t)
	}
	eventually(t, "the log says that others wait", func() bool { return log.contain("carries as many connections as it may") })
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
	at := free(t, "127.0.0.1")
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
	s, at := newServer(t), free(t, "127.0.0.1")
	p := proxy.New(proxy.Options{Linger: time.Hour})
	apply(t, p, service(at, s.addr))
	client := dial(t, at)
	backend := s.next(t)

	closed := make(chan error, 1)
	go func() { closed <- p.Close() }()
	eventually(t, "nobody listens any more", func() bool {
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
	s, at := newServer(t), free(t, "127.0.0.1")
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
