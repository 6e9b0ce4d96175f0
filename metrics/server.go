package metrics

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/herald-vip/herald/admin"
)

// Strangers may reach the listener; they must not use up the speaker's memory
// and file descriptors.
const (
	maxClients = 64
	timeout    = 10 * time.Second // for one request
)

// Server serves [NewHandler] on an address.
type Server struct {
	listener net.Listener
	http     *http.Server
}

// Listen opens address, host:port. What goes wrong with single connections is
// logged at debug level.
func Listen(address string, log *slog.Logger, status func() admin.Status, healthy Healthy) (*Server, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("metrics.listen: %w", err)
	}
	return &Server{
		listener: &listener{Listener: l},
		http: &http.Server{
			Handler:     NewHandler(status, healthy),
			ReadTimeout: timeout, WriteTimeout: timeout, IdleTimeout: timeout,
			ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		},
	}, nil
}

// Serve answers until [Server.Close].
func (s *Server) Serve() error {
	if err := s.http.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("metrics.listen: %w", err)
	}
	return nil
}

// Close ends the listener and what is being answered.
func (s *Server) Close() error {
	// A server that never served does not know its listener.
	if err := errors.Join(s.http.Close(), s.listener.Close()); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}
