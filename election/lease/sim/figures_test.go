package sim

import (
	"fmt"
	"strings"
	"time"

	"github.com/herald-vip/herald/election/lease/message"
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

// trace records events for a reader.
type trace struct {
	lines []string
	at    []instant // of each line
}

// describe summarises a message.
func describe(m message.Message) string {
	var b strings.Builder
	fmt.Fprintf(&b, "#%d", m.Sequence)
	if m.Abstaining {
		b.WriteString(" abstaining")
	}
	fmt.Fprintf(&b, " record %d %x wish %x", m.Number, uint16(m.Active), uint16(m.Desired))
	if e := m.Electorate; e != nil {
		fmt.Fprintf(&b, " electorate %v", e)
	}
	if c := m.Change; c != nil {
		fmt.Fprintf(&b, " change phase %d ballot %v", c.Phase, c.Ballot)
		if c.Value != nil {
			fmt.Fprintf(&b, " to %v", c.Value)
		}
	}
	for _, i := range m.Items {
		name := []string{"", "stand", "prepare", "promise", "propose", "accept", "refuse", "release", "unchanged", "repeat"}[i.Kind]
		fmt.Fprintf(&b, "; %s %x %d.%d", name, uint8(i.Lease), i.Counter, i.Round)
		switch i.Kind {
		case message.Campaign:
			fmt.Fprintf(&b, " priority %d standing %t holds %d", i.Priority, i.Campaigning, i.Epoch)
		case message.Refuse:
			fmt.Fprintf(&b, " promised %d for %v", i.Promised, i.Remaining)
		case message.Release:
			fmt.Fprintf(&b, " to %q", i.To)
		}
	}
	return b.String()
}

// log records an event at a node; node may be empty.
func (w *world) log(node, format string, args ...any) {
	if w.trace == nil {
		return
	}
	at := fmt.Sprintf("%12.3fms %-3s ", float64(w.now)/1e6, node)
	w.trace.at = append(w.trace.at, w.now)
	w.trace.lines = append(w.trace.lines, at+fmt.Sprintf(format, args...))
}
