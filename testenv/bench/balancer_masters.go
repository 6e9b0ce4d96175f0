package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/herald-vip/herald/testenv/balance"
)

const (
	// newcomer is the master that comes and goes. No file of another node names it.
	newcomer = "m4"
	// memberRate is how many connections a second a client on each worker begins.
	memberRate = 200
)

// mastersPart measures how fast the balancers of all workers follow a master that joins,
// leaves, and dies for good. Nothing is edited anywhere.
func (s *balancerStage) mastersPart(ctx context.Context) error {
	if err := s.boot(ctx, s.Speaker, balancersOfHerald()...); err != nil {
		return err
	}
	if err := s.Node(newcomer).Boot(ctx); err != nil {
		return err
	}
	began := len(s.results.Figures)
	for trial := range s.trials {
		if err := s.mastersTrial(ctx); err != nil {
			return fmt.Errorf("trial %d: %w", trial+1, err)
		}
	}
	s.tell(began)
	return nil
}

// mastersTrial has the newcomer join and leave, and join and die.
func (s *balancerStage) mastersTrial(ctx context.Context) error {
	var started, left, died time.Time
	var healthy time.Time
	steps := []func() error{
		func() error {
			started = time.Now()
			return errors.Join(s.Speaker(newcomer).Boot(ctx), pause(ctx, s.followed))
		},
		func() (err error) {
			healthy, err = s.found(ctx, newcomer, "healthy")
			return err
		},
		func() error {
			left = time.Now()
			return errors.Join(s.Speaker(newcomer).Stop(ctx), pause(ctx, s.followed))
		},
	}
	if err := s.Server(newcomer).Boot(ctx); err != nil {
		return err
	}
	first, err := s.onAllWorkers(ctx, steps)
	if err != nil {
		return err
	}
	if err := s.Speaker(newcomer).Boot(ctx); err != nil {
		return err
	}
	for _, w := range balancersOfHerald() {
		if err := s.settled(ctx, w, balance.MasterNames()...); err != nil {
			return err
		}
	}
	second, err := s.onAllWorkers(ctx, []func() error{func() error {
		died = time.Now()
		return errors.Join(s.Node(newcomer).PowerOff(), pause(ctx, s.followed))
	}})
	if err != nil {
		return err
	}
	for _, w := range balancersOfHerald() {
		s.noteJoined(first[w], started, healthy, left)
		s.noteDied(second[w], died)
	}
	return s.powerOn(ctx)
}

// found waits until a master finds its server in a state, and returns since when it does. On a
// busy machine that may take longer than the rest is waited for.
func (s *balancerStage) found(ctx context.Context, master, state string) (since time.Time, err error) {
	ctx, cancel := context.WithTimeout(ctx, settleBalancers)
	defer cancel()
	err = balance.Eventually(ctx, func() error {
		status, err := s.Status(ctx, master)
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

// powerOn brings the newcomer's machine back, with nothing on it.
func (s *balancerStage) powerOn(ctx context.Context) error {
	if err := s.Node(newcomer).PowerOn(ctx); err != nil {
		return err
	}
	return errors.Join(s.Speaker(newcomer).Kill(), s.Server(newcomer).Kill())
}

// balancersOfHerald are all workers, where Herald balances on each.
func balancersOfHerald() []string { return balance.WorkerNames() }

// onAllWorkers has a client on each worker while the steps are done one after the other.
func (s *balancerStage) onAllWorkers(ctx context.Context, steps []func() error) (map[string]*balance.LoadResult, error) {
	clients := make(map[string]*balance.Client)
	var err error
	for _, w := range balancersOfHerald() {
		if clients[w], err = s.Load(w, balance.Load{Rate: memberRate, Keep: true, Targets: []string{target(w, local, balance.ListenPort)}}); err != nil {
			return nil, err
		}
	}
	err = pause(ctx, s.before)
	for _, step := range steps {
		if err == nil {
			err = step()
		}
	}
	results := make(map[string]*balance.LoadResult)
	for w, c := range clients {
		r, e := result[balance.LoadResult](c.Stop(ctx))
		results[w], err = r, errors.Join(err, e)
	}
	return results, err
}

// noteJoined notes what one worker's client saw of a newcomer that came and went. A
// worker that has not followed in time is noted as if it had just then.
func (s *balancerStage) noteJoined(r *balance.LoadResult, started, healthy, left time.Time) {
	var joinFailed, leaveFailed, joinAll, leaveAll float64
	first, last := left, left
	for _, c := range r.Kept {
		failed, all := &joinFailed, &joinAll
		if !c.At.Before(left) {
			failed, all = &leaveFailed, &leaveAll
		}
		*all++
		switch {
		case c.Cause != "":
			*failed++
		case c.Server == newcomer:
			last = later(last, c.At)
			if c.At.Before(first) {
				first = c.At
			}
		}
	}
	s.note(viaHerald, Joined, "", max(0, first.Sub(healthy)).Seconds())
	s.note(viaHerald, JoinedStart, "", first.Sub(started).Seconds())
	s.note(viaHerald, Left, "", last.Sub(left).Seconds())
	s.note(viaHerald, JoinedFailed, "", joinFailed, joinAll)
	s.note(viaHerald, LeftFailed, "", leaveFailed, leaveAll)
}

// noteDied notes what one worker's client saw of a newcomer whose power went.
func (s *balancerStage) noteDied(r *balance.LoadResult, died time.Time) {
	last, others := died, 0.
	for _, c := range r.Failures {
		if c.At.Add(c.Took).Before(died) {
			others++ // it failed before
		} else {
			last = later(last, c.At)
		}
	}
	// The round-robin gives the dead one no more than its share until it is out; what goes
	// beyond that, the others had.
	begun := slices.DeleteFunc(slices.Clone(r.Kept), func(c balance.Connection) bool {
		return c.At.Before(died.Add(-time.Second)) || c.At.After(last)
	})
	share := len(begun)/balance.Masters + balance.Masters
	s.note(viaHerald, Died, "", last.Sub(died).Seconds())
	s.note(viaHerald, DiedOthers, "", others+float64(max(0, r.Failed-share)), float64(r.Good))
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
