package bench

import (
	"context"
	"time"

	"github.com/herald-vip/herald/probe"
	"github.com/herald-vip/herald/testenv/lab"
)

// traffic is a client that opens a connection to the VIP every few milliseconds.
type traffic struct {
	prober *probe.Prober
	stop   context.CancelFunc
	done   chan struct{}
	result *probe.Result
	err    error
}

// send begins; the caller ends it with end. With identify a connection counts
// as good only when the server answers a request: the kernel accepts
// connections for a server that is frozen.
func send(ctx context.Context, client *lab.Node, target string, identify bool) *traffic {
	ctx, stop := context.WithCancel(ctx)
	t := &traffic{
		prober: &probe.Prober{Target: target, Identify: identify, Dial: client.DialContext},
		stop:   stop, done: make(chan struct{}),
	}
	go func() {
		defer close(t.done)
		t.result, t.err = t.prober.Run(ctx)
	}()
	return t
}

// end ends the traffic and returns what came of it.
func (t *traffic) end() (*probe.Result, error) {
	t.stop()
	<-t.done
	return t.result, t.err
}

// quietAfter is how long no connection may have failed for an outage to be
// over: long enough for many attempts at every master, and for the timeout.
const quietAfter = 400 * time.Millisecond

// quiet waits until no connection has failed for a while, or until the deadline.
func quiet(ctx context.Context, all []*traffic, deadline time.Time) error {
	failed := -1
	var since time.Time
	for {
		now := 0
		for _, t := range all {
			now += t.prober.Snapshot().Failed
		}
		if now != failed {
			failed, since = now, time.Now()
		}
		if time.Since(since) >= quietAfter+probe.DefaultTimeout || time.Now().After(deadline) {
			return nil
		}
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
}

// enough waits until each client has made that many connections.
func enough(ctx context.Context, all []*traffic, connections int) error {
	for _, t := range all {
		for t.prober.Snapshot().Total < connections {
			if err := pause(ctx, 20*time.Millisecond); err != nil {
				return err
			}
		}
	}
	return nil
}

// outage is the longest outage among attempts in the order of their starts:
// the time from the start of the first failed attempt to that of the first good
// one after the last failed one. Unlike one of package probe it spans good
// attempts between failed ones, of which there are many as long as other masters
// answer, and is over when none has failed for quietAfter. It is open if that
// long has not passed since.
func outage(attempts []probe.Attempt) (longest time.Duration, open bool) {
	var first, last, until time.Duration // of the outage under way
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

// tell fills in what the traffic saw.
func (t *Trial) tell(r *probe.Result) {
	t.Failed, t.Late = r.Failed, r.MaxDelay
	t.Starved = r.Outcomes[probe.Stalled] + r.Outcomes[probe.Local]
	t.Attempts = r.Total - t.Starved
	t.Outage, t.Open = outage(r.Attempts)
}
