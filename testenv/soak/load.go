package soak

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/herald-vip/herald/probe"
	"github.com/herald-vip/herald/testenv/lab"
)

// load connects to the VIP from the client, hundreds of times a second, in
// both address families.
type load struct {
	probers []*probe.Prober
	running sync.WaitGroup

	mu      sync.Mutex
	failed  error
	results []*probe.Result
	window  *Window // that is open now; nil if none is
}

// startLoad connects to the VIP's addresses until ctx ends.
func startLoad(ctx context.Context, client *lab.Node, vips ...netip.Addr) *load {
	l := new(load)
	for _, vip := range vips {
		p := &probe.Prober{
			Target: net.JoinHostPort(vip.String(), "6443"),
			// Below a second, so that a lost SYN is not made good by the next, and
			// long enough for a machine that is busy.
			Timeout: 250 * time.Millisecond,
			Keep:    -1,
			Dial:    client.DialContext,
			OnEvent: l.take,
		}
		l.probers = append(l.probers, p)
		l.running.Go(func() {
			result, err := p.Run(ctx)
			l.mu.Lock()
			defer l.mu.Unlock()
			if err != nil {
				l.failed = fmt.Errorf("probe: %w", err)
				return
			}
			l.results = append(l.results, result)
		})
	}
	return l
}

// wait returns what all probes came to, once ctx has ended.
func (l *load) wait() ([]*probe.Result, error) {
	l.running.Wait()
	return l.results, l.failed
}

// take counts an attempt if a window is open.
func (l *load) take(e probe.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.window == nil || e.Attempt.Outcome.Inconclusive() {
		return
	}
	l.window.Attempts++
	if e.Attempt.Outcome.Failed() {
		l.window.Failures[e.Attempt.Outcome.String()]++
	}
}

// open begins to count for a window.
func (l *load) open(w Window) {
	l.mu.Lock()
	defer l.mu.Unlock()
	w.Failures = make(map[string]int)
	l.window = &w
}

// close ends the window and returns it.
func (l *load) close() Window {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := *l.window
	l.window = nil
	return w
}
