package balancer

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/herald-vip/herald/health"
	"github.com/herald-vip/herald/testenv/bench/observe"
	"github.com/herald-vip/herald/testenv/step"
)

const (
	// newcomer is the master that joins and leaves. No other node's file names it.
	newcomer = "m4"
	// memberRate is the number of connections that the client on each worker begins per second.
	memberRate = 200
)

// mastersPart measures how fast the balancers of all workers follow a master that
// joins, leaves, and dies for good, without any edited file.
func (s *stage) mastersPart(ctx context.Context) {
	s.boot(ctx, s.speaker, workers()...)
	step.Do(s.Node(newcomer).Boot(ctx))
	for trial := range s.trials {
		step.Named(fmt.Sprintf("trial %d", trial+1), func() { s.mastersTrial(ctx) })
	}
}

// mastersTrial makes the newcomer join and leave, and join and die.
func (s *stage) mastersTrial(ctx context.Context) {
	var started, healthy, left, died time.Time
	step.Do(s.server(newcomer).Boot(ctx))
	first := s.onAllWorkers(ctx, func() {
		started = time.Now()
		step.Do(s.speaker(newcomer).Boot(ctx))
		step.Pause(ctx, s.followed)
		healthy = s.found(ctx, newcomer, health.Healthy)
		left = time.Now()
		step.Do(s.speaker(newcomer).Stop(ctx))
		step.Pause(ctx, s.followed)
	})
	step.Do(s.speaker(newcomer).Boot(ctx))
	for _, w := range workers() {
		s.awaitMasters(ctx, w, masters()...)
	}
	second := s.onAllWorkers(ctx, func() {
		died = time.Now()
		step.Do(s.Node(newcomer).PowerOff())
		step.Pause(ctx, s.followed)
	})
	for _, w := range workers() {
		s.noteJoined(first[w], started, healthy, left)
		s.noteDied(second[w], died)
	}
	// Its machine comes back, with nothing on it.
	step.Do(s.Node(newcomer).PowerOn(ctx))
	step.Do(s.speaker(newcomer).Kill())
	step.Do(s.server(newcomer).Kill())
}

// found waits until a master's check of its server is in a state, and returns since
// when. On a busy machine that may take longer than the other waits.
func (s *stage) found(ctx context.Context, master string, state health.State) (since time.Time) {
	step.Eventually(ctx, leadsWithin, func() error {
		status, err := observe.Status(ctx, s.speaker(master), binaryTarget)
		if err != nil {
			return err
		}
		c := status.Checks[0]
		if c.State != state {
			return fmt.Errorf("%s finds its server %s, want %s", master, c.State, state)
		}
		since = c.Since
		return nil
	})
	return since
}

// onAllWorkers runs a client on each worker while do runs.
func (s *stage) onAllWorkers(ctx context.Context, do func()) map[string]LoadResult {
	clients, results := make(map[string]*client), make(map[string]LoadResult)
	for _, w := range workers() {
		clients[w] = s.start(w, Load{Rate: memberRate, Keep: true, Targets: []string{target(w, local, listenPort)}})
	}
	step.Pause(ctx, s.before)
	do()
	for w, c := range clients {
		c.stop(ctx)
		results[w] = c.load(ctx)
	}
	return results
}

// noteJoined records what one worker's client saw of a newcomer's join and leave. A
// worker that had not followed in time is recorded as having followed at the end.
func (s *stage) noteJoined(r LoadResult, started, healthy, left time.Time) {
	var joinFailed, leaveFailed, joinAll, leaveAll int
	first, last := left, left
	for _, c := range r.Kept {
		failed, all := &joinFailed, &joinAll
		if !c.At.Before(left) {
			failed, all = &leaveFailed, &leaveAll
		}
		*all++
		switch {
		case c.Failure != "":
			*failed++
		case c.Server == newcomer:
			last = later(last, c.At)
			if c.At.Before(first) {
				first = c.At
			}
		}
	}
	s.took(viaHerald, "master joins: from its server found healthy until a worker leads to it", "", max(0, first.Sub(healthy)))
	s.took(viaHerald, "master joins: from its speaker's start until a worker leads to it", "", first.Sub(started))
	s.took(viaHerald, "master leaves: until a worker's last connection to it", "", last.Sub(left))
	s.failed(viaHerald, "master joins: connections that failed", "", joinFailed, joinAll)
	s.failed(viaHerald, "master leaves: connections that failed", "", leaveFailed, leaveAll)
}

// noteDied records what one worker's client saw of a newcomer's power loss.
func (s *stage) noteDied(r LoadResult, died time.Time) {
	last, others := died, 0
	for _, c := range r.Failures {
		if c.At.Add(c.Took).Before(died) {
			others++ // it failed earlier
		} else {
			last = later(last, c.At)
		}
	}
	// Round-robin gives the dead master no more than its share until it is removed;
	// further failures belong to the other masters.
	begun := slices.DeleteFunc(slices.Clone(r.Kept), func(c Connection) bool {
		return c.At.Before(died.Add(-time.Second)) || c.At.After(last)
	})
	share := len(begun)/len(masters()) + len(masters())
	s.took(viaHerald, "master dies for good: until a worker's last connection that failed", "", last.Sub(died))
	s.failed(viaHerald, "master dies for good: connections to others that failed", "", others+max(0, r.Failed-share), r.Good)
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
