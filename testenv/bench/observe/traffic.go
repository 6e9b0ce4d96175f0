// Package observe holds the outside observers of benchmarks: clients that connect, BGP
// messages, holders on a link, and whether the machine was too busy for meaningful
// results.
package observe

import (
	"context"
	"time"

	"github.com/herald-vip/herald/internal/probe"
	"github.com/herald-vip/herald/testenv/lab"
	"github.com/herald-vip/herald/testenv/step"
)

// Traffic is a client that opens a connection every few milliseconds.
type Traffic struct {
	prober *probe.Prober
	stop   context.CancelFunc
	done   chan struct{}
	result *probe.Result
	err    error
}

// Send starts a client; the caller ends it with End. With identify a connection is
// good only if the server answers a request: the kernel accepts connections for a
// frozen server.
func Send(ctx context.Context, client *lab.Node, target string, identify bool) *Traffic {
	ctx, stop := context.WithCancel(ctx)
	t := &Traffic{
		prober: &probe.Prober{Target: target, Identify: identify, Dial: client.DialContext},
		stop:   stop, done: make(chan struct{}),
	}
	go func() {
		defer close(t.done)
		t.result, t.err = t.prober.Run(ctx)
	}()
	return t
}

// LeadIn is how long connections must succeed before a fault.
const LeadIn = 250 * time.Millisecond

// Stop ends the traffic; End also returns its result. Both may be called again.
func (t *Traffic) Stop() {
	t.stop()
	<-t.done
}

// End ends the traffic and returns its result.
func (t *Traffic) End() *probe.Result {
	t.Stop()
	return step.Get(t.result, t.err)
}

// Failed returns the number of failed connections so far.
func Failed(all []*Traffic) (n int) {
	for _, t := range all {
		n += t.prober.Snapshot().Failed
	}
	return n
}

// quietAfter is the time without a failed connection after which an outage is over:
// long enough for many attempts at every master, and for the timeout.
const quietAfter = 400 * time.Millisecond

// AwaitQuiet waits until no connection has failed for a while, or until the deadline.
func AwaitQuiet(ctx context.Context, deadline time.Time, all ...*Traffic) {
	failed := -1
	var since time.Time
	for {
		if now := Failed(all); now != failed {
			failed, since = now, time.Now()
		}
		if time.Since(since) >= quietAfter+probe.DefaultTimeout || time.Now().After(deadline) {
			return
		}
		step.Pause(ctx, 20*time.Millisecond)
	}
}

// AwaitConnections waits until each client has made that many connections.
func AwaitConnections(ctx context.Context, connections int, all ...*Traffic) {
	for _, t := range all {
		for t.prober.Snapshot().Total < connections {
			step.Pause(ctx, 20*time.Millisecond)
		}
	}
}

// Outage returns the longest outage among attempts in the order of their starts. It
// lasts from the start of the first failed attempt to the start of the first good one
// after the last failed one. Unlike an outage of package probe it spans good attempts
// between failed ones, which are frequent while other masters answer. It is over when
// none has failed for quietAfter, and open if that time has not passed.
func Outage(attempts []probe.Attempt) (longest time.Duration, open bool) {
	var first, last, until time.Duration // of the current outage
	failing, recovered := false, false
	for _, a := range attempts {
		if a.Outcome.Inconclusive() {
			continue
		}
		if failing && a.Start-last >= quietAfter {
			longest = max(longest, until-first)
			failing = false
		}
		switch {
		case a.Outcome.Failed():
			if !failing {
				first = a.Start
			}
			last, until, failing, recovered = a.Start, a.Start, true, false
		case failing && !recovered:
			until, recovered = a.Start, true
		}
	}
	if failing {
		longest = max(longest, until-first)
	}
	return longest, failing
}
