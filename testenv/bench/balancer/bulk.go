package balancer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/herald-vip/herald/testenv/bench/observe"
	"github.com/herald-vip/herald/testenv/step"
)

// Bulk reads from servers as fast as they send.
type Bulk struct {
	// Targets are addresses, host:port, that the streams use in turn.
	Targets []string
	// Streams is the number of connections.
	Streams int
	// Time is how long bytes are counted, once all streams have begun.
	Time time.Duration
	// Turns makes one stream alternate with other loads, reading only in its turn, for
	// this many Rounds. Time is ignored then.
	Turns  *Turns
	Rounds int
}

// BulkResult holds the bytes read, the time taken and this process's CPU time. The CPU
// time is not set with Turns.
type BulkResult struct {
	Bytes     uint64
	Took, CPU time.Duration
}

// beginWithin bounds the time until a stream begins.
const beginWithin = 10 * time.Second

// Run reads for the given time. A stream that ends earlier is an error.
func (b Bulk) Run(ctx context.Context) (any, error) {
	if b.Turns != nil {
		return b.inTurns(ctx)
	}
	var streams sync.WaitGroup
	defer streams.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var bytes atomic.Uint64
	ended := make(chan error, b.Streams)
	for i := range b.Streams {
		c, err := b.stream(ctx, i)
		if err != nil {
			return nil, err
		}
		streams.Go(func() {
			defer c.Close()
			for space := make([]byte, longest); ; {
				n, err := c.Read(space)
				if err != nil {
					ended <- fmt.Errorf("a stream ended: %w", err)
					return
				}
				bytes.Add(uint64(n))
			}
		})
	}
	cpu, err := observe.CPUOf(0)
	if err != nil {
		return nil, err
	}
	before, began := bytes.Load(), time.Now()
	select {
	case err := <-ended:
		return nil, err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-time.After(b.Time):
	}
	r := &BulkResult{Bytes: bytes.Load() - before, Took: time.Since(began)}
	now, err := observe.CPUOf(0)
	r.CPU = now - cpu
	return r, err
}

// longest is the size of a read.
const longest = 256 << 10

// stream opens the stream with number i and waits until it has begun. It is closed when ctx ends.
func (b Bulk) stream(ctx context.Context, i int) (net.Conn, error) {
	c, err := (&net.Dialer{Timeout: beginWithin}).DialContext(ctx, "tcp", b.Targets[i%len(b.Targets)])
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() { c.Close() })
	_, err = io.WriteString(c, get("/bytes"))
	err = errors.Join(err, c.SetReadDeadline(time.Now().Add(beginWithin)))
	if err == nil {
		_, err = c.Read(make([]byte, 1))
	}
	if err := errors.Join(err, c.SetReadDeadline(time.Time{})); err != nil {
		return nil, errors.Join(fmt.Errorf("a stream did not begin: %w", err), c.Close())
	}
	return c, nil
}

// inTurns reads one stream in its turns. Bytes that the kernel receives between turns,
// at most the window, count as well; they are few compared with a turn's.
func (b Bulk) inTurns(ctx context.Context) (*BulkResult, error) {
	c, err := b.stream(ctx, 0)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	r := new(BulkResult)
	space := make([]byte, longest)
	for round := range b.Rounds {
		begin := b.Turns.begin(round)
		if err := step.Sleep(ctx, time.Until(begin)); err != nil {
			return nil, err
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
