package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// Daemon is the running speaker as the socket's users command it.
type Daemon interface {
	// Status tells how it stands.
	Status() Status
	// Services tells of each Service that is Herald's, in the order of their names.
	Services() []Service
	// Drain returns when every VIP is withdrawn and unbound.
	Drain(ctx context.Context, reason string) error
	// Undrain announces again what is healthy.
	Undrain()
}

// Server serves the control socket.
type Server struct {
	listener net.Listener
	http     *http.Server
}

// Listen opens the control socket at path for the owner alone. A socket that a
// crashed predecessor left is taken over; one that a live process answers on
// is an error. What goes wrong with single connections is logged at debug level.
func Listen(path string, log *slog.Logger, d Daemon) (*Server, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("admin socket: %w", err)
	}
	if conn, err := net.DialTimeout("unix", path, time.Second); err == nil {
		conn.Close()
		return nil, fmt.Errorf("admin socket: another herald answers on %s: a node runs only one", path)
	} else if errors.Is(err, syscall.ECONNREFUSED) {
		if info, err := os.Lstat(path); err == nil && info.Mode().Type() != os.ModeSocket {
			return nil, fmt.Errorf("admin socket: %s is not a socket: remove it, or set admin.socket to another path", path)
		}
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("admin socket: remove the stale one: %w", err)
		}
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("admin socket: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		l.Close()
		return nil, fmt.Errorf("admin socket: %w", err)
	}
	return &Server{listener: l, http: &http.Server{
		Handler:           handler(d),
		ReadHeaderTimeout: time.Second,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}}, nil
}

// Serve answers until [Server.Close].
func (s *Server) Serve() error {
	if err := s.http.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("admin socket: %w", err)
	}
	return nil
}

// Close removes the socket and ends what is being answered.
func (s *Server) Close() error {
	// A server that never served does not know its listener.
	if err := errors.Join(s.http.Close(), s.listener.Close()); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

func handler(d Daemon) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		// The only error is a client that has gone.
		_ = json.NewEncoder(w).Encode(d.Status())
	})
	mux.HandleFunc("GET /services", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(d.Services()) // the same
	})
	mux.HandleFunc("POST /drain", func(w http.ResponseWriter, r *http.Request) {
		reason := r.FormValue("reason")
		if reason == "" {
			reason = "herald drain"
		}
		if err := d.Drain(r.Context(), reason); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})
	mux.HandleFunc("POST /undrain", func(http.ResponseWriter, *http.Request) { d.Undrain() })
	return mux
}
