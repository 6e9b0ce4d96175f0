//go:build e2e

package e2e

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/probe"
	"github.com/herald-vip/herald/testenv/tap"
)

// kills is how many apiservers TestControlPlane kills to see how long that is felt: the
// median is logged.
var kills = flag.Int("kills", 3, "how many apiservers to kill under the eyes of a client")

// apiPort is where the apiservers listen.
const apiPort = 6443

// testBridge has masters send new connections on while the routers have not acted yet.
func (c *controlPlane) testBridge(t *testing.T) {
	c.announces(t, c.masters...)
	c.acquainted(t)
	hops := c.listen(t)
	t.Run("apiservers killed one by one", func(t *testing.T) { c.testBridgedKills(t, hops) })
	t.Run("two killed at once", func(t *testing.T) { c.testTwoSick(t, hops) })
	t.Run("drain", func(t *testing.T) { c.testBridgedDrain(t, hops) })
}

// acquainted waits until every master knows what all of them serve.
func (c *controlPlane) acquainted(t *testing.T) {
	t.Helper()
	eventually(t, soon, func() error {
		for _, m := range c.masters {
			status, err := m.status(t)
			if err != nil {
				return err
			}
			if status.Election == nil || len(status.Election.Offers) != len(c.masters) {
				return fmt.Errorf("%s has the offers %+v", m, status.Election)
			}
			for _, o := range status.Election.Offers {
				if o.State() != "serving" || !o.Checks["apiserver"] || !o.Checks["registry"] {
					return fmt.Errorf("%s has of %s that it is %s and offers %s", m, o.Member, o.State(), o.Said())
				}
			}
		}
		return nil
	})
}

// testBridgedKills kills one apiserver after the other. The others get the connections that
// the router still brings.
func (c *controlPlane) testBridgedKills(t *testing.T, hops *hops) {
	hops.mark()
	var outages []time.Duration
	for i := range *kills {
		m := c.masters[i%len(c.masters)]
		client := c.connect(t)
		client.makes(t, 50)
		killed := time.Now()
		kill(t, m.apiserver())
		m.sendsOn(t, killed)
		c.announces(t, c.others(m)...)
		client.makes(t, 50)
		outage := outage(client.end(t))
		t.Logf("apiserver of %s killed: connections failed for %v", m, outage.Round(100*time.Microsecond))
		outages = append(outages, outage)
		start(t, m.apiserver())
		c.announces(t, c.masters...)
		c.acquainted(t)
	}
	slices.Sort(outages)
	t.Logf("median of %d: %v, from %v to %v; %d connections were sent on", len(outages), outages[len(outages)/2], outages[0], outages[len(outages)-1], hops.heard())
	hops.check(t)
}

// testTwoSick kills two apiservers at the same time, so that either master still takes the other
// for healthy. What they send on goes no further.
func (c *controlPlane) testTwoSick(t *testing.T, hops *hops) {
	hops.mark()
	client := c.connect(t)
	client.makes(t, 50)
	killed := time.Now()
	for _, m := range c.masters[:2] {
		kill(t, m.apiserver())
	}
	for _, m := range c.masters[:2] {
		m.sendsOn(t, killed)
	}
	c.announces(t, c.masters[2])
	client.makes(t, 50)
	client.end(t)
	for _, m := range c.masters[:2] {
		start(t, m.apiserver())
	}
	hops.check(t)
	c.announces(t, c.masters...)
	c.acquainted(t)
}

// testBridgedDrain drains a master. No connection fails but for one that was being made at the
// moment when a router moved it: it began with one server and goes on to another, whoever speaks.
func (c *controlPlane) testBridgedDrain(t *testing.T, hops *hops) {
	m := c.masters[0]
	r := c.routers[0]
	hops.mark()
	c.mark()
	client := c.connect(t)
	client.makes(t, 50)
	drained := time.Now()
	_, err := run(t, m.speaker(), "herald", "drain")
	must(t, err)
	m.sendsOn(t, drained)
	c.announces(t, c.others(m)...)
	client.makes(t, 50)
	result := client.end(t)
	_, err = run(t, m.speaker(), "herald", "undrain")
	must(t, err)
	c.announces(t, c.masters...)
	var moved time.Time
	for _, s := range c.routes[r.Name()].steps(vip4) {
		if !slices.Contains(s.nextHops, m.hop(r, vip4)) {
			moved = s.at
			break
		}
	}
	const late = 5 * time.Millisecond // the kernel tells before or after it does
	for _, a := range result.Attempts {
		from := result.Began.Add(a.Start)
		if to := from.Add(a.Latency); a.Outcome.Failed() && (moved.Before(from.Add(-late)) || moved.After(to.Add(late))) {
			t.Errorf("a connection failed (%s) %v after the drain began; the router moved connections after %v", a.Outcome, from.Sub(drained), moved.Sub(drained))
		}
	}
	t.Logf("%d of %d connections failed; %d were sent on", result.Failed, result.Total, hops.heard())
	hops.check(t)
}

// sendsOn waits until the master's speaker says that new connections to the VIP have been sent
// on since then.
func (m master) sendsOn(t *testing.T, since time.Time) {
	t.Helper()
	eventually(t, soon, func() error {
		status, err := m.status(t)
		if err != nil {
			return err
		}
		for _, e := range status.Events {
			if e.What == "new connections are sent on" && strings.HasPrefix(e.About, "address="+vip4+" ") && e.At.After(since) {
				return nil
			}
		}
		return fmt.Errorf("%s has not sent connections on since %v: %+v", m, since, status.Events)
	})
}

// vipClient connects to the VIP from r1 every few milliseconds.
type vipClient struct {
	prober *probe.Prober
	cancel context.CancelFunc
	done   chan struct{}
	result *probe.Result
	err    error
}

// connect begins to connect.
func (c *controlPlane) connect(t *testing.T) *vipClient {
	t.Helper()
	p := &probe.Prober{
		Target: net.JoinHostPort(vip4, fmt.Sprint(apiPort)), Dial: c.routers[0].DialContext,
		Interval: 2 * time.Millisecond, // so that some come to each master before the router has acted
	}
	ctx, cancel := context.WithCancel(t.Context())
	client := &vipClient{prober: p, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(client.done)
		client.result, client.err = p.Run(ctx)
	}()
	t.Cleanup(func() { cancel(); <-client.done })
	return client
}

// makes waits until the client has made so many more connections, all of them good, one
// after the other.
func (c *vipClient) makes(t *testing.T, n int) {
	t.Helper()
	before := c.prober.Snapshot()
	eventually(t, soon, func() error {
		now := c.prober.Snapshot()
		if now.Failed > before.Failed {
			before = now
		}
		if now.Total < before.Total+n {
			return fmt.Errorf("%d connections of %d", now.Total-before.Total, n)
		}
		return nil
	})
}

// end ends the client.
func (c *vipClient) end(t *testing.T) *probe.Result {
	t.Helper()
	c.cancel()
	<-c.done
	must(t, c.err)
	return c.result
}

// outage is the time from the first connection that failed to the first good one after the last
// that did.
func outage(r *probe.Result) time.Duration {
	var first, until time.Duration
	failing, failed := false, false
	for _, a := range r.Attempts {
		switch {
		case a.Outcome.Inconclusive():
		case a.Outcome.Failed():
			if !failed {
				first = a.Start
			}
			failing, failed = true, true
		case failing:
			until, failing = a.Start, false
		}
	}
	return until - first
}

// hops hears the beginnings of connections to the apiservers' port that masters send to
// r1, which all that they send on passes.
type hops struct {
	own map[netip.Addr]master // where masters are reached

	mu   sync.Mutex
	sent int
	odd  []error
}

// listen listens until the end of the test.
func (c *controlPlane) listen(t *testing.T) *hops {
	t.Helper()
	h := &hops{own: make(map[netip.Addr]master)}
	r := c.routers[0]
	for _, m := range c.masters {
		h.own[m.hop(r, vip4)] = m
	}
	for _, m := range c.masters {
		ear, err := tap.Open(r.Node, fmt.Sprintf("eth%d", m.number), synTo(apiPort), func(f tap.Frame) { h.take(m, f) })
		must(t, err)
		t.Cleanup(func() {
			if err := ear.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	return h
}

// take takes the first packet of a connection. r1 sends packets with a TTL of 64; each
// node that sends one on takes one off.
func (h *hops) take(m master, f tap.Frame) {
	if f.Outgoing {
		return
	}
	const ip = 14
	ttl := f.Data[ip+8]
	to := netip.AddrFrom4([4]byte(f.Data[ip+16:]))
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sent++
	if _, ok := h.own[to]; !ok {
		h.odd = append(h.odd, fmt.Errorf("%s sent a connection on to %s, which is no master's own address", m, to))
	}
	if ttl != 63 {
		h.odd = append(h.odd, fmt.Errorf("%s sent a connection on to %s with a TTL of %d: it was not the first to do so", m, to, ttl))
	}
}

func (h *hops) mark() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sent = 0
}

// heard is how many connections masters have sent on since the mark.
func (h *hops) heard() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.sent
}

// check reports connections that went more than one hop, or to a VIP. None at all prove nothing.
func (h *hops) check(t *testing.T) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.sent == 0 {
		t.Error("no connection was sent on")
	}
	if err := errors.Join(h.odd...); err != nil {
		t.Error(err)
	}
	h.odd = nil
}

// synTo lets the first packets of TCP connections over IPv4 to a port pass.
func synTo(port uint32) []bpf.Instruction {
	const synAck = 0x12
	return []bpf.Instruction{
		bpf.LoadAbsolute{Off: 12, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.ETH_P_IP, SkipTrue: 8},
		bpf.LoadAbsolute{Off: 23, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.IPPROTO_TCP, SkipTrue: 6},
		bpf.LoadAbsolute{Off: 36, Size: 2}, // no options precede it in a lab
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: port, SkipTrue: 4},
		bpf.LoadAbsolute{Off: 47, Size: 1},
		bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: synAck},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: 2, SkipTrue: 1},
		bpf.RetConstant{Val: 128},
		bpf.RetConstant{Val: 0},
	}
}
