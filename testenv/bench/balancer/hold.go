package balancer

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/herald-vip/herald/testenv/step"
)

// grip holds established connections through a balancer. It keeps the same ones from
// one change to the next, until some are lost.
type grip struct {
	dial    func(ctx context.Context, network, address string) (net.Conn, error)
	address string
	count   int
	conns   []net.Conn
}

// atATime is the number of connections opened or tested in parallel, and answerWithin
// bounds a server's answer.
const atATime, answerWithin = 32, 5 * time.Second

// open opens the connections if there are none.
func (g *grip) open(ctx context.Context) {
	if len(g.conns) > 0 {
		return
	}
	var mu sync.Mutex
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(atATime)
	for range g.count {
		group.Go(func() error {
			c, err := g.dial(ctx, "tcp", g.address)
			if err != nil {
				return err
			}
			mu.Lock()
			g.conns = append(g.conns, c)
			mu.Unlock()
			_, err = say(c, get("/echo"))
			return err
		})
	}
	if err := group.Wait(); err != nil {
		g.close()
		step.Do(fmt.Errorf("hold %d connections to %s: %w", g.count, g.address, err))
	}
}

// say sends a text and returns the line that comes back.
func say(c net.Conn, text string) (string, error) {
	if err := c.SetDeadline(time.Now().Add(answerWithin)); err != nil {
		return "", err
	}
	if _, err := io.WriteString(c, text); err != nil {
		return "", err
	}
	var line []byte
	for space := make([]byte, 64); len(line) == 0 || line[len(line)-1] != '\n'; {
		n, err := c.Read(space)
		if line = append(line, space[:n]...); err != nil {
			return "", err
		}
	}
	return string(line), nil
}

// lost makes each connection echo a text, and returns how many fail. If any fails, it closes all.
func (g *grip) lost() int {
	const text = "are you there\n"
	var lost atomic.Int64
	var group errgroup.Group
	group.SetLimit(atATime)
	for _, c := range g.conns {
		group.Go(func() error {
			if got, err := say(c, text); err != nil || got != text {
				lost.Add(1)
			}
			return nil
		})
	}
	_ = group.Wait()
	if lost.Load() > 0 {
		g.close()
	}
	return int(lost.Load())
}

// close closes all of them.
func (g *grip) close() {
	for _, c := range g.conns {
		c.Close()
	}
	g.conns = nil
}
