package ruleset

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/herald-vip/herald/internal/wake"
)

const (
	// retry is the longest time between a failed round and the next.
	retry = time.Second

	// pause is the least time between two rounds after changes by other programs. It bounds the load that a program that
	// keeps changing nftables causes.
	pause = 100 * time.Millisecond
)

// Keeper keeps the nftables tables of one owner: it orders the owner's changes, renews what expires, and has changes by other
// programs repaired.
//
// # Locks
//
// The owner holds the mutex while it changes its tables, or what it wants in them, calls to the kernel included. So the tables
// change in one order. While an owner holds the mutex it takes no lock of its user and does not call its user back. An owner
// locks any mutex for longer changes first. [Keeper.Run] calls the owner without the mutex.
type Keeper struct {
	sync.Mutex
	calls Calls
}

// NewKeeper returns a Keeper whose calls to the kernel have a timeout.
func NewKeeper(timeout time.Duration) *Keeper { return &Keeper{calls: NewCalls(timeout)} }

// Call calls f, which calls the kernel, as [Calls.Do] does.
func (k *Keeper) Call(f func() error) error { return k.calls.Do(f) }

// Rounds are an owner's part in [Keeper.Run].
type Rounds struct {
	// Round repairs and renews the tables. changed tells that other programs may have changed them since the last round.
	Round func(changed bool) error
	// Every is the time between two rounds; after an error it is a second at most.
	Every time.Duration
	// Wake asks for a round at once; nil never does.
	Wake <-chan struct{}
	// Watch subscribes to changes of the tables, like [Socket.Watch]; nil leaves finding them to the rounds.
	Watch func(changed chan<- struct{}) (stop func(), err error)
	// Delay returns the time between a change and its round; nil means none. The kernel also reports the owner's changes.
	Delay func() time.Duration
	// Failed and Recovered are logged once when an error begins or becomes another, and when it ends.
	Failed, Recovered string
}

// Run calls the owner's Round at once, at reported changes, and in intervals, until ctx is done.
func (k *Keeper) Run(ctx context.Context, log *slog.Logger, r Rounds) {
	reported := make(chan struct{}, 1)
	unwatched := false
	if r.Watch != nil {
		if stop, err := r.Watch(reported); err == nil {
			defer stop()
		} else {
			unwatched = true
			log.Warn("cannot watch nftables: changes by other programs are repaired late", "every", r.Every, "err", err)
		}
	}
	var fault Fault
	changed := false
	for ctx.Err() == nil {
		err := r.Round(changed)
		fault.Log(log, err, r.Failed, r.Recovered)
		next := r.Every
		if err != nil {
			next = min(next, retry)
		}
		due := time.After(next)
		if changed {
			wake.Pause(ctx, pause)
		}
		select {
		case <-ctx.Done():
		case <-r.Wake:
			changed = false
		case <-due:
			changed = unwatched
		case <-reported:
			changed = true
			if r.Delay != nil {
				wake.Pause(ctx, r.Delay())
			}
		}
	}
}
