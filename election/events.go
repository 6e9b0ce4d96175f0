package election

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/herald-vip/herald/election/advertisement"
	"github.com/herald-vip/herald/election/lease"
	"github.com/herald-vip/herald/internal/wake"
)

// Handler receives events of the election, on its own goroutine and in one call at a time. It may call Campaign,
// StepDown, Describe and Status. Events that are outdated before delivery are dropped. A lease's loss is delivered
// before its next grant. A slow handler delays no votes. While one call takes longer than three fifths of a lease, this
// member renews no lease and wins none.
type Handler interface {
	// Granted reports that leases were granted or renewed: read them from [Election.Lease].
	Granted()
	// Lost reports leases that this member no longer holds.
	Lost([]lease.Lost)
	// Transfer reports better candidates: once prepared, the handler should call [Election.StepDown].
	Transfer([]lease.Transfer)
	// AliveChanged reports the names of the members that are alive, sorted, with or without a vote, this one included.
	AliveChanged(alive []string)
	// MemberStatesChanged reports changes of [Election.MemberStates]. It has a goroutine of its own, so that neither
	// waits for the other calls.
	MemberStatesChanged([]advertisement.MemberState)
}

// eventQueue holds undelivered events. It keeps at most one of each kind per lease, so a slow handler does not make it
// grow.
type eventQueue struct {
	some chan struct{} // holds a token if there may be events

	mu           sync.Mutex
	unanswered   time.Time // since when events wait and no call of the handler has returned; zero: none waits
	tellingLoss  bool      // the handler is being told of a loss
	lost         map[string]lease.Lost
	granted      bool
	transfers    map[string]lease.Transfer
	alive        []string // sorted
	aliveChanged bool     // alive has not been delivered
}

func newEventQueue() *eventQueue {
	q := &eventQueue{some: make(chan struct{}, 1)}
	q.take()
	return q
}

func (q *eventQueue) add(events []lease.Event) {
	if len(events) == 0 {
		return
	}
	q.mu.Lock()
	if q.unanswered.IsZero() {
		q.unanswered = time.Now()
	}
	for _, event := range events {
		switch e := event.(type) {
		case lease.Lost:
			q.lost[e.Lease] = e
			delete(q.transfers, e.Lease)
		case lease.Granted:
			q.granted = true
		case lease.Transfer:
			q.transfers[e.Lease] = e
		}
	}
	q.mu.Unlock()
	wake.Up(q.some)
}

// setAlive sets the members that are alive, sorted.
func (q *eventQueue) setAlive(alive []string) {
	q.mu.Lock()
	same := slices.Equal(q.alive, alive)
	q.alive, q.aliveChanged = alive, q.aliveChanged || !same
	q.mu.Unlock()
	if !same {
		wake.Up(q.some)
	}
}

// drop removes the events of a lease from which this member has stepped down.
func (q *eventQueue) drop(name string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.transfers, name)
}

// hasLoss reports whether a loss is undelivered or being delivered.
func (q *eventQueue) hasLoss() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.tellingLoss || len(q.lost) > 0
}

func (q *eventQueue) take() (lost map[string]lease.Lost, granted bool, transfers map[string]lease.Transfer) {
	q.mu.Lock()
	defer q.mu.Unlock()
	lost, granted, transfers = q.lost, q.granted, q.transfers
	q.lost, q.granted, q.transfers = make(map[string]lease.Lost), false, make(map[string]lease.Transfer)
	q.tellingLoss = len(lost) > 0
	return lost, granted, transfers
}

// waits returns since when events wait and no call of the handler has returned; zero: none waits.
func (q *eventQueue) waits() time.Time {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.unanswered
}

// deliver passes all events to the handler, and calls answered after each call about leases.
func (q *eventQueue) deliver(h Handler, answered func()) {
	lost, granted, transfers := q.take()
	answer := func() {
		q.mu.Lock()
		q.tellingLoss, q.unanswered = false, time.Now()
		q.mu.Unlock()
		answered()
	}
	if len(lost) > 0 {
		h.Lost(sorted(lost))
		answer()
	}
	if granted {
		h.Granted()
		answer()
	}
	if len(transfers) > 0 {
		h.Transfer(sorted(transfers))
		answer()
	}
	q.mu.Lock()
	if len(q.lost) == 0 && !q.granted && len(q.transfers) == 0 {
		q.unanswered = time.Time{}
	}
	alive, changed := q.alive, q.aliveChanged
	q.aliveChanged = false
	q.mu.Unlock()
	if changed {
		h.AliveChanged(slices.Clone(alive))
	}
}

func sorted[K cmp.Ordered, V any](m map[K]V) []V {
	var all []V
	for _, k := range slices.Sorted(maps.Keys(m)) {
		all = append(all, m[k])
	}
	return all
}
