package election

import (
	"cmp"
	"maps"
	"slices"
	"sync"

	"github.com/herald-vip/herald/election/advertisement"
	"github.com/herald-vip/herald/election/lease"
	"github.com/herald-vip/herald/internal/wake"
)

// Handler receives events of the election, on its own goroutine and in one call at a time. A slow handler does not
// delay votes and renewals, and may call Campaign, StepDown, Describe and Status. Events that are outdated before
// delivery are dropped. A lease's loss is delivered before its next grant.
type Handler interface {
	// Granted reports that leases were granted or renewed: read them from [Election.Lease].
	Granted()
	// Lost reports leases that this member no longer holds.
	Lost([]lease.Lost)
	// Transfer reports a better candidate: once prepared, the handler should call [Election.StepDown].
	Transfer(lease.Transfer)
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
	tellingLoss  bool // the handler is being told of a loss
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

// deliver passes all events to the handler, and calls told once it has processed the losses.
func (q *eventQueue) deliver(h Handler, told func()) {
	lost, granted, transfers := q.take()
	if len(lost) > 0 {
		h.Lost(sorted(lost))
		q.mu.Lock()
		q.tellingLoss = false
		q.mu.Unlock()
		told()
	}
	if granted {
		h.Granted()
	}
	for _, t := range sorted(transfers) {
		h.Transfer(t)
	}
	q.mu.Lock()
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
