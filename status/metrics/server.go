package metrics

import (
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
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

// listener bounds its open connections to maxClients: it closes the oldest for a new one. A client that never ends its
// request, or never reads the answer, thus keeps no other out, above all no liveness probe.
type listener struct {
	net.Listener
	mu   sync.Mutex
	open []*client // the oldest first
}

func (l *listener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &client{Conn: conn, listener: l}
	if oldest := l.add(c); oldest != nil {
		_ = oldest.Close() // its server ignores the error, too
	}
	return c, nil
}

// add records a new connection. It returns the connection to close for it, or nil.
func (l *listener) add(c *client) *client {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open = append(l.open, c)
	if len(l.open) <= maxClients {
		return nil
	}
	return l.open[0]
}

// client is an open connection of a listener.
type client struct {
	net.Conn
	listener *listener
}

func (c *client) Close() error {
	l := c.listener
	l.mu.Lock()
	if i := slices.Index(l.open, c); i >= 0 {
		l.open = slices.Delete(l.open, i, i+1)
	}
	l.mu.Unlock()
	return c.Conn.Close()
}
