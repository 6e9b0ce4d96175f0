package lease

import "time"

// Event reports a change of a lease: [Granted], [Lost] or [Transfer].
type Event interface{ event() }

// Granted reports that this member holds the lease until a time on its own clock. A renewal is another Granted with the
// same epoch and a later end.
type Granted struct {
	Lease string
	Epoch uint64 // greater than the previous holder's
	Until time.Time
}

// Lost reports that this member no longer holds the lease. [Machine.StepDown] causes none: the caller knows.
type Lost struct {
	Lease  string
	Reason string // for display, without the lease's name
}

// Transfer asks the holder to hand the lease to a better candidate, by [Machine.StepDown] once it has prepared for
// that.
type Transfer struct {
	Lease  string
	To     string // the better candidate
	Reason string // for display, without the lease's name
}

func (Granted) event()  {}
func (Lost) event()     {}
func (Transfer) event() {}
