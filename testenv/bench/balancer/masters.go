package balancer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/herald-vip/herald/health"
	"github.com/herald-vip/herald/testenv/bench/observe"
)

const (
	// newcomer is the master that joins and leaves. No other node's file names it.
	newcomer = "m4"
	// memberRate is the number of connections that the client on each worker begins per second.
	memberRate = 200
)

// mastersPart measures how fast the balancers of all workers follow a master that
// joins, leaves, and dies for good, without any edited file.
func (s *stage) mastersPart(ctx context.Context) error {
	if err := s.boot(ctx, s.speaker, workers()...); err != nil {
		return err
	}
	if err := s.Node(newcomer).Boot(ctx); err != nil {
		return err
	}
	for trial := range s.trials {
		if err := s.mastersTrial(ctx); err != nil {
			return fmt.Errorf("trial %d: %w", trial+1, err)
		}
	}
	return nil
}

// mastersTrial makes the newcomer join and leave, and join and die.
func (s *stage) mastersTrial(ctx context.Context) error {
	var started, healthy, left, died time.Time
	if err := s.server(newcomer).Boot(ctx); err != nil {
		return err
	}
	first, err := s.onAllWorkers(ctx, func() error {
		started = time.Now()
		return errors.Join(s.speaker(newcomer).Boot(ctx), observe.Pause(ctx, s.followed))
	}, func() (err error) {
		healthy, err = s.found(ctx, newcomer, health.Healthy)
		return err
	}, func() error {
		left = time.Now()
		return errors.Join(s.speaker(newcomer).Stop(ctx), observe.Pause(ctx, s.followed))
	})
	if err != nil {
		return err
	}
	if err := s.speaker(newcomer).Boot(ctx); err != nil {
		return err
	}
	for _, w := range workers() {
		if err := s.awaitMasters(ctx, w, masters()...); err != nil {
			return err
		}
	}
	second, err := s.onAllWorkers(ctx, func() error {
		died = time.Now()
		return errors.Join(s.Node(newcomer).PowerOff(), observe.Pause(ctx, s.followed))
	})
	if err != nil {
		return err
	}
	for _, w := range workers() {
		s.noteJoined(first[w], started, healthy, left)
		s.noteDied(second[w], died)
	}
	// Its machine comes back, with nothing on it.
	if err := s.Node(newcomer).PowerOn(ctx); err != nil {
		return err
	}
	return errors.Join(s.speaker(newcomer).Kill(), s.server(newcomer).Kill())
}

// found waits until a master's check of its server is in a state, and returns since
// when. On a busy machine that may take longer than the other waits.
func (s *stage) found(ctx context.Context, master string, state health.State) (since time.Time, err error) {
	err = observe.Eventually(ctx, leadsWithin, func() error {
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
	return since, err
}

// onAllWorkers runs a client on each worker while it does the steps in order.
func (s *stage) onAllWorkers(ctx context.Context, steps ...func() error) (map[string]LoadResult, error) {
	clients := make(map[string]*client)
	var err error
	for _, w := range workers() {
		if clients[w], err = s.start(w, Load{Rate: memberRate, Keep: true, Targets: []string{target(w, local, listenPort)}}); err != nil {
			return nil, err
		}
	}
	err = observe.Pause(ctx, s.before)
	for _, step := range steps {
		if err == nil {
			err = step()
		}
	}
	results := make(map[string]LoadResult)
	for w, c := range clients {
		var r LoadResult
		err = errors.Join(err, c.stop(ctx, &r))
		results[w] = r
	}
	return results, err
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
