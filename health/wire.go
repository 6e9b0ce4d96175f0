package health

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/url"
	"os"
	"time"
)

// dialFunc has the signature of [net.Dialer.DialContext].
type dialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// wire is an open connection to the endpoint. A probe uses it synchronously.
// Between probes, watch monitors it for its end.
type wire struct {
	raw    net.Conn // the TCP connection
	conn   net.Conn // raw, or TLS over it
	limit  *io.LimitedReader
	r      *bufio.Reader // conn through limit
	opened time.Time

	ended chan struct{} // closed when the watch ends; nil without a watch
	at    time.Time     // when the watch ended
	err   error         // why the watch ended
}

func newWire(raw net.Conn) *wire {
	w := &wire{raw: raw, opened: time.Now()}
	w.use(raw)
	return w
}

// use makes conn the stream to read and write.
func (w *wire) use(conn net.Conn) {
	w.conn = conn
	w.limit = &io.LimitedReader{R: conn, N: maxAnswer}
	w.r = bufio.NewReader(w.limit)
}

var past = time.Unix(1, 0)

// during runs do and makes its reads and writes fail when ctx ends. It closes the wire if do fails or is too late.
func (w *wire) during(ctx context.Context, do func() error) error {
	stop := context.AfterFunc(ctx, func() { _ = w.raw.SetDeadline(past) })
	err := do()
	if !stop() && err == nil {
		err = ctx.Err() // the answer arrived in time, but the connection has its deadline in the past
	}
	if err != nil {
		w.close()
	}
	return err
}

// Whether watch discards data that the server sends unasked.
const (
	discardNothing = false // HTTP: the data would be taken for the answer to the next request
	discardBanner  = true  // TCP: servers may send a banner; bounded by maxAnswer
)

var errUnasked = errors.New("the server sent data without a request")

// watch monitors the connection in a goroutine until the server ends it.
func (w *wire) watch(discard bool) {
	w.limit.N = maxAnswer
	w.ended = make(chan struct{})
	go func() {
		defer close(w.ended)
		if discard {
			_, w.err = w.r.WriteTo(io.Discard)
		} else if _, w.err = w.r.Peek(1); w.err == nil {
			w.err = errUnasked
		}
		w.at = time.Now()
	}()
}

// resume ends the watch. It returns an error if the connection cannot be used any more.
func (w *wire) resume() error {
	_ = w.raw.SetReadDeadline(past)
	<-w.ended
	w.ended = nil
	if !errors.Is(w.err, os.ErrDeadlineExceeded) {
		return w.err
	}
	return w.raw.SetReadDeadline(time.Time{})
}

// close ends the connection and waits for the watch to end. It sends no TLS close_notify, which could block on a frozen server.
func (w *wire) close() {
	_ = w.raw.Close()
	if w.ended != nil {
		<-w.ended
	}
}

// idleConn holds the connection that a probe leaves open and monitored until the next.
type idleConn struct {
	idle *wire // nil if the last probe left none
}

func (c *idleConn) monitored() *wire { return c.idle }

func (c *idleConn) close() {
	if c.idle != nil {
		c.idle.close()
		c.idle = nil
	}
}

// opener opens connections to the endpoint of a URL.
type opener struct {
	address string // host:port to dial
	secure  bool
	timeout time.Duration
	dial    dialFunc
	creds   *credentials
}

// newOpener returns an opener with the credentials of check. The protocol is an ALPN name (RFC 7301).
func newOpener(check HTTP, u *url.URL, protocol string, timeout time.Duration, dial dialFunc) opener {
	secure, port := u.Scheme == "https", "80"
	if secure {
		port = "443"
	}
	return opener{
		address: net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), port)), secure: secure, timeout: timeout, dial: dial,
		creds: newCredentials(check, u, protocol),
	}
}

// open dials a fresh connection and, for https, secures it. The caller has refreshed the credentials.
func (o *opener) open(ctx context.Context) (*wire, error) {
	raw, err := o.dial(ctx, "tcp", o.address)
	if err != nil {
		return nil, &stageError{"no connection", err}
	}
	w := newWire(raw)
	if !o.secure {
		return w, nil
	}
	conn := tls.Client(raw, o.creds.tls)
	if err := w.during(ctx, conn.Handshake); err != nil {
		return nil, &stageError{"no TLS handshake", err}
	}
	w.use(conn)
	if chain := conn.ConnectionState().PeerCertificates; len(chain) > 0 {
		o.creds.server = validity{chain[0].NotBefore, chain[0].NotAfter}
	}
	return w, nil
}

// explain turns a fault of the connection into an outcome.
func (o *opener) explain(err error) outcome {
	if out := o.creds.explainTLS(err, time.Now()); out.reason != "" {
		return out
	}
	return explain(err, o.timeout)
}
