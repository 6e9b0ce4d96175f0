package health

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/herald-vip/herald/health/sandbox"
)

// ErrClosed is returned by [Monitor.Apply] after [Monitor.Close].
var ErrClosed = errors.New("health monitor is closed")

// Monitor runs a set of checks. Its methods may be called from any goroutine.
type Monitor struct {
	log    *slog.Logger
	notify func(Verdict)
	dial   dialFunc

	sandbox *sandbox.Sandbox

	applying sync.Mutex // one Apply or Close at a time
	closed   bool       // guarded by applying

	mu      sync.Mutex // never held while waiting, so that notify may call Verdicts
	runners []*runner  // in Apply order
}

// NewMonitor returns a Monitor without checks. At each change of a state, a warning
// or the reason why a check fails it calls notify; the first two it then logs. The calls
// for one check come in order; those for several may overlap. While notify runs its check
// does not probe, so it must be quick, and it must not call Apply or Close. Nil
// stands for no log and no notification.
func NewMonitor(log *slog.Logger, notify func(Verdict)) *Monitor {
	log = cmp.Or(log, slog.New(slog.DiscardHandler))
	if notify == nil {
		notify = func(Verdict) {}
	}
	// Without keep-alive: the probes themselves notice a peer that went silent.
	dialer := &net.Dialer{KeepAlive: -1}
	return &Monitor{log: log, notify: notify, dial: dialer.DialContext, sandbox: sandbox.New()}
}

// Apply makes the given checks the ones that run. An unchanged check, known by
// its name, runs on undisturbed. A changed one starts over but keeps its verdict
// until the new probes have decided, so that a reload never withdraws by itself.
// A removed one is stopped before Apply returns. If two checks have one name, or a
// URL cannot be parsed, Apply returns an error that names the check and changes nothing.
func (m *Monitor) Apply(checks []Check) error {
	m.applying.Lock()
	defer m.applying.Unlock()
	if m.closed {
		return ErrClosed
	}

	old := make(map[string]*runner)
	for _, r := range m.current() {
		old[r.check.Name] = r
	}
	wanted := make([]Check, len(checks))
	probers := make([]prober, len(checks)) // nil for the unchanged
	seen := make(map[string]bool)
	for i, c := range checks {
		if seen[c.Name] {
			return fmt.Errorf("check %q: there are two of this name", c.Name)
		}
		seen[c.Name] = true
		wanted[i] = c.clone()
		if r := old[c.Name]; r != nil && reflect.DeepEqual(r.check, wanted[i]) {
			continue
		}
		p, err := m.newProber(wanted[i])
		if err != nil {
			return fmt.Errorf("check %q: %w", c.Name, err)
		}
		probers[i] = p
	}

	runners := make([]*runner, len(wanted))
	for i, c := range wanted {
		r := old[c.Name]
		delete(old, c.Name)
		if probers[i] != nil {
			v := Verdict{Check: c.Name, Reason: "not probed yet", Since: time.Now()}
			if r != nil {
				r.stop()
				v = r.current()
			}
			r = start(c, probers[i], v, m.log, m.notify)
		}
		runners[i] = r
	}
	m.mu.Lock()
	m.runners = runners
	m.mu.Unlock()
	for _, r := range old {
		r.stop()
	}
	return nil
}

func (m *Monitor) newProber(c Check) (prober, error) {
	_, set := c.kinds()
	for _, k := range set {
		p, err := k.prober(m, c.Timeout)
		if err == nil && c.Not {
			p = inverted{p}
		}
		return p, err
	}
	return nil, errors.New("it is of no kind")
}

// Verdicts returns the present verdict of each check, in the order of the last Apply.
func (m *Monitor) Verdicts() []Verdict {
	runners := m.current()
	verdicts := make([]Verdict, len(runners))
	for i, r := range runners {
		verdicts[i] = r.current()
	}
	return verdicts
}

// Close stops all checks and returns when nothing of them is left running. Verdicts then returns none.
func (m *Monitor) Close() {
	m.applying.Lock()
	defer m.applying.Unlock()
	m.closed = true
	runners := m.current()
	for _, r := range runners {
		r.cancel()
	}
	for _, r := range runners {
		r.stop()
	}
	m.mu.Lock()
	m.runners = nil
	m.mu.Unlock()
}

func (m *Monitor) current() []*runner {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.runners)
}
