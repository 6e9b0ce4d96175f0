package balancer

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// Turns are those of loads that run side by side, each in its own process, of which only one
// makes connections at a time: whatever else the machine does meets them all alike. In each
// round all have their turn, in an order that chance has chosen, so that none always has its
// turn when something else recurs.
//
// What is compared closely is measured like that, of all ways with the same programs running.
// Ways that are measured one after the other differ by what each happens to meet: a single
// event that takes a core for some milliseconds is in the slowest hundredth of a second's
// connections, and on which cores client and server find themselves makes half of a stream's
// throughput.
type Turns struct {
	// Began is when the first round does.
	Began time.Time
	// Last is how long a turn does.
	Last time.Duration
	// Of is how many loads there are; Mine, from 0, is the number of this one.
	Of, Mine int
}

// begin is when this load has its turn in a round.
func (t Turns) begin(round int) time.Time {
	// All loads draw the same order.
	order := rand.New(rand.NewPCG(uint64(t.Began.UnixNano()), uint64(round))).Perm(t.Of)
	return t.Began.Add(time.Duration(round*t.Of+order[t.Mine]) * t.Last)
}

const (
	// ready is how long clients may take to start before the first has its turn.
	ready = 300 * time.Millisecond
	// turn is that of connections, which take a fraction of a millisecond each; streamTurn is
	// long enough that it does not matter what the kernel has taken in before.
	turn       = 20 * time.Millisecond
	streamTurn = 50 * time.Millisecond
)

// paced measures the latency of connections at a fixed rate.
func (s *stage) paced(ctx context.Context, ways []way) error {
	connecting := slices.DeleteFunc(slices.Clone(ways), func(w way) bool { return w.bulkOnly })
	if tracked := ways[0]; tracked.path == local {
		// Not from Herald's worker: a port of its that a connection through Herald had before is in
		// TIME_WAIT at the server, which costs the next connection from it another SYN.
		tracked.name, tracked.machine = directTracked, trackingWorker
		connecting = append(connecting, tracked)
	}
	return s.inTurns(ctx, connecting, turn, func(w way, t *Turns) Task {
		return Load{Targets: w.targets, Rate: s.rate, Count: s.pacedCount, Turns: t}
	}, func(w way, c *client) error {
		var r LoadResult
		if err := errors.Join(c.wait(ctx, &r), r.allGood()); err != nil {
			return err
		}
		s.took(w.name, "latency at 1,000 connections/s, median", w.path, r.Median)
		s.took(w.name, "latency at 1,000 connections/s, p99", w.path, r.P99)
		s.failed(w.name, "connections that the client began late", w.path, r.Late, r.Good)
		return nil
	})
}

// stream measures how fast bytes come in one connection.
func (s *stage) stream(ctx context.Context, ways []way) error {
	return s.inTurns(ctx, ways, streamTurn, func(w way, t *Turns) Task {
		return Bulk{Targets: w.targets, Turns: t, Rounds: s.streamTurns}
	}, func(w way, c *client) error {
		var r BulkResult
		if err := c.wait(ctx, &r); err != nil {
			return err
		}
		s.note(w.name, "throughput, 1 stream", w.path, "Gbit/s", float64(r.Bytes)*8/1e9/r.Took.Seconds())
		return nil
	})
}

// inTurns starts a client of each way, and of the first, the direct one, a second, which
// tells what a comparison can tell apart; and notes what they have seen.
func (s *stage) inTurns(ctx context.Context, ways []way, last time.Duration, task func(way, *Turns) Task, note func(way, *client) error) (err error) {
	again := ways[0]
	again.name = directAgain
	ways = append(slices.Clone(ways), again)
	turns := Turns{Began: time.Now().Add(ready), Last: last, Of: len(ways)}
	var clients []*client
	for i, w := range ways {
		turns.Mine = i
		c, e := s.start(w.machine, task(w, &turns))
		if e != nil {
			err = e
			break
		}
		clients = append(clients, c)
	}
	for i, c := range clients {
		if e := note(ways[i], c); e != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", ways[i].name, e))
		}
	}
	return err
}
