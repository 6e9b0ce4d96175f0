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

// Handler learns who holds what. It is called on a goroutine of its own, one
// call at a time, with all that has happened since the last one: so it may take
// its time, and call Stand, Resign, Describe and Status, without keeping this
// member from voting and renewing. What it has not yet been told and is no
// longer true, it is not told. For one lease, what is lost comes before what is
// granted anew.
type Handler interface {
	// Granted tells of leases that this member holds, until a time at the latest;
	// also each time that one is renewed.
	Granted()
	// Lost tells of leases that this member holds no more.
	Lost([]lease.Lost)
	// Yield tells that somebody is to be preferred: when the handler is ready, it
	// should hand over by Resign.
	Transfer(lease.Transfer)
	// Met tells which members are alive, with or without a vote, by their sorted
	// names, each time that this changes: those that are heard, and this one itself.
	AliveChanged(alive []string)
	// Offered tells what members offer, each time that this changes: what
	// [Election.MemberStates] says. It is called on another goroutine than the rest, so that
	// neither waits for the other.
	MemberStatesChanged([]advertisement.MemberState)
}

// eventQueue is what the handler is yet to be told. Of each lease it keeps the last of
// each kind, so that it stays small however slow the handler is.
type eventQueue struct {
	some chan struct{} // holds a token if there may be some

	mu           sync.Mutex
	tellingLoss  bool // of what is lost
	lost         map[string]lease.Lost
	granted      bool
	transfers    map[string]lease.Transfer
	alive        []string // sorted
	aliveChanged bool     // the handler does not know that these are alive
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

// setAlive takes who is alive, by sorted names.
func (q *eventQueue) setAlive(alive []string) {
	q.mu.Lock()
	same := slices.Equal(q.alive, alive)
	q.alive, q.aliveChanged = alive, q.aliveChanged || !same
	q.mu.Unlock()
	if !same {
		wake.Up(q.some)
	}
}

// drop forgets what was granted of a lease that this member has steppedDown since.
func (q *eventQueue) drop(name string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.transfers, name)
}

// hasLoss reports whether the handler is yet to learn, or just learns, of a loss.
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

// deliver tells the handler what there is, and calls told when it knows what is lost.
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
