package election

import (
	"cmp"
	"maps"
	"slices"
	"sync"

	"github.com/herald-vip/herald/lease"
)

// Observer learns who holds what. It is called on a goroutine of its own, one
// call at a time, with all that has happened since the last one: so it may take
// its time, and call Stand, Resign, Describe and Status, without keeping this
// member from voting and renewing. What it has not yet been told and is no
// longer true, it is not told. For one lease, what is lost comes before what is
// granted anew.
type Observer interface {
	// Granted tells of leases that this member holds, until a time at the latest;
	// also each time that one is renewed.
	Granted([]lease.Granted)
	// Lost tells of leases that this member holds no more.
	Lost([]lease.Lost)
	// Yield tells that somebody is to be preferred: when the observer is ready, it
	// should hand over by Resign.
	Yield(lease.Yield)
	// Met tells which members are alive, each time that this changes: what
	// [Election.Alive] says.
	Met(alive []string)
	// Offered tells what members offer, each time that this changes: what
	// [Election.Offers] says. It is called on another goroutine than the rest, so that
	// neither waits for the other.
	Offered([]Offered)
}

// news is what the observer is yet to be told. Of each lease it keeps the last of
// each kind, so that it stays small however slow the observer is.
type news struct {
	some chan struct{} // holds a token if there may be some

	mu      sync.Mutex
	telling bool // of what is lost
	lost    map[string]lease.Lost
	granted map[string]lease.Granted
	yield   map[string]lease.Yield
	alive   []string // sorted
	met     bool     // the observer does not know that these are alive
}

func newNews() *news {
	n := &news{some: make(chan struct{}, 1)}
	n.take()
	return n
}

// add takes what has happened, in order.
func (n *news) add(events []lease.Event) {
	if len(events) == 0 {
		return
	}
	n.mu.Lock()
	for _, event := range events {
		switch e := event.(type) {
		case lease.Lost:
			n.lost[e.Lease] = e
			delete(n.granted, e.Lease)
			delete(n.yield, e.Lease)
		case lease.Granted:
			n.granted[e.Lease] = e
		case lease.Yield:
			n.yield[e.Lease] = e
		}
	}
	n.mu.Unlock()
	n.wake()
}

// meet takes who is alive, by sorted names.
func (n *news) meet(alive []string) {
	n.mu.Lock()
	same := slices.Equal(n.alive, alive)
	n.alive, n.met = alive, n.met || !same
	n.mu.Unlock()
	if !same {
		n.wake()
	}
}

// wake wakes whoever tells the observer.
func (n *news) wake() {
	select {
	case n.some <- struct{}{}:
	default:
	}
}

// drop forgets what was granted of a lease that this member has resigned since.
func (n *news) drop(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.granted, name)
	delete(n.yield, name)
}

// loss reports whether the observer is yet to learn, or just learns, of a loss.
func (n *news) loss() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.telling || len(n.lost) > 0
}

// take returns what there is and leaves nothing.
func (n *news) take() (lost map[string]lease.Lost, granted map[string]lease.Granted, yield map[string]lease.Yield) {
	n.mu.Lock()
	defer n.mu.Unlock()
	lost, granted, yield = n.lost, n.granted, n.yield
	n.lost, n.granted, n.yield = make(map[string]lease.Lost), make(map[string]lease.Granted), make(map[string]lease.Yield)
	n.telling = len(lost) > 0
	return lost, granted, yield
}

// tell tells the observer what there is, and calls told when it knows what is lost.
func (n *news) tell(o Observer, told func()) {
	lost, granted, yield := n.take()
	if len(lost) > 0 {
		o.Lost(sorted(lost))
		n.mu.Lock()
		n.telling = false
		n.mu.Unlock()
		told()
	}
	if len(granted) > 0 {
		o.Granted(sorted(granted))
	}
	for _, y := range sorted(yield) {
		o.Yield(y)
	}
	n.mu.Lock()
	alive, met := n.alive, n.met
	n.met = false
	n.mu.Unlock()
	if met {
		o.Met(slices.Clone(alive))
	}
}

// sorted returns a map's values in the order of their keys.
func sorted[K cmp.Ordered, V any](m map[K]V) []V {
	var all []V
	for _, k := range slices.Sorted(maps.Keys(m)) {
		all = append(all, m[k])
	}
	return all
}
