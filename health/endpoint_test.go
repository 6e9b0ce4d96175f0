package health_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/herald-vip/herald/health"
	"github.com/herald-vip/herald/testenv/must"
)

// endpoint is a host in memory with one port: the network that virtual time needs.
// It is a [net.Listener] to its server and a dialer to the checks.
type endpoint struct {
	mu       sync.Mutex
	state    portState
	reset    bool // connections end by a reset
	backlog  chan net.Conn
	closed   chan struct{}
	close    func()
	handler  atomic.Pointer[http.HandlerFunc]
	accepted []net.Conn
	dialed   []time.Time
}

type portState int

const (
	listening portState = iota
	refusing            // no listener
	frozen              // the kernel accepts, the server does nothing
	silent              // no answer to a SYN
)

func newEndpoint() *endpoint {
	e := &endpoint{backlog: make(chan net.Conn, 64), closed: make(chan struct{})}
	e.close = sync.OnceFunc(func() { close(e.closed) })
	return e
}

func (e *endpoint) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.dialed = append(e.dialed, time.Now())
	switch e.state {
	case refusing:
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	case silent:
		e.mu.Unlock()
		<-ctx.Done()
		e.mu.Lock()
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: ctx.Err()}
	}
	client, server := newPipe()
	e.accepted = append(e.accepted, server)
	if e.state == listening {
		e.backlog <- server
	}
	return &clientConn{client, e}, nil
}

// newPipe returns the two ends of a connection in memory that buffers writes, as kernels do.
func newPipe() (client, server net.Conn) {
	a, b := net.Pipe()
	return newBuffered(a, false), newBuffered(b, true)
}

// buffered forwards writes in a goroutine. With linger, Close lets that finish first.
type buffered struct {
	net.Conn
	linger bool
	queue  chan []byte
	done   chan struct{}
	end    func()
}

func newBuffered(c net.Conn, linger bool) *buffered {
	b := &buffered{Conn: c, linger: linger, queue: make(chan []byte, 16), done: make(chan struct{})}
	b.end = sync.OnceFunc(func() { close(b.done) })
	go b.flush()
	return b
}

func (b *buffered) Write(p []byte) (int, error) {
	select {
	case <-b.done:
		return 0, net.ErrClosed
	case b.queue <- bytes.Clone(p):
		return len(p), nil
	}
}

func (b *buffered) Close() error {
	b.end()
	if b.linger {
		return nil
	}
	return b.Conn.Close()
}

func (b *buffered) flush() {
	defer b.end()
	if b.linger { // the other end still reads the data, then the end of the stream
		defer b.Conn.Close()
	}
	for {
		select {
		case p := <-b.queue:
			if _, err := b.Conn.Write(p); err != nil {
				return
			}
		case <-b.done:
			if len(b.queue) == 0 {
				return
			}
		}
	}
}

// clientConn is the client's end; it distinguishes a reset from an orderly end.
type clientConn struct {
	net.Conn
	e *endpoint
}

func (c *clientConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.e.mu.Lock()
	defer c.e.mu.Unlock()
	if err == io.EOF && c.e.reset {
		err = os.NewSyscallError("read", syscall.ECONNRESET)
	}
	return n, err
}

func (e *endpoint) Accept() (net.Conn, error) {
	select {
	case c := <-e.backlog:
		return c, nil
	case <-e.closed:
		return nil, net.ErrClosed
	}
}

func (e *endpoint) Addr() net.Addr { return &net.TCPAddr{} }

func (e *endpoint) Close() error {
	e.close()
	e.hangUp()
	return nil
}

func (e *endpoint) become(s portState) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.state = s
}

// hangUp ends all connections.
func (e *endpoint) hangUp() {
	e.mu.Lock()
	conns := e.accepted
	e.accepted = nil
	e.mu.Unlock()
	for _, c := range conns {
		_ = c.Close()
	}
}

// kill ends the server's process as the kernel does: connections with unread data are reset.
func (e *endpoint) kill(reset bool) {
	e.mu.Lock()
	e.state, e.reset = refusing, reset
	e.mu.Unlock()
	e.hangUp()
}

// dials counts the connections made since the last call.
func (e *endpoint) dials() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := len(e.dialed)
	e.dialed = nil
	return n
}

// serve answers over HTTP from now on.
func (e *endpoint) serve(h http.HandlerFunc) { e.serveOn(e, h) }

// serveTLS answers over HTTPS from now on. The configuration is that of the first call.
func (e *endpoint) serveTLS(h http.HandlerFunc, c *tls.Config) { e.serveOn(tls.NewListener(e, c), h) }

func (e *endpoint) serveOn(l net.Listener, h http.HandlerFunc) {
	if e.handler.Swap(&h) != nil {
		return
	}
	srv := &http.Server{
		Handler:  http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { (*e.handler.Load())(w, r) }),
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0),
	}
	go func() { _ = srv.Serve(l) }()
}

// script lets serve handle each connection by itself.
func (e *endpoint) script(serve func(net.Conn)) {
	go func() {
		for {
			c, err := e.Accept()
			if err != nil {
				return
			}
			go serve(c)
		}
	}()
}

// answers answers each request of a connection with the same bytes.
func answers(s string) func(net.Conn) {
	return func(c net.Conn) {
		r := bufio.NewReader(c)
		for {
			if _, err := http.ReadRequest(r); err != nil {
				return
			}
			_, _ = io.WriteString(c, s)
		}
	}
}

// says sends bytes without regard to the request, and leaves the connection open.
func says(s string) func(net.Conn) {
	return func(c net.Conn) {
		go func() { _, _ = io.WriteString(c, s) }()
		_, _ = io.Copy(io.Discard, c)
	}
}

const empty200 = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"

// ok is a handler that answers 200.
func ok(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }

// rig is a monitor of one endpoint that records its notifications.
type rig struct {
	*endpoint
	monitor *health.Monitor
	t       *testing.T
	mu      sync.Mutex
	told    []health.Verdict
	log     bytes.Buffer
}

// onRig returns a test that runs in a synctest bubble with a new rig. It may leave no goroutine.
func onRig(test func(t *testing.T, b *rig)) func(*testing.T) {
	return func(t *testing.T) { synctest.Test(t, func(t *testing.T) { test(t, newRig(t)) }) }
}

func newRig(t *testing.T) *rig {
	b := &rig{endpoint: newEndpoint(), t: t}
	b.monitor = health.NewMonitorOver(b.dial, slog.New(slog.NewTextHandler(&b.log, nil)), func(v health.Verdict) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.told = append(b.told, v)
	})
	t.Cleanup(func() {
		b.monitor.Close()
		_ = b.Close()
		pass(time.Second) // until the servers have ended, too
	})
	return b
}

func (b *rig) apply(checks ...health.Check) {
	b.t.Helper()
	must.Do(b.t, b.monitor.Apply(checks))
}

// verdict returns the verdict of the only check.
func (b *rig) verdict() health.Verdict {
	b.t.Helper()
	vs := b.monitor.Verdicts()
	if len(vs) != 1 {
		b.t.Fatalf("%d verdicts, want one", len(vs))
	}
	return vs[0]
}

// history returns the states notified so far, one word each.
func (b *rig) history() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var words []string
	for _, v := range b.told {
		words = append(words, v.State.String())
	}
	return strings.Join(words, " ")
}

func (b *rig) want(s health.State, reason string) {
	b.t.Helper()
	v := b.verdict()
	if v.State != s || !strings.Contains(v.Reason, reason) {
		b.t.Errorf("%v: %q, want %v: …%q…", v.State, v.Reason, s, reason)
	}
}

func (b *rig) wantHistory(want string) {
	b.t.Helper()
	if got := b.history(); got != want {
		b.t.Errorf("notified %q, want %q", got, want)
	}
}

// healthy applies the check and lets it pass.
func (b *rig) healthy(c health.Check) {
	b.t.Helper()
	b.apply(c)
	pass(time.Second)
	b.want(health.Healthy, "")
	b.wantHistory("healthy")
}

// pass advances virtual time.
func pass(d time.Duration) {
	time.Sleep(d) // in a synctest bubble
	synctest.Wait()
}

// check returns a plain check, changed by adjust.
func check(adjust ...func(*health.Check)) health.Check {
	c := health.Check{
		Name: "apiserver",
		HTTP: &health.HTTP{URL: "http://127.0.0.1:8080/readyz"},
		Pace: health.Pace{Interval: 200 * time.Millisecond, Timeout: 500 * time.Millisecond, Rise: 2, Fall: 2},
	}
	for _, a := range adjust {
		a(&c)
	}
	return c
}

func overTCP(c *health.Check) { c.HTTP, c.TCP = nil, &health.TCP{Address: "127.0.0.1:5001"} }
func once(c *health.Check)    { c.Rise, c.Fall = 1, 1 }
func fall(n int) func(*health.Check) {
	return func(c *health.Check) { c.Fall = n }
}
