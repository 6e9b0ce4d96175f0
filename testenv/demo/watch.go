package demo

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/herald-vip/herald/probe"
	"github.com/herald-vip/herald/testenv/lab"
	"github.com/herald-vip/herald/testenv/router"
)

// watched follows what a router makes of the announcements.
type watched struct {
	name string
	done chan struct{}

	mu      sync.Mutex
	state   *router.State
	changed chan struct{}
	err     error
}

// watch follows the router that runs on node until ctx ends.
func watch(ctx context.Context, name string, node *lab.Node, v *view) *watched {
	w := &watched{name: name, done: make(chan struct{}), changed: make(chan struct{})}
	go func() {
		defer close(w.done)
		for ctx.Err() == nil {
			// The router may still be starting.
			for state, err := range router.Watch(ctx, socketOf(node, "/run/router.sock")) {
				w.take(state, err)
				if err == nil {
					v.uses(name, masterList(state)...)
				}
			}
			select {
			case <-ctx.Done():
			case <-time.After(20 * time.Millisecond):
			}
		}
	}()
	return w
}

func (w *watched) wait() { <-w.done }

func (w *watched) take(state *router.State, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil {
		w.state = state
	}
	w.err = err
	close(w.changed)
	w.changed = make(chan struct{})
}

// await waits until the router uses exactly the given masters for every VIP
// address, and returns since when it does.
func (w *watched) await(ctx context.Context, names []string) (time.Time, error) {
	for {
		w.mu.Lock()
		state, changed, err := w.state, w.changed, w.err
		w.mu.Unlock()
		if state != nil && err == nil && uses(state, names) {
			var last time.Time
			for _, r := range state.Routes {
				if r.Since.After(last) {
					last = r.Since
				}
			}
			return last, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			if err != nil {
				return time.Time{}, fmt.Errorf("%s: %w", w.name, err)
			}
			return time.Time{}, fmt.Errorf("%s does not come to use %s: it uses %q", w.name, strings.Join(names, ", "), masterList(state))
		}
	}
}

// families is how many addresses the VIP has.
const families = 2

func uses(s *router.State, names []string) bool {
	if len(names) > 0 && len(s.Routes) != families {
		return false
	}
	for _, r := range s.Routes {
		if !slices.Equal(announcers(r), names) || r.Problem != "" {
			return false
		}
	}
	return true
}

// masterList are the masters that the router uses for the VIP's IPv4 address.
func masterList(s *router.State) []string {
	if s == nil {
		return nil
	}
	for _, r := range s.Routes {
		if r.Prefix.Addr().String() == vip {
			return announcers(r)
		}
	}
	return nil
}

// traffic is a client that connects to the VIP every few milliseconds.
type traffic struct {
	running sync.WaitGroup

	mu       sync.Mutex
	settled  chan struct{} // closed at every attempt
	run      int           // successes in a row
	attempts int           // since mark
	failed   int
	longest  time.Duration
	servers  map[string]int
	kinds    map[probe.Outcome]int // of failures
}

// probeFrom connects from the node to the apiserver behind the VIP's addresses
// until ctx ends, and shows the connections to the first of them. Each asks the
// server who it is, unless holder tells.
func probeFrom(ctx context.Context, node *lab.Node, v *view, holder func() string, vips ...string) *traffic {
	t := &traffic{settled: make(chan struct{}), servers: make(map[string]int), kinds: make(map[probe.Outcome]int)}
	for i, vip := range vips {
		prober := probe.Prober{
			Target: net.JoinHostPort(vip, "6443"), Identify: holder == nil, Dial: node.DialContext, Keep: -1,
			OnEvent: func(e probe.Event) {
				if holder != nil {
					e.Attempt.Server = holder()
				}
				t.take(e)
				if i == 0 {
					v.attempt(e.Attempt)
				}
			},
		}
		t.running.Go(func() {
			// The target is a literal address, so there is no error to expect.
			if _, err := prober.Run(ctx); err != nil {
				v.say("PROBLEM: %v", err)
			}
		})
	}
	return t
}

func (t *traffic) wait() { t.running.Wait() }

func (t *traffic) take(e probe.Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e.Attempt.Outcome.Inconclusive() {
		return
	}
	t.attempts++
	if e.Attempt.Outcome.Failed() {
		t.failed++
		t.kinds[e.Attempt.Outcome]++
		t.run = 0
	} else {
		t.servers[e.Attempt.Server]++
		t.run++
	}
	if e.Outage != nil {
		t.longest = max(t.longest, e.Outage.Duration())
	}
	close(t.settled)
	t.settled = make(chan struct{})
}

// mark begins to count anew.
func (t *traffic) mark() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.attempts, t.failed, t.run, t.longest = 0, 0, 0, 0
	t.servers = make(map[string]int)
	t.kinds = make(map[probe.Outcome]int)
}

// losses says how connections failed, and for how long they did.
func (t *traffic) losses() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.failed == 0 {
		return ""
	}
	var kinds []string
	for kind, n := range t.kinds {
		kinds = append(kinds, fmt.Sprintf("%d %s", n, kind))
	}
	slices.Sort(kinds)
	return fmt.Sprintf(" (%s), for %s at most", strings.Join(kinds, ", "), ms(t.longest))
}

func (t *traffic) sinceMark() (attempts, failed int, longest time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.attempts, t.failed, t.longest
}

func (t *traffic) served() map[string]int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.servers
}

// quiet waits for that many successes in a row after now.
func (t *traffic) quiet(ctx context.Context, successes int) {
	ctx, cancel := context.WithTimeout(ctx, settle)
	defer cancel()
	t.mu.Lock()
	t.run = 0
	t.mu.Unlock()
	for {
		t.mu.Lock()
		run, settled := t.run, t.settled
		t.mu.Unlock()
		if run >= successes {
			return
		}
		select {
		case <-settled:
		case <-ctx.Done():
			return
		}
	}
}
