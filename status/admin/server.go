package admin

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// Daemon is the running speaker.
type Daemon interface {
	// Status returns its state.
	Status() Status
	// Services returns the Services that are Herald's, sorted by name.
	Services() []Service
	// Drain returns once every VIP is withdrawn and unbound. It waits for connections to end until deadline, which
	// replaces that of an earlier drain. With untilUndrain the drain outlasts the process; if that cannot be recorded,
	// it returns an error and drains nothing.
	Drain(ctx context.Context, reason string, untilUndrain bool, deadline time.Duration) error
	// Undrain announces healthy VIPs again. It returns an error if a restart would drain again.
	Undrain() error
	// RemoveMember removes the vote of a member that has timed out, and returns once the other voters agree.
	RemoveMember(ctx context.Context, member string) error
}

// Server serves HTTP on a listener.
type Server struct {
	subject  string // of errors
	listener net.Listener
	http     *http.Server
}

// NewServer returns a server of h on l, which it closes. Its errors begin with subject.
func NewServer(subject string, l net.Listener, h *http.Server) *Server {
	return &Server{subject, l, h}
}

// Listen opens the control socket at path for its owner alone, and creates it again if another process removes it. It
// takes over the socket of a crashed predecessor; if a live process answers on it, it returns an error. Errors of single
// connections are logged at debug level.
func Listen(path string, log *slog.Logger, d Daemon) (*Server, error) {
	s := &socket{path: path, log: log}
	if err := s.open(); err != nil {
		return nil, err
	}
	return NewServer("admin socket", s, &http.Server{
		Handler:           handler(d),
		ReadHeaderTimeout: time.Second,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}), nil
}

// Serve answers until [Server.Close].
func (s *Server) Serve() error {
	if err := s.http.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("%s: %w", s.subject, err)
	}
	return nil
}

// Close closes the listener, which removes its socket, and all connections.
func (s *Server) Close() error {
	// The HTTP server does not know its listener before Serve.
	if err := errors.Join(s.http.Close(), s.listener.Close()); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

func handler(d Daemon) http.Handler {
	mux := http.NewServeMux()
	answer := func(w http.ResponseWriter, what any) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(what) // the only error is a client that has gone
	}
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) { answer(w, d.Status()) })
	mux.HandleFunc("GET /services", func(w http.ResponseWriter, _ *http.Request) { answer(w, d.Services()) })
	mux.HandleFunc("POST /drain", func(w http.ResponseWriter, r *http.Request) {
		ctx := r.Context()
		deadline, _ := time.ParseDuration(r.FormValue("deadline")) // an older client asks for none
		if limit, err := time.ParseDuration(r.FormValue("limit")); err == nil && limit > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, limit)
			defer cancel()
		}
		err := d.Drain(ctx, cmp.Or(r.FormValue("reason"), "herald drain"), r.FormValue("untilUndrain") == "true", deadline)
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})
	mux.HandleFunc("POST /undrain", func(w http.ResponseWriter, _ *http.Request) {
		if err := d.Undrain(); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})
	mux.HandleFunc("POST /members/remove", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), 10*time.Second) // for the voters to agree
		defer cancel()
		if err := d.RemoveMember(ctx, r.FormValue("name")); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})
	return mux
}

// socket is a Unix listener that creates its socket again after another process removes or replaces it.
type socket struct {
	path string
	log  *slog.Logger

	mu       sync.Mutex
	listener *net.UnixListener
	made     os.FileInfo // the file, for comparison
	trouble  string      // the last logged error
	closed   bool
}

// open creates the socket.
func (s *socket) open() error {
	if err := os.MkdirAll(filepath.Dir(s.path), 0o755); err != nil {
		return fmt.Errorf("admin socket: %w", err)
	}
	if conn, err := net.DialTimeout("unix", s.path, time.Second); err == nil {
		conn.Close()
		return fmt.Errorf("admin socket: another herald answers on %s: a node runs only one", s.path)
	} else if errors.Is(err, syscall.ECONNREFUSED) {
		if info, err := os.Lstat(s.path); err == nil && info.Mode().Type() != os.ModeSocket {
			return fmt.Errorf("admin socket: %s is not a socket: remove it, or set admin.socket to another path", s.path)
		}
		if err := os.Remove(s.path); err != nil {
			return fmt.Errorf("admin socket: remove the stale one: %w", err)
		}
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: s.path, Net: "unix"})
	if err != nil {
		return fmt.Errorf("admin socket: %w", err)
	}
	l.SetUnlinkOnClose(false) // another process may have the path by then
	err = os.Chmod(s.path, 0o600)
	if err == nil {
		s.made, err = os.Lstat(s.path)
	}
	if err != nil {
		l.Close()
		return fmt.Errorf("admin socket: %w", err)
	}
	s.listener = l
	return nil
}

// Accept implements [net.Listener].
func (s *socket) Accept() (net.Conn, error) {
	for {
		s.mu.Lock()
		l := s.listener
		s.mu.Unlock()
		// Look every second whether the socket is still at its path.
		if err := l.SetDeadline(time.Now().Add(time.Second)); err != nil {
			return nil, err
		}
		conn, err := l.Accept()
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return conn, err
		}
		s.restore()
	}
}

// restore creates the socket again if it is missing. It logs a failure once.
func (s *socket) restore() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.there() {
		return
	}
	old := s.listener
	err := s.open()
	if err == nil {
		s.trouble = ""
		s.log.Warn("admin socket was removed: created it again", "socket", s.path)
		old.Close()
	} else if s.trouble != err.Error() {
		s.trouble = err.Error()
		s.log.Error("admin socket was removed and cannot be created again yet", "err", err)
	}
}

// there reports whether the path still leads to the socket.
func (s *socket) there() bool {
	now, err := os.Lstat(s.path)
	return err == nil && os.SameFile(now, s.made)
}

// Close implements [net.Listener]. It removes the socket, unless another has its path.
func (s *socket) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var err error
	if !s.closed && s.there() {
		err = os.Remove(s.path)
	}
	s.closed = true
	return errors.Join(err, s.listener.Close())
}

// Addr implements [net.Listener].
func (s *socket) Addr() net.Addr { return &net.UnixAddr{Name: s.path, Net: "unix"} }
