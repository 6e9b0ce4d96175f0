package ruleset

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// owner records the rounds of a Keeper in virtual time.
type owner struct {
	Rounds
	log     bytes.Buffer
	began   time.Time
	changed chan<- struct{} // of Watch
	stopped bool
	asked   chan struct{}

	mu     sync.Mutex
	rounds []time.Duration // since began, negative if the owner was told of a change
	err    error           // of the next rounds
}

// keeps runs test beside a Keeper with rounds every ten seconds.
func keeps(t *testing.T, test func(t *testing.T, o *owner)) {
	synctest.Test(t, func(t *testing.T) {
		o := &owner{began: time.Now(), asked: make(chan struct{})}
		o.Rounds = Rounds{
			Every: 10 * time.Second, Wake: o.asked, Failed: "not kept", Recovered: "kept again",
			Watch: func(changed chan<- struct{}) (func(), error) {
				o.changed = changed
				return func() { o.stopped = true }, nil
			},
			Round: func(changed bool) error {
				at := time.Since(o.began)
				if changed {
					at = -at
				}
				o.mu.Lock()
				defer o.mu.Unlock()
				o.rounds = append(o.rounds, at)
				return o.err
			},
		}
		test(t, o)
	})
}

// run runs the Keeper until stop.
func (o *owner) run(t *testing.T) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		NewKeeper(time.Second).Run(ctx, slog.New(slog.NewTextHandler(&o.log, nil)), o.Rounds)
		close(done)
	}()
	return func() { cancel(); <-done }
}

// expect checks the rounds after some time. It counts in milliseconds.
func (o *owner) expect(t *testing.T, after time.Duration, want ...time.Duration) {
	t.Helper()
	time.Sleep(after * time.Millisecond)
	synctest.Wait()
	o.mu.Lock()
	defer o.mu.Unlock()
	for i := range want {
		want[i] *= time.Millisecond
	}
	if !slices.Equal(o.rounds, want) {
		t.Errorf("rounds at %v, want %v", o.rounds, want)
	}
	o.rounds = nil
}

// fail sets the error of the next rounds.
func (o *owner) fail(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.err = err
}

// change reports a change of the tables.
func (o *owner) change() {
	select {
	case o.changed <- struct{}{}:
	default:
	}
}

// A round comes at once, in intervals, when the owner asks for it, and soon after an error.
func TestKeeperRounds(t *testing.T) {
	keeps(t, func(t *testing.T, o *owner) {
		stop := o.run(t)
		o.expect(t, 25000, 0, 10000, 20000)
		o.asked <- struct{}{}
		o.expect(t, 10500, 25000, 35000)
		o.asked <- struct{}{}
		o.asked <- struct{}{}
		o.fail(errors.New("no memory"))
		o.expect(t, 0, 35500, 35500)
		o.asked <- struct{}{}
		o.expect(t, 2500, 35500, 36500, 37500)
		o.fail(nil)
		o.expect(t, 11000, 38500, 48500)
		stop()
		o.expect(t, 20000)
		if !o.stopped {
			t.Error("the Keeper still watches")
		}
		if got := o.log.String(); strings.Count(got, "\n") != 2 || !strings.Contains(got, `level=ERROR msg="not kept" err="no memory"`) || !strings.Contains(got, `level=INFO msg="kept again"`) {
			t.Errorf("the log is:\n%s", got)
		}
	})
}

// A reported change is told to the owner at once. A program that keeps changing tables gets a round in a tenth of a second.
func TestKeeperChanges(t *testing.T) {
	keeps(t, func(t *testing.T, o *owner) {
		stop := o.run(t)
		o.expect(t, 1000, 0)
		o.change()
		o.expect(t, 0, -1000)
		o.change()
		o.change()
		o.expect(t, 99)
		o.expect(t, 1, -1100)
		o.expect(t, 20000, 11100, 21100) // the owner has been told
		o.change()
		o.expect(t, 0, -21100)
		o.expect(t, 10000, 31100)
		o.change() // at once, as the last round followed no change
		o.expect(t, 0, -31100)
		stop()
	})
}

// Without a subscription each round looks for changes; an owner may do without.
func TestKeeperWithoutWatch(t *testing.T) {
	keeps(t, func(t *testing.T, o *owner) {
		o.Watch = func(chan<- struct{}) (func(), error) { return nil, errors.New("no socket") }
		stop := o.run(t)
		o.expect(t, 25000, 0, -10000, -20000)
		stop()
		if !strings.Contains(o.log.String(), "cannot watch nftables") {
			t.Errorf("the log is:\n%s", o.log.String())
		}
		o.Watch, o.began = nil, time.Now()
		stop = o.run(t)
		o.expect(t, 25000, 0, 10000, 20000)
		stop()
	})
}
