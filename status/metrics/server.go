package metrics

import (
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/herald-vip/herald/status/admin"
	"github.com/herald-vip/herald/status/page"
)

// The network may reach the listener: its clients must not exhaust the speaker's memory and file descriptors.
const (
	maxClients = 64
	timeout    = 10 * time.Second // for one request
)

// Listen opens address, host:port, for [NewHandler]. Errors of single connections are logged at debug level.
func Listen(address string, log *slog.Logger, status func() admin.Status, healthy Healthy, nodes func() *page.Nodes) (*admin.Server, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("metrics.listen: %w", err)
	}
	return newServer(l, log, status, healthy, nodes), nil
}

func newServer(l net.Listener, log *slog.Logger, status func() admin.Status, healthy Healthy, nodes func() *page.Nodes) *admin.Server {
	return admin.NewServer("metrics.listen", &listener{Listener: l}, &http.Server{
		Handler:     NewHandler(status, healthy, nodes),
		ReadTimeout: timeout, WriteTimeout: timeout, IdleTimeout: timeout,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	})
}
