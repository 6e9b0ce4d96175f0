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
	"github.com/herald-vip/herald/internal/wake"
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
	pauses   *pauses    // nil before the first check; guarded by applying
	unwatch  func()     // ends the watch for pauses

	mu      sync.Mutex // never held while waiting, so that notify may call Verdicts
	runners []*runner  // in Apply order
}

// NewMonitor returns a Monitor without checks. It calls notify when the state, the warning or the reason of a failing
// check changes, then logs changes of state and warning. Calls for one check come in order; calls for several checks
// may overlap. A check does not probe while notify runs, so notify must be quick, and it must not call Apply or Close.
// A nil log discards messages; a nil notify is not called.
func NewMonitor(log *slog.Logger, notify func(Verdict)) *Monitor {
	log = cmp.Or(log, slog.New(slog.DiscardHandler))
	if notify == nil {
		notify = func(Verdict) {}
	}
	// Without keep-alive: the probes themselves detect a silent peer.
	dialer := &net.Dialer{KeepAlive: -1}
	return &Monitor{log: log, notify: notify, dial: dialer.DialContext, sandbox: sandbox.New()}
}

// Apply replaces the running checks with the given ones. Checks are identified by name. An unchanged check runs on
// undisturbed. A changed check starts over but keeps its verdict until its new probes decide, so that a reload never
// withdraws by itself. A removed check is stopped before Apply returns. If two checks share a name, or a URL cannot be
// parsed, Apply returns an error that names the check, and changes nothing.
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
	probers := make([]prober, len(checks)) // nil if the check is unchanged
	seen := make(map[string]bool)
	for i, c := range checks {
		if seen[c.Name] {
			return fmt.Errorf("check %q: two checks have this name: rename one", c.Name)
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

	if m.pauses == nil && len(wanted) > 0 {
		m.pauses = newPauses(wake.Suspended)
		m.unwatch = m.pauses.watch()
	}
	runners := make([]*runner, len(wanted))
	for i, c := range wanted {
		r := old[c.Name]
		delete(old, c.Name)
		if probers[i] != nil {
			v := Verdict{Name: c.Name, Reason: "not probed yet", Since: time.Now()}
			if r != nil {
				r.stop()
				v = r.current()
			}
			r = start(c, probers[i], v, m)
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
	return nil, errors.New("the check has no kind: set one")
}

// Verdicts returns the current verdict of each check, in the order of the last Apply.
func (m *Monitor) Verdicts() []Verdict {
	runners := m.current()
	verdicts := make([]Verdict, len(runners))
	for i, r := range runners {
		verdicts[i] = r.current()
	}
	return verdicts
}

// Close stops all checks, waits until none runs, and makes Verdicts return none.
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
	if m.unwatch != nil {
		m.unwatch()
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
