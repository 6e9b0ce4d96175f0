package soak

import (
	"slices"
	"sync"
	"time"
)

// recorder writes the trace of a run. All its times come from one monotonic clock.
type recorder struct {
	began time.Time

	mu    sync.Mutex
	trace Trace
	now   map[Sign]bool
	// changed is closed and replaced at every change of a sign.
	changed chan struct{}
}

func newRecorder() *recorder {
	return &recorder{began: time.Now(), trace: Trace{Ready: Never}, now: make(map[Sign]bool), changed: make(chan struct{})}
}

// clock returns the time since the start of the run.
func (r *recorder) clock() time.Duration { return time.Since(r.began) }

// see records the signs at a place: exactly those in here are present. The place is a
// router or, if router is empty, a master.
func (r *recorder) see(router, master string, here map[Sign]bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := r.clock()
	note := func(s Sign, present bool) {
		r.trace.Changes = append(r.trace.Changes, Change{At: at, Sign: s, Present: present})
		close(r.changed)
		r.changed = make(chan struct{})
	}
	for s := range here {
		if !r.now[s] {
			r.now[s] = true
			note(s, true)
		}
	}
	for s := range r.now {
		if !here[s] && s.Router == router && (router != "" || s.Master == master) {
			delete(r.now, s)
			note(s, false)
		}
	}
}

// present returns the number of signs now, and a channel that is closed when it changes.
func (r *recorder) present() (n int, changed <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.now), r.changed
}

// add calls change with the trace and the time, under the lock.
func (r *recorder) add(change func(t *Trace, now time.Duration)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(&r.trace, r.clock())
}

// snapshot returns a copy of the trace so far.
func (r *recorder) snapshot() Trace {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.trace
	t.End = r.clock()
	t.Incidents = slices.Clone(t.Incidents) // all other lists are only appended to
	return t
}
