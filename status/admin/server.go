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
	"time"
)

// Daemon is the running speaker as the socket's users command it.
type Daemon interface {
	// Status tells how it stands.
	Status() Status
	// Services tells of each Service that is Herald's, in the order of their names.
	Services() []Service
	// Drain returns when every VIP is withdrawn and unbound, which waits for connections to end until the deadline, whatever an
	// earlier one said. One that lasts until undrain outlasts the process; the error may be that this cannot be, and then
	// nothing is drained.
	Drain(ctx context.Context, reason string, untilUndrain bool, deadline time.Duration) error
	// Undrain announces again what is healthy. The error is why a restart would drain again.
	Undrain() error
	// RemoveMember takes the vote of a silent member, and returns when the others have agreed on that.
	RemoveMember(ctx context.Context, member string) error
}

// agreement is how long voters may take to agree on the removal of a member.
const agreement = 10 * time.Second

// Server serves HTTP on a listener.
type Server struct {
	what     string // that errors are about
	listener net.Listener
	http     *http.Server
}

// NewServer returns a server of h on l, which it closes. Its errors begin with what.
func NewServer(what string, l net.Listener, h *http.Server) *Server { return &Server{what, l, h} }

// Listen opens the control socket at path for the owner alone, and makes it anew when somebody
// removes it. A socket that a crashed predecessor left is taken over; one that a live process answers
// on is an error. What goes wrong with single connections is logged at debug level.
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
		return fmt.Errorf("%s: %w", s.what, err)
	}
	return nil
}

// Close ends the listener, which removes its socket, and what is being answered.
func (s *Server) Close() error {
	// A server that never served does not know its listener.
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
		ctx, cancel := context.WithTimeout(r.Context(), agreement)
		defer cancel()
		if err := d.RemoveMember(ctx, r.FormValue("name")); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})
	return mux
}
