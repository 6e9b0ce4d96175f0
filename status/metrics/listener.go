package metrics

import (
	"net"
	"slices"
	"sync"
)

// listener has no more than maxClients connections open at a time: it closes the
// oldest for a new one. A client that never ends its request, or never reads the
// answer, thus keeps nobody out, above all no liveness probe.
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
		_ = oldest.Close() // its server says nothing of it either
	}
	return c, nil
}

// add notes a new connection and returns the one that has to go for it, or nil.
func (l *listener) add(c *client) *client {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open = append(l.open, c)
	if len(l.open) <= maxClients {
		return nil
	}
	return l.open[0]
}

// client is a connection that its listener knows of until it is closed.
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
