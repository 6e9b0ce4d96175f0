package bfd

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// Server keeps BFD sessions. It costs nothing until it has one.
type Server struct {
	log    *slog.Logger
	notify func(Status)

	mu     sync.Mutex // guards what follows; held for no longer than it takes to read or set it
	inside func(func() error) error
	loop   *loop // nil until the first session is to be kept
	closed bool
}

// NewServer makes a server that calls notify, which may be nil, whenever the
// State or Failed of a session changes, once for each change and in order, from
// a goroutine that does nothing else. Notify may call the server's methods
// other than Close. What the caller does itself, which is to remove sessions
// and to close the server, is not reported.
func NewServer(log *slog.Logger, notify func(Status)) *Server {
	return &Server{log: log, notify: notify, inside: func(f func() error) error { return f() }}
}

// Inside has the server open its sockets in functions that it gives to do, which
// is to call them on a thread that is in another network namespace. It is
// called before Apply.
func (s *Server) Inside(do func(func() error) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inside = do
}

// Apply makes the sessions those of the list, one for each peer. A session
// whose interval, multiplier or MinTTL changes stays up: the peer is told by a
// Poll Sequence. One whose Local or Multihop changes starts afresh. The peers
// of sessions that are not in the list are told that those are shut down, in
// the background. An error means that the list is not valid, or that the
// server is closed or cannot start, and changes nothing; what goes wrong with
// a session later is in its status.
func (s *Server) Apply(sessions []Config) error {
	wanted := make(map[netip.Addr]Config)
	for _, c := range sessions {
		if err := c.Validate(); err != nil {
			return err
		}
		if _, twice := wanted[c.Peer]; twice {
			return fmt.Errorf("BFD session with %v: there are two", c.Peer)
		}
		wanted[c.Peer] = c
	}
	l, err := s.started(len(sessions) > 0)
	if err != nil || l == nil {
		return err
	}
	if doErr := l.do(func() { err = l.apply(wanted) }); doErr != nil {
		return doErr
	}
	return err
}

// Statuses returns the status of each session, by peer.
func (s *Server) Statuses() map[netip.Addr]*Status {
	all := make(map[netip.Addr]*Status)
	if l, _ := s.started(false); l != nil {
		_ = l.do(func() { l.addStatuses(all) }) // a server that is closed has no sessions
	}
	return all
}

// Close shuts all sessions down, tells the peers so, and returns when nothing
// is left running. When ctx ends, it does not wait for the last packets or for
// notify, and returns the context's error.
func (s *Server) Close(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	l := s.loop
	s.mu.Unlock()
	if l == nil {
		return nil
	}
	_ = l.do(l.leave) // it fails if the loop has ended, which is what is wanted
	select {
	case <-l.done:
		return nil
	case <-ctx.Done():
		l.abort()
		return context.Cause(ctx)
	}
}

// started returns the loop, which it starts if that is wanted, or nil.
func (s *Server) started(start bool) (*loop, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, ErrClosed
	}
	if s.loop == nil && start {
		wake, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
		if err != nil {
			return nil, fmt.Errorf("start BFD: %w", os.NewSyscallError("eventfd", err))
		}
		s.loop = newLoop(wake, newReporter(s.log, s.notify), s.inside)
		go s.run(s.loop)
	}
	return s.loop, nil
}

// run runs the loop and its reporter, and tells when both have ended.
func (s *Server) run(l *loop) {
	defer close(l.done)
	ctx, ended := context.WithCancel(context.Background())
	var reporter sync.WaitGroup
	reporter.Go(func() { l.reporter.run(ctx) })
	l.run()
	ended()
	reporter.Wait()
}
