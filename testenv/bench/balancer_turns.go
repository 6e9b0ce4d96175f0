package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/herald-vip/herald/testenv/balance"
)

// What is compared closely is measured of all ways in the same seconds, with the same programs
// running: their clients take turns, in an order that chance chooses. Ways that are measured
// one after the other differ by what each happens to meet: a single event that takes a core for
// some milliseconds is in the slowest hundredth of a second's connections, and on which cores
// client and server find themselves makes half of a stream's throughput.
const (
	// ready is how long clients may take to start before the first has its turn.
	ready = 300 * time.Millisecond
	// turn is that of connections, which take a fraction of a millisecond each; streamTurn is
	// long enough that it does not matter what the kernel has taken in before.
	turn       = 20 * time.Millisecond
	streamTurn = 50 * time.Millisecond
)

// paced measures the latency of connections at a fixed rate.
func (s *balancerStage) paced(ctx context.Context, ways []way) error {
	connecting := slices.DeleteFunc(slices.Clone(ways), func(w way) bool { return w.bulkOnly })
	if tracked := ways[0]; tracked.path == local {
		// Not from Herald's worker: a port of its that a connection through Herald had before is in
		// TIME_WAIT at the server, which costs the next connection from it another SYN.
		tracked.name, tracked.machine = directTracked, trackingWorker
		connecting = append(connecting, tracked)
	}
	return s.inTurns(ctx, connecting, turn, func(w way, t *balance.Turns) (*balance.Client, error) {
		return s.Load(w.machine, balance.Load{Targets: w.targets, Rate: s.rate, Count: s.pacedCount, Turns: t})
	}, func(w way, result any) error {
		r := result.(*balance.LoadResult)
		if r.Failed > 0 {
			return fmt.Errorf("%d connections failed at rest, the first: %s", r.Failed, r.Failures[0].Cause)
		}
		s.note(w.name, FixedMedian, w.path, r.Median.Seconds())
		s.note(w.name, FixedP99, w.path, r.P99.Seconds())
		s.note(w.name, FixedLate, w.path, float64(r.Late), float64(r.Good))
		return nil
	})
}

// stream measures how fast bytes come in one connection.
func (s *balancerStage) stream(ctx context.Context, ways []way) error {
	return s.inTurns(ctx, ways, streamTurn, func(w way, t *balance.Turns) (*balance.Client, error) {
		return s.Bulk(w.machine, balance.Bulk{Targets: w.targets, Turns: t, Rounds: s.streamTurns})
	}, func(w way, result any) error {
		r := result.(*balance.BulkResult)
		s.note(w.name, Throughput1, w.path, float64(r.Bytes)*8/1e9/r.Took.Seconds())
		return nil
	})
}

// inTurns starts a client of each way, and of the first, the direct one, a second, which
// tells what a comparison can tell apart; and notes what they have seen.
func (s *balancerStage) inTurns(ctx context.Context, ways []way, last time.Duration,
	start func(way, *balance.Turns) (*balance.Client, error), note func(way, any) error) (err error) {
	again := ways[0]
	again.name = directAgain
	ways = append(slices.Clone(ways), again)
	turns := balance.Turns{Began: time.Now().Add(ready), Last: last, Of: len(ways)}
	var clients []*balance.Client
	for i, w := range ways {
		turns.Mine = i
		c, e := start(w, &turns)
		if e != nil {
			err = e
			break
		}
		clients = append(clients, c)
	}
	for i, c := range clients {
		r, e := c.Wait(ctx)
		if e == nil {
			e = note(ways[i], r)
		}
		if e != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", ways[i].name, e))
		}
	}
	return err
}
