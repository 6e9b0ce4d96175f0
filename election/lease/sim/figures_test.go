package sim

import (
	"fmt"
	"strings"
	"time"
)

// figures sums up the results of schedules.
type figures struct {
	incarnations, messages, lost, replays, strikes, changes,
	grants, observers, losses, transferTo, opens, disarmed uint64
	events                       int
	faults                       [20]int // by index in the list of faults
	recovery, takeover, handover worst
}

// worst is the maximum of many durations, in leases.
type worst struct {
	leases float64
	took   time.Duration
	seed   uint64
}

func (w *worst) note(took, lease time.Duration, seed uint64) {
	if n := float64(took) / float64(lease); n > w.leases {
		*w = worst{n, took, seed}
	}
}

func (w worst) String() string {
	return fmt.Sprintf("%.2f D (%v, seed %d)", w.leases, w.took.Round(time.Microsecond), w.seed)
}

func (f *figures) add(o figures) {
	f.incarnations += o.incarnations
	f.messages += o.messages
	f.lost += o.lost
	f.replays += o.replays
	f.strikes += o.strikes
	f.changes += o.changes
	f.grants += o.grants
	f.observers += o.observers
	f.losses += o.losses
	f.transferTo += o.transferTo
	f.opens += o.opens
	f.disarmed += o.disarmed
	f.events += o.events
	for i, n := range o.faults {
		f.faults[i] += n
	}
	for mine, other := range map[*worst]worst{&f.recovery: o.recovery, &f.takeover: o.takeover, &f.handover: o.handover} {
		if other.leases > mine.leases {
			*mine = other
		}
	}
}

func (f figures) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d events, %d messages, %d lost, %d replayed, %d incarnations, %d changes of members\n",
		f.events, f.messages, f.lost, f.replays, f.incarnations, f.changes)
	fmt.Fprintf(&b, "grants and renewals %d (%d without a vote), lost leases %d, transfers %d, openings %d (%d too late)\n",
		f.grants, f.observers, f.losses, f.transferTo, f.opens, f.disarmed)
	for i, fault := range faults {
		fmt.Fprintf(&b, "%s %d, ", fault.name, f.faults[i])
	}
	fmt.Fprintf(&b, "struck between steps %d\n", f.strikes)
	fmt.Fprintf(&b, "worst recovery %v, takeover %v, gap of a handover %v", f.recovery, f.takeover, f.handover)
	return b.String()
}
