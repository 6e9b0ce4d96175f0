// Package ruleset is how Herald's tables of nftables are written: a socket to the kernel,
// calls that end even if the kernel does not answer, news of changes, and expressions
// to match packets with.
package ruleset

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/google/nftables"
	"github.com/mdlayher/netlink"
)

// AnswerTimeout is how long a call to the kernel may take. Nothing else depends on it:
// far more than thousands of addresses need, and soon enough to report.
const AnswerTimeout = time.Second

// ErrStuck is when the kernel does not answer within a second, as while another
// program's huge batch holds the lock of nftables, or when this process stood still
// for so long.
var ErrStuck = errors.New("nftables does not answer")

// Calls are calls to the kernel, of which at most one is under way.
type Calls struct {
	timeout time.Duration
	busy    chan struct{} // holds one for the call that is under way
}

// NewCalls returns Calls that are waited for as long as the timeout.
func NewCalls(timeout time.Duration) Calls { return Calls{timeout, make(chan struct{}, 1)} }

// Do calls do, which calls the kernel, but does not wait for ever: then the error is
// ErrStuck, and do goes on all the same.
func (c Calls) Do(do func() error) error {
	select {
	case c.busy <- struct{}{}:
	default: // the last one is stuck still; callers have other things to do than to wait for it again
		return ErrStuck
	}
	deadline := time.NewTimer(c.timeout)
	defer deadline.Stop()
	done := make(chan error, 1)
	go func() {
		err := do()
		<-c.busy
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-deadline.C:
		return ErrStuck
	}
}

// Socket is the kernel's nftables, for one call at a time. It stays open from one
// call to the next, because closing it waits for what was deleted to be out of use;
// but not after an error, so that a late answer is never taken for the next one's.
type Socket struct {
	NetNS   int           // file descriptor of a network namespace; 0: the process's
	Timeout time.Duration // of a call; 0: AnswerTimeout

	conn   *nftables.Conn
	socket *netlink.Conn // conn's
}

// buffer holds the largest batch, and the answers to it: gating 10,000 addresses takes some 3 MB.
const buffer = 8 << 20

// Do calls f with a connection.
func (s *Socket) Do(f func(*nftables.Conn) error) error {
	if s.conn == nil {
		conn, err := nftables.New(nftables.AsLasting(), nftables.WithNetNSFd(s.NetNS), nftables.WithSockOptions(s.setUp))
		if err != nil {
			return fmt.Errorf("open netlink socket: %w", err)
		}
		s.conn = conn
	}
	err := s.socket.SetDeadline(time.Now().Add(cmp.Or(s.Timeout, AnswerTimeout)))
	if err == nil {
		err = f(s.conn)
	}
	if err != nil {
		s.Close()
	}
	return err
}

func (s *Socket) setUp(socket *netlink.Conn) error {
	s.socket = socket
	_ = socket.SetOption(netlink.CapAcknowledge, true) // errors need not repeat the request; harmless if they do
	_ = socket.SetReadBuffer(buffer)
	return socket.SetWriteBuffer(buffer)
}

// Close frees what is held between calls; another call may follow.
func (s *Socket) Close() {
	if s.conn != nil {
		_ = s.conn.CloseLasting()
		s.conn = nil
	}
}

// Flush sends the batch. Of its errors it returns the first, which the others follow from.
func Flush(c *nftables.Conn) error {
	err := c.Flush()
	for unwrapped := err; unwrapped != nil; {
		switch e := unwrapped.(type) {
		case interface{ Unwrap() []error }:
			err = e.Unwrap()[0]
			unwrapped = err
		case interface{ Unwrap() error }:
			unwrapped = e.Unwrap()
		default:
			return err
		}
	}
	return err
}
