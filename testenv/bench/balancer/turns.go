package balancer

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/herald-vip/herald/testenv/step"
)

// Turns lets several loads alternate, each in its own process. Only one of them makes
// connections at a time, so that other work of the machine affects all alike. In each
// round all have a turn, in random order, so that no load always coincides with a
// periodic event.
//
// Close comparisons are measured that way, with the same programs running. Ways
// measured one after the other differ by chance. An event that takes a core for some
// milliseconds lands in the slowest hundredth of a second's connections. The cores of
// client and server decide half of a stream's throughput.
type Turns struct {
	// Began is when the first round begins.
	Began time.Time
	// Last is the length of a turn.
	Last time.Duration
	// Of is the number of loads; Mine, from 0, is the number of this one.
	Of, Mine int
}

// begin returns when this load's turn in a round begins.
func (t Turns) begin(round int) time.Time {
	// All loads draw the same order.
	order := rand.New(rand.NewPCG(uint64(t.Began.UnixNano()), uint64(round))).Perm(t.Of)
	return t.Began.Add(time.Duration(round*t.Of+order[t.Mine]) * t.Last)
}

const (
	// ready is the time that clients have to start before the first turn.
	ready = 300 * time.Millisecond
	// turn is the turn of connections, which take a fraction of a millisecond each.
	// streamTurn is long enough that the kernel's buffered bytes do not matter.
	turn       = 20 * time.Millisecond
	streamTurn = 50 * time.Millisecond
)

// paced measures the latency of connections at a fixed rate.
func (s *stage) paced(ctx context.Context, ways []way) {
	connecting := slices.DeleteFunc(slices.Clone(ways), func(w way) bool { return w.bulkOnly })
	if tracked := ways[0]; tracked.path == local {
		// Not from Herald's worker: a port used by an earlier connection through Herald is
		// in TIME_WAIT at the server, and costs the next connection an extra SYN.
		tracked.name, tracked.machine = directTracked, trackingWorker
		connecting = append(connecting, tracked)
	}
	s.inTurns(ctx, connecting, turn, func(w way, t *Turns) Task {
		return Load{Targets: w.targets, Rate: s.rate, Count: s.pacedCount, Turns: t}
	}, func(w way, c *client) {
		r := c.load(ctx)
		r.allGood()
		s.took(w.name, "latency at 1,000 connections/s, median", w.path, r.Median)
		s.took(w.name, "latency at 1,000 connections/s, p99", w.path, r.P99)
		s.failed(w.name, "connections that the client began late", w.path, r.Late, r.Good)
	})
}

// stream measures the throughput of one connection.
func (s *stage) stream(ctx context.Context, ways []way) {
	s.inTurns(ctx, ways, streamTurn, func(w way, t *Turns) Task {
		return Bulk{Targets: w.targets, Turns: t, Rounds: s.streamTurns}
	}, func(w way, c *client) {
		r := c.bulk(ctx)
		s.note(w.name, "throughput, 1 stream", w.path, "Gbit/s", float64(r.Bytes)*8/1e9/r.Took.Seconds())
	})
}

// inTurns starts a client of each way and records their results. The direct way has
// two clients; their difference is the resolution of the comparison.
func (s *stage) inTurns(ctx context.Context, ways []way, last time.Duration, task func(way, *Turns) Task, note func(way, *client)) {
	again := ways[0]
	again.name = directAgain
	ways = append(slices.Clone(ways), again)
	turns := Turns{Began: time.Now().Add(ready), Last: last, Of: len(ways)}
	var clients []*client
	for i, w := range ways {
		turns.Mine = i
		clients = append(clients, s.start(w.machine, task(w, &turns)))
	}
	for i, c := range clients {
		step.Named(ways[i].name, func() { note(ways[i], c) })
	}
}
