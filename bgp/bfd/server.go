package bfd

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/internal/wake"
)

// Server keeps BFD sessions. It costs nothing until it has one.
type Server struct {
	log    *slog.Logger
	notify func(Status)

	mu     sync.Mutex // guards the fields below; never held while blocking
	inside func(func() error) error
	loop   *loop // nil before the first session
	closed bool
}

// NewServer returns a server that calls notify, which may be nil, when the State or Failed of a session changes: once for
// each change, in order, from one goroutine. Notify may call the server's methods except Close. Changes made by
// the caller, removing sessions and closing the server, are not reported.
func NewServer(log *slog.Logger, notify func(Status)) *Server {
	return &Server{log: log, notify: notify, inside: func(f func() error) error { return f() }}
}

// Inside makes the server open its sockets in functions passed to do, which must call them on a thread in another
// network namespace. Call it before Apply.
func (s *Server) Inside(do func(func() error) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inside = do
}

// Apply puts the sessions of the list in force, one for each peer. A session with a changed interval, multiplier or
// MinTTL stays up: a Poll Sequence informs the peer. A session with a changed Local or Multihop starts afresh. Removed
// sessions are shut down in the background. An error means that the list is invalid, or that the server is
// closed or cannot start; then nothing changes. Later problems of a session are in its status.
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
		_ = l.do(func() { // a server that is closed has no sessions
			for peer, session := range l.sessions {
				all[peer] = new(session.status())
			}
		})
	}
	return all
}

// Close shuts all sessions down, informs the peers, and returns when all goroutines have ended. When ctx ends, it stops
// waiting for the last packets and for notify, and returns the context's error.
func (s *Server) Close(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	l := s.loop
	s.mu.Unlock()
	if l == nil {
		return nil
	}
	_ = l.do(func() { // an error means that the loop has ended already
		l.closing = true
		for _, session := range l.sessions {
			l.dismiss(session)
		}
	})
	select {
	case <-l.done:
		return nil
	case <-ctx.Done():
		l.abort()
		return context.Cause(ctx)
	}
}

// started returns the loop, or nil. It starts the loop if wanted.
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

// run runs the loop and its reporter, and signals their end.
func (s *Server) run(l *loop) {
	defer close(l.done)
	ctx, ended := context.WithCancel(context.Background())
	var reporter sync.WaitGroup
	reporter.Go(func() { l.reporter.run(ctx) })
	l.run()
	ended()
	reporter.Wait()
}

// reporter passes changes of sessions to the log and the server's user. Both may be slow, so it does not block the loop.
type reporter struct {
	log    *slog.Logger
	notify func(Status)

	mu      sync.Mutex
	waiting []change
	arrived chan struct{} // has room for one
}

// change is a change of a session.
type change struct {
	status Status
	// trouble marks a change for the log only: a problem while the state is the same.
	trouble bool
}

func newReporter(log *slog.Logger, notify func(Status)) *reporter {
	return &reporter{log: log, notify: notify, arrived: make(chan struct{}, 1)}
}

// add queues a change.
func (r *reporter) add(c change) {
	r.mu.Lock()
	r.waiting = append(r.waiting, c)
	r.mu.Unlock()
	wake.Up(r.arrived)
}

// run passes changes on until ctx is done, and then the remaining ones.
func (r *reporter) run(ctx context.Context) {
	wake.Loop(ctx, r.arrived, r.passAll)
	r.passAll()
}

// passAll passes on the queued changes.
func (r *reporter) passAll() (never time.Time) {
	r.mu.Lock()
	batch := r.waiting
	r.waiting = nil
	r.mu.Unlock()
	for _, c := range batch {
		r.pass(c)
	}
	return never
}

func (r *reporter) pass(c change) {
	st := c.status
	level, attrs := slog.LevelInfo, []slog.Attr{slog.Any("peer", st.Peer), slog.String("state", st.State.String())}
	switch {
	case st.State == Init:
		level = slog.LevelDebug // on the way to something else
	case st.Failed || c.trouble:
		level = slog.LevelWarn
	}
	if st.Reason != "" {
		attrs = append(attrs, slog.String("reason", st.Reason))
	}
	r.log.LogAttrs(context.Background(), level, "BFD session", attrs...)
	if !c.trouble && r.notify != nil {
		r.notify(st)
	}
}
