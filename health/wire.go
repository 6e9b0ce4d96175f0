package health

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"time"
)

// dialFunc is the shape of [net.Dialer.DialContext].
type dialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// wire is an open connection to the endpoint. A probe uses it synchronously;
// between probes it is watched, and so is the tripwire.
type wire struct {
	raw    net.Conn // the TCP connection
	conn   net.Conn // raw, or TLS over it
	limit  *io.LimitedReader
	r      *bufio.Reader // conn through limit
	opened time.Time

	ended chan struct{} // closed when the watch ends; nil if there is none
	at    time.Time     // when it ended
	err   error         // why it ended
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

// during runs do, which reads and writes, until ctx ends. It closes the wire if do fails or was too late.
func (w *wire) during(ctx context.Context, do func() error) error {
	stop := context.AfterFunc(ctx, func() { _ = w.raw.SetDeadline(past) })
	err := do()
	if !stop() && err == nil {
		err = ctx.Err() // the answer won the race, but the connection can no longer be used
	}
	if err != nil {
		w.close()
	}
	return err
}

// What a watched server may say unasked.
const (
	discardNothing  = false // HTTP: it would pass for the answer to the next request
	discardGreeting = true  // TCP: servers may greet; bounded by maxAnswer
)

var errUnasked = errors.New("the server spoke unasked")

// watch waits in a goroutine for the server to end the connection.
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

// resume ends the watch and returns why the connection cannot be used any more, or nil.
func (w *wire) resume() error {
	_ = w.raw.SetReadDeadline(past)
	<-w.ended
	w.ended = nil
	if !errors.Is(w.err, os.ErrDeadlineExceeded) {
		return w.err
	}
	return w.raw.SetReadDeadline(time.Time{})
}

// close ends the connection and waits for the watch to end. It says no TLS goodbye, which could block on a frozen server.
func (w *wire) close() {
	_ = w.raw.Close()
	if w.ended != nil {
		<-w.ended
	}
}

// kept is the connection that a probe leaves open, as the tripwire until the next.
type kept struct {
	idle *wire // nil if the last probe left none
}

func (k *kept) tripwire() *wire { return k.idle }

func (k *kept) close() {
	if k.idle != nil {
		k.idle.close()
		k.idle = nil
	}
}
