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

// model is a Kernel with its own clock, which only tests advance.
type model struct {
	time    time.Time
	sets    map[Set]map[netip.Addr]time.Time // ends of elements; nil: no tables
	faults  []fault                          // for the next calls of Apply
	queued  []Change                         // of a stuck call, applied later
	wrong   string                           // a violation found in a request
	ended   func(addr netip.Addr, answering, accepting time.Time)
	changed chan<- struct{} // of Watch
}

// fault is the failure of a call of Apply.
type fault struct {
	Before, Amid, After time.Duration // delays before the batch, after its start, after its end.
	Late                time.Duration // the kernel's delay in ending timeouts.
	Lost                string        // "", "request", "answer", "stuck" (applied at the next call), or "flushed" (the tables, after the call)
}

var eternity = time.Unix(1<<40, 0)

func (m *model) now() time.Time { return m.time }

func (m *model) Filtered() ([]netip.Addr, error) { return slices.Collect(maps.Keys(m.sets[vips])), nil }

func (m *model) Rebuild(filtered, ofServices []netip.Addr) error {
	m.overdue()
	m.sets = map[Set]map[netip.Addr]time.Time{vips: {}, answer: {}, accept: {}, until: {}, services: {}}
	for s, addrs := range map[Set][]netip.Addr{vips: filtered, services: ofServices} {
		for _, addr := range addrs {
			m.sets[s][addr] = eternity
		}
	}
	return nil
}

func (m *model) Intact(filtered, ofServices []netip.Addr) (bool, error) {
	m.overdue()
	for s, addrs := range map[Set][]netip.Addr{vips: filtered, services: ofServices} {
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

func (m *model) Locks() (locks []Change, err error) {
	for _, s := range []Set{answer, accept, until} {
		for addr, end := range m.sets[s] {
			if lasts := end.Sub(m.time); lasts > 0 {
				locks = append(locks, Change{s, addr, lasts})
			}
		}
	}
	return locks, nil
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

// overdue applies the changes of the stuck call.
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
			m.wrong = fmt.Sprintf("timeout %v is too short: it may round to none", c.Lasts)
		default:
			m.sets[c.Set][c.Addr] = m.time.Add(c.Lasts + late)
		}
	}
	for addr := range m.sets[vips] {
		m.ended(addr, m.opened(answer, addr), m.opened(accept, addr))
	}
}

// opened returns the end of addr's opening: the earlier end of its locks.
func (m *model) opened(first Set, addr netip.Addr) time.Time {
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
