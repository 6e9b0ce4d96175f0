package balance

import (
	"math/rand/v2"
	"time"
)

// Turns are those of loads that run side by side, each in its own process, of which only one
// makes connections at a time: whatever else the machine does meets them all alike. In each
// round all have their turn, in an order that chance has chosen, lest one always have its
// turn when something else recurs.
type Turns struct {
	// Began is when the first round does.
	Began time.Time
	// Last is how long a turn does.
	Last time.Duration
	// Of is how many loads there are; Mine, from 0, is the number of this one.
	Of, Mine int
}

// begin is when this load has its turn in a round.
func (t Turns) begin(round int) time.Time {
	// All loads draw the same order.
	order := rand.New(rand.NewPCG(uint64(t.Began.UnixNano()), uint64(round))).Perm(t.Of)
	return t.Began.Add(time.Duration(round*t.Of+order[t.Mine]) * t.Last)
}
