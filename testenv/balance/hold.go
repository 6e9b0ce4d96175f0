package balance

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// Held are established connections, each with a server at its far end.
type Held struct {
	conns []*held
}

type held struct {
	conn   net.Conn
	read   *bufio.Reader
	server string
	lost   error
}

// atATime is how many connections are opened, or asked, at a time.
const atATime = 32

// Hold opens connections to the address and asks each for its server. The caller closes them.
func Hold(ctx context.Context, dial Dial, address string, count int) (_ *Held, err error) {
	h := new(Held)
	defer func() {
		if err != nil {
			h.Close()
		}
	}()
	var mu sync.Mutex
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(atATime)
	for range count {
		g.Go(func() error {
			c, err := dial(ctx, "tcp", address)
			if err != nil {
				return err
			}
			one := &held{conn: c, read: bufio.NewReaderSize(c, 64)}
			mu.Lock()
			h.conns = append(h.conns, one)
			mu.Unlock()
			return one.open()
		})
	}
	if err := g.Wait(); err != nil {
		return nil, fmt.Errorf("hold %d connections to %s: %w", count, address, err)
	}
	return h, nil
}

// answerWithin is how long a server may take to echo.
const answerWithin = 5 * time.Second

func (c *held) open() (err error) {
	if err := c.conn.SetDeadline(time.Now().Add(answerWithin)); err != nil {
		return err
	}
	if _, err := io.WriteString(c.conn, "GET /echo HTTP/1.1\r\nHost: balance\r\n\r\n"); err != nil {
		return err
	}
	c.server, err = c.read.ReadString('\n')
	c.server = c.server[:max(len(c.server)-1, 0)]
	return err
}

func (c *held) echo(text string) error {
	if err := c.conn.SetDeadline(time.Now().Add(answerWithin)); err != nil {
		return err
	}
	if _, err := io.WriteString(c.conn, text+"\n"); err != nil {
		return err
	}
	got, err := c.read.ReadString('\n')
	if err == nil && got != text+"\n" {
		err = errors.New("the echo is of another")
	}
	return err
}

// Echo sends something through each connection that has not been lost, and waits until
// it comes back. It returns how many of all are lost by now, and one reason.
func (h *Held) Echo(text string) (lost int, reason error) {
	var g errgroup.Group
	g.SetLimit(atATime)
	for _, c := range h.conns {
		if c.lost == nil {
			g.Go(func() error { c.lost = c.echo(text); return nil })
		}
	}
	_ = g.Wait() // the reasons are each connection's own
	for _, c := range h.conns {
		if c.lost != nil {
			lost, reason = lost+1, c.lost
		}
	}
	return lost, reason
}

// By is how many connections each server has, lost ones included.
func (h *Held) By() map[string]int {
	by := make(map[string]int)
	for _, c := range h.conns {
		by[c.server]++
	}
	return by
}

// Close closes all of them.
func (h *Held) Close() {
	for _, c := range h.conns {
		c.conn.Close()
	}
}
