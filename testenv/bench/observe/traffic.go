// Package observe holds the outside observers of benchmarks: clients that connect, BGP
// messages, holders on a link, and whether the machine was too busy for meaningful
// results.
package observe

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"time"

	"github.com/herald-vip/herald/internal/probe"
	"github.com/herald-vip/herald/testenv/holders"
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

const (
	// restWithin bounds the time until a link is at rest. After a cut, clients have kept
	// the wrong MAC address for more than half a minute.
	restWithin = 90 * time.Second
	// restFor is how long a node must have held a VIP, without failed connections, before
	// a fault. Linux ignores gratuitous ARP within a second of a change of its entry
	// (net.ipv4.neigh.*.locktime), and keepalived repeats it after a second. An earlier
	// fault would find the client unable to learn.
	restFor = 2500 * time.Millisecond
)

// AtRest waits until each address has had the same holder for a while, without a
// failed connection of these clients, and check, unless nil, returns no error. It
// returns the holders.
func AtRest(ctx context.Context, seen *holders.Observer, vips []netip.Addr, clients []*Traffic, check func(ctx context.Context, holders map[netip.Addr]string) error) map[netip.Addr]string {
	ctx, cancel := context.WithTimeout(ctx, restWithin)
	defer cancel()
	var since time.Time
	var holders map[netip.Addr]string
	failed := -1
	for {
		now, bad := make(map[netip.Addr]string), Failed(clients)
		for _, vip := range vips {
			if holder, _ := seen.Holder(vip); holder != "" {
				now[vip] = holder
			}
		}
		if len(now) < len(vips) || !maps.Equal(now, holders) || bad != failed {
			holders, failed, since = now, bad, time.Now()
		}
		var err error
		if time.Since(since) > restFor {
			if check != nil {
				err = check(ctx, holders)
			}
			if err == nil {
				return holders
			}
		}
		if late := step.Sleep(ctx, 50*time.Millisecond); late != nil {
			step.Do(fmt.Errorf("the link did not come to rest; the VIPs are on %v: %w", holders, errors.Join(late, err)))
		}
	}
}

// AwaitTaken waits until other nodes than the holder have claimed all these addresses
// since an instant. It returns the time since then; nil if the deadline passed first.
func AwaitTaken(ctx context.Context, seen *holders.Observer, vips []netip.Addr, holder string, since time.Duration, deadline time.Time) *time.Duration {
	for {
		if after, ok := TakenOver(seen.Trace(), vips, holder, since); ok {
			return &after
		}
		if time.Now().After(deadline) {
			return nil
		}
		step.Pause(ctx, 50*time.Millisecond)
	}
}
