package sim

import (
	"fmt"
	"strings"

	"github.com/herald-vip/herald/election/lease/message"
)

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
