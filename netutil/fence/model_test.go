package fence

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"github.com/herald-vip/herald/netutil/ruleset"
)

// model is an nftables in a time of its own, which stands still except where a test lets it pass.
type model struct {
	time    time.Time
	sets    map[set]map[netip.Addr]time.Time // when elements end; nil: no tables
	faults  []fault                          // of the next calls of apply
	queued  []Change                         // of a call that nobody waits for any more
	wrong   string                           // what was wrong with what was asked for
	ended   func(addr netip.Addr, answering, accepting time.Time)
	changed chan<- struct{} // from watch
}

// fault is what goes wrong in a call of apply.
type fault struct {
	Before, Amid, After time.Duration // stalls: before the batch, after its begin, after its end
	Late                time.Duration // of the kernel in ending timeouts
	Lost                string        // "": nothing, "request", "answer", "stuck": it is made at the next call, or "flushed": all of it, after it was made
}

var eternity = time.Unix(1<<40, 0)

func (m *model) now() time.Time { return m.time }

func (m *model) Gated() ([]netip.Addr, error) { return slices.Collect(maps.Keys(m.sets[vips])), nil }

func (m *model) Rebuild(gated, served []netip.Addr) error {
	m.overdue()
	m.sets = map[set]map[netip.Addr]time.Time{vips: {}, answer: {}, accept: {}, until: {}, services: {}}
	for s, addrs := range map[set][]netip.Addr{vips: gated, services: served} {
		for _, addr := range addrs {
			m.sets[s][addr] = eternity
		}
	}
	return nil
}

func (m *model) Intact(gated, served []netip.Addr) (bool, error) {
	m.overdue()
	for s, addrs := range map[set][]netip.Addr{vips: gated, services: served} {
		if m.sets == nil || len(m.sets[s]) != len(addrs) {
			return false, nil
		}
		for _, addr := range addrs {
			if _, ok := m.sets[s][addr]; !ok {
				return false, nil
			}
		}
	}
	return true, nil
}

func (m *model) Apply(changes []Change) error {
	m.overdue()
	var f fault
	if len(m.faults) > 0 {
		f, m.faults = m.faults[0], m.faults[1:]
	}
	m.time = m.time.Add(f.Before)
	switch f.Lost {
	case "request":
		return syscall.ENOBUFS
	case "stuck":
		m.queued = changes
		return ruleset.ErrStuck
	}
	if m.sets == nil {
		return syscall.ENOENT
	}
	m.time = m.time.Add(f.Amid)
	m.commit(changes, f.Late)
	m.time = m.time.Add(f.After)
	switch f.Lost {
	case "answer":
		return syscall.ENOBUFS
	case "flushed":
		m.sets = nil
	}
	return nil
}

// overdue makes the changes of the call that was stuck.
func (m *model) overdue() {
	if m.queued != nil && m.sets != nil {
		m.commit(m.queued, 0)
	}
	m.queued = nil
}

func (m *model) commit(changes []Change, late time.Duration) {
	for _, c := range changes {
		switch {
		case c.Lasts == forever:
			m.sets[c.Set][c.Addr] = eternity
		case c.Lasts == 0:
			delete(m.sets[c.Set], c.Addr)
		case c.Lasts < shortest:
			m.wrong = fmt.Sprintf("a timeout of %v, which might be none", c.Lasts)
		default:
			m.sets[c.Set][c.Addr] = m.time.Add(c.Lasts + late)
		}
	}
	for addr := range m.sets[vips] {
		m.ended(addr, m.opened(answer, addr), m.opened(accept, addr))
	}
}

// opened is until when both locks of addr are open.
func (m *model) opened(first set, addr netip.Addr) time.Time {
	a, b := m.sets[first][addr], m.sets[until][addr]
	if a.Before(b) {
		return a
	}
	return b
}

func (m *model) Remove() error {
	m.overdue()
	m.sets = nil
	return nil
}

func (m *model) Watch(changed chan<- struct{}) (stop func(), err error) {
	m.changed = changed
	return func() { m.changed = nil }, nil
}
