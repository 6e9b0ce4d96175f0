// Package hostile is a misbehaving BGP peer: it sends malformed and oversized
// messages, floods, hangs, and hangs up. It tests that a speaker does not crash,
// stall, grow, or fail its other peers. Its messages depend only on its seed.
package hostile

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"iter"
	"net"
	"net/netip"
	"time"
)

// Peer is a hostile peer.
type Peer struct {
	// ASN is the peer's own, in all OPENs that are not meant to be refused for their ASN.
	ASN uint32
	// RouterID is its BGP identifier and the next hop of its routes.
	RouterID netip.Addr
	// Seed determines all random choices.
	Seed uint64
	// Connect opens the next connection to the speaker, or waits for one; see [Dial] and [Accept].
	Connect func(context.Context) (net.Conn, error)
}

// Outcome is the result of one connection.
type Outcome struct {
	// Accepted reports whether the speaker answered the OPEN with a KEEPALIVE.
	Accepted bool
	// Notification is the body of the speaker's final NOTIFICATION: code, subcode and
	// data. Nil if it sent none.
	Notification []byte
}

// String returns the outcome in a few words.
func (o Outcome) String() string {
	switch {
	case len(o.Notification) >= 2:
		return fmt.Sprintf("refused with NOTIFICATION %d/%d", o.Notification[0], o.Notification[1])
	case o.Accepted:
		return "accepted"
	}
	return "hung up on"
}

// script describes the peer's behaviour in one connection.
type script struct {
	open     []byte           // in place of a valid OPEN
	mute     bool             // sends nothing at all.
	settle   bool             // waits until the speaker considers the session established
	lockstep bool             // and until it has handled each message before the next is sent.
	messages iter.Seq[[]byte] // sent after OPEN and KEEPALIVE, without regard to the answers.
	slowOpen bool             // one octet of the OPEN per second,
	slow     bool             // or of the messages
	deaf     bool             // stops reading when the OPEN is accepted.
	stay     bool             // then keeps the session up, instead of hanging up
	abort    bool             // hangs up with a TCP reset
}

// retry is the delay before connecting again to a speaker that is not ready.
const retry = 5 * time.Millisecond

// Run runs an attack until it is complete or ctx ends, and calls on with the outcome
// of each connection. It repeats a connection that the speaker closes before sending
// its OPEN. The error is that of a connection that cannot be opened.
func (p *Peer) Run(ctx context.Context, a Attack, on func(Outcome)) error {
	for s := range a.scripts(newGenerator(p, a.Name)) {
		for counts := false; !counts; {
			conn, err := p.Connect(ctx)
			if ctx.Err() != nil {
				return nil
			}
			if err != nil {
				return fmt.Errorf("hostile peer: %w", err)
			}
			var outcome Outcome
			if outcome, counts = p.play(ctx, conn, s); counts {
				on(outcome)
				continue
			}
			select {
			case <-time.After(retry):
			case <-ctx.Done():
				return nil
			}
		}
	}
	return nil
}

// play runs s in one connection. The connection does not count if the speaker sent nothing.
func (p *Peer) play(ctx context.Context, conn net.Conn, s script) (outcome Outcome, counts bool) {
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	heard := make(chan byte, 1) // the types of messages, while talk waits for them
	done := make(chan struct{})
	go func() {
		defer close(done)
		outcome, counts = listen(conn, s.deaf, heard)
	}()
	p.talk(ctx, conn, s, heard, done)
	conn.Close()
	<-done
	return outcome, counts
}

// listen reads the speaker's messages until it hangs up or, if deaf, accepts an OPEN.
func listen(conn io.Reader, deaf bool, heard chan<- byte) (o Outcome, any bool) {
	header := make([]byte, headerLength)
	for {
		if _, err := io.ReadFull(conn, header); err != nil {
			return o, any
		}
		any = true
		body := make([]byte, max(int(binary.BigEndian.Uint16(header[16:]))-headerLength, 0))
		if _, err := io.ReadFull(conn, body); err != nil {
			return o, any
		}
		switch header[18] {
		case typeKeepalive:
			o.Accepted = true
		case typeNotification:
			o.Notification = body
		}
		select {
		case heard <- header[18]:
		default:
		}
		if deaf && o.Accepted {
			return o, any
		}
	}
}

// talk runs the sending side of s, and returns when the connection may be closed. The
// channel done is closed when the speaker hangs up, or when a deaf peer stops reading.
func (p *Peer) talk(ctx context.Context, conn net.Conn, s script, heard <-chan byte, done <-chan struct{}) {
	if s.mute {
		<-done
		return
	}
	hello := s.open
	if hello == nil {
		hello = p.open()
	}
	if !write(ctx, conn, hello, s.slowOpen) || !write(ctx, conn, keepalive(), false) {
		return
	}
	if s.settle && !await(ctx, conn, heard, done) {
		return
	}
	if s.messages != nil {
		for m := range s.messages {
			if !write(ctx, conn, m, s.slow) || s.lockstep && !await(ctx, conn, heard, done) {
				break
			}
		}
	}
	switch tcp, ok := conn.(*net.TCPConn); {
	case s.stay:
		keepUp(ctx, conn, done, s.deaf)
	case ok && s.abort:
		_ = tcp.SetLinger(0) // makes closing a reset
	case ok:
		// The speaker reads all sent data before it finds the end, and then hangs up.
		if tcp.CloseWrite() == nil {
			<-done
		}
	}
}

// write sends b, one octet per second if slow, and reports whether it succeeded.
func write(ctx context.Context, conn io.Writer, b []byte, slow bool) bool {
	if !slow {
		_, err := conn.Write(b)
		return err == nil
	}
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for _, octet := range b {
		if _, err := conn.Write([]byte{octet}); err != nil {
			return false
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// await requests all routes until an UPDATE arrives. Once the speaker considers the
// session established and has handled the earlier messages, it always sends one, even
// without routes.
func await(ctx context.Context, conn io.Writer, heard <-chan byte, done <-chan struct{}) bool {
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for {
		if !write(ctx, conn, routeRefresh(afiIPv4, safiUnicast), false) {
			return false
		}
		for waiting := true; waiting; {
			select {
			case kind := <-heard:
				if kind == typeUpdate {
					return true
				}
			case <-again.C:
				waiting = false
			case <-done:
				return false
			case <-ctx.Done():
				return false
			}
		}
	}
}

// keepUp sends KEEPALIVEs until the speaker hangs up or ctx ends.
func keepUp(ctx context.Context, conn io.Writer, done <-chan struct{}, deaf bool) {
	if deaf {
		done = nil // it only means that the peer stopped reading
	}
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			if !write(ctx, conn, keepalive(), false) {
				return
			}
		case <-done:
			return
		case <-ctx.Done():
			return
		}
	}
}

// Dial connects from the local address to the speaker, retrying until it listens.
func Dial(local netip.Addr, speaker netip.AddrPort) func(context.Context) (net.Conn, error) {
	dialer := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(local, 0))}
	return func(ctx context.Context) (net.Conn, error) {
		for {
			conn, err := dialer.DialContext(ctx, "tcp", speaker.String())
			if err == nil {
				return small(conn), nil
			}
			select {
			case <-time.After(retry):
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
	}
}

// Accept takes the connections that the speaker opens. It closes the listener when a
// call's context ends.
func Accept(l net.Listener) func(context.Context) (net.Conn, error) {
	return func(ctx context.Context) (net.Conn, error) {
		defer context.AfterFunc(ctx, func() { l.Close() })()
		conn, err := l.Accept()
		if err != nil {
			return nil, err
		}
		return small(conn), nil
	}
}

// small gives a connection small buffers, so that the speaker soon notices a peer that does not
// read.
func small(conn net.Conn) net.Conn {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetReadBuffer(4096)
	}
	return conn
}
