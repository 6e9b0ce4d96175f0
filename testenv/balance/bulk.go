package balance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Bulk reads from servers as fast as they send.
type Bulk struct {
	// Targets are addresses, host:port, taken in turn by the streams.
	Targets []string
	// Streams is how many connections there are.
	Streams int
	// Time is how long bytes are counted, once all streams have begun.
	Time time.Duration
	// Turns has one stream take turns with others', and read in its own only; Rounds is how many.
	// Time is of no importance then.
	Turns  *Turns
	Rounds int
}

// BulkResult is what came of it.
type BulkResult struct {
	// Bytes were read in the time that it took, with this process's CPU, which is not told of turns.
	Bytes uint64        `json:"bytes"`
	Took  time.Duration `json:"tookNs"`
	CPU   time.Duration `json:"cpuNs"`
}

// beginWithin is how long a stream may take to begin.
const beginWithin = 10 * time.Second

// Run reads for the time that is wanted. A stream that ends before is an error.
func (b Bulk) Run(ctx context.Context) (_ *BulkResult, err error) {
	if b.Turns != nil {
		return b.inTurns(ctx)
	}
	var streams sync.WaitGroup
	defer streams.Wait()
	var conns []net.Conn
	defer func() {
		for _, c := range conns {
			c.Close()
		}
	}()
	var bytes atomic.Uint64
	ended := make(chan error, b.Streams)
	for i := range b.Streams {
		c, err := b.stream(ctx, i)
		if err != nil {
			return nil, err
		}
		conns = append(conns, c)
		begun := make(chan struct{})
		streams.Go(func() {
			ended <- read(c, &bytes, begun)
		})
		select {
		case <-begun:
		case err := <-ended:
			return nil, errors.Join(errors.New("a stream ended"), err)
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(beginWithin):
			return nil, fmt.Errorf("nothing has come within %v", beginWithin)
		}
	}
	cpu, err := ownCPU()
	if err != nil {
		return nil, err
	}
	before, began := bytes.Load(), time.Now()
	select {
	case err := <-ended:
		return nil, errors.Join(errors.New("a stream ended"), err)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-time.After(b.Time):
	}
	r := &BulkResult{Bytes: bytes.Load() - before, Took: time.Since(began)}
	now, err := ownCPU()
	r.CPU = now - cpu
	return r, err
}

// stream opens a stream, by its number.
func (b Bulk) stream(ctx context.Context, i int) (net.Conn, error) {
	c, err := (&net.Dialer{Timeout: beginWithin}).DialContext(ctx, "tcp", b.Targets[i%len(b.Targets)])
	if err != nil {
		return nil, err
	}
	if _, err := io.WriteString(c, "GET /bytes HTTP/1.1\r\nHost: balance\r\n\r\n"); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// inTurns reads one stream in its turns. What the kernel takes in between, as much as the
// window holds, counts as well; it is little of what comes in a turn.
func (b Bulk) inTurns(ctx context.Context) (*BulkResult, error) {
	c, err := b.stream(ctx, 0)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	r := new(BulkResult)
	space := make([]byte, 256<<10)
	for round := range b.Rounds {
		begin := b.Turns.begin(round)
		select {
		case <-time.After(time.Until(begin)):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		began, end := time.Now(), begin.Add(b.Turns.Last)
		for now := began; now == began || now.Before(end); now = time.Now() {
			n, err := c.Read(space)
			if err != nil {
				return nil, fmt.Errorf("a stream ended: %w", err)
			}
			r.Bytes += uint64(n)
		}
		r.Took += time.Since(began)
	}
	return r, nil
}

// read counts what comes until the connection ends, and tells of the first.
func read(c net.Conn, bytes *atomic.Uint64, begun chan<- struct{}) error {
	space := make([]byte, 256<<10)
	for first := true; ; first = false {
		n, err := c.Read(space)
		if err != nil {
			return err
		}
		bytes.Add(uint64(n))
		if first {
			close(begun)
		}
	}
}
