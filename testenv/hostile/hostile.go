// Package hostile is a BGP peer that does what no router should: it sends
// malformed and oversized messages, floods, hangs, and hangs up. It is the test
// of a speaker that must neither crash nor stall nor grow, nor fail its other
// peers, whatever one of them does. What it sends depends on its seed only.
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
	// ASN is its own, in the OPENs that are not meant to be refused for it.
	ASN uint32
	// RouterID is its BGP identifier and the next hop of its routes.
	RouterID netip.Addr
	// Seed determines all that is random.
	Seed uint64
	// Connect opens the next connection to the speaker, or waits for one; see [Dial] and [Accept].
	Connect func(context.Context) (net.Conn, error)
}

// Outcome is what became of one connection.
type Outcome struct {
	// Accepted is whether the speaker answered the OPEN with a KEEPALIVE.
	Accepted bool
	// Notification is the body of the NOTIFICATION with which the speaker ended
	// the session: code, subcode and data. Nil if it sent none.
	Notification []byte
}

// String tells it in a few words.
func (o Outcome) String() string {
	switch {
	case len(o.Notification) >= 2:
		return fmt.Sprintf("refused with NOTIFICATION %d/%d", o.Notification[0], o.Notification[1])
	case o.Accepted:
		return "accepted"
	}
	return "hung up on"
}

// script is what the peer does in one connection.
type script struct {
	open     []byte           // in place of a valid OPEN
	mute     bool             // says nothing at all
	settle   bool             // waits for the speaker to take the session for established
	lockstep bool             // and to have handled each message before the next is sent
	messages iter.Seq[[]byte] // sent after OPEN and KEEPALIVE, with no regard to the answers
	slowOpen bool             // an octet of the OPEN a second,
	slow     bool             // or of the messages
	deaf     bool             // stops reading when the OPEN is accepted
	stay     bool             // then keeps the session up, instead of hanging up
	abort    bool             // hangs up with a TCP reset
}

// retry is how long to wait before connecting to a speaker again that is not ready.
const retry = 5 * time.Millisecond

// Run runs an attack from its beginning to its end, or until ctx ends, and
// tells on the outcome of each connection. A connection that the speaker
// closes before it has sent its OPEN does not count: it is made again. The
// error is of a connection that cannot be opened.
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

// play does what s says in one connection. The connection does not count if
// the speaker said nothing.
func (p *Peer) play(ctx context.Context, conn net.Conn, s script) (outcome Outcome, counts bool) {
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	heard := make(chan byte, 1) // the types of messages, as far as anyone waits for them
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

// listen reads what the speaker sends until it hangs up, or accepts an OPEN
// and is not listened to any more.
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

// talk sends what s says and returns when the connection may be closed. The
// speaker has hung up when done is closed, unless it is not listened to.
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
		// The speaker reads all that was sent before it finds the end, and then
		// hangs up.
		if tcp.CloseWrite() == nil {
			<-done
		}
	}
}

// write sends b, if slow an octet a second, and reports whether it was sent.
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

// await asks for all routes until an UPDATE is heard: there is always one, if
// only to say that there are none, once the speaker takes the session for
// established and has handled all that was sent before.
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
		done = nil // it says only that nobody listens
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

// Dial connects from the local address to the speaker, as often as it takes
// until it listens.
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

// Accept takes the connections that the speaker opens. It closes the listener
// when a call's context ends.
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

// small gives a connection little room for what is not read, so that a peer
// that does not read is soon noticed.
func small(conn net.Conn) net.Conn {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetReadBuffer(4096)
	}
	return conn
}
