package lease

import "time"

// Event is what became of a lease: [Granted], [Lost] or [Transfer].
type Event interface{ event() }

// Granted says that this member holds the lease, until a time on its own clock.
// A renewal is another Granted with the same epoch and a later end.
type Granted struct {
	Lease string
	Epoch uint64 // greater than that of the holder before
	Until time.Time
}

// Lost says that this member holds the lease no longer. There is none after a
// [Machine.StepDown]: the caller knows.
type Lost struct {
	Lease  string
	Reason string // for a person, without the lease's name
}

// Yield asks the holder to hand the lease over to a better candidate, by
// [Machine.StepDown] once it has prepared for that.
type Transfer struct {
	Lease  string
	To     string // the better candidate
	Reason string // for a person, without the lease's name
}

func (Granted) event()  {}
func (Lost) event()     {}
func (Transfer) event() {}
