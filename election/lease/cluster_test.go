package lease_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/herald-vip/herald/election/electorate"
	"github.com/herald-vip/herald/election/lease"
	"github.com/herald-vip/herald/election/lease/message"
)

const (
	duration = 600 * time.Millisecond
	vip      = "control-plane"
)

// cluster runs machines in virtual time. Every message passes through the wire format and takes one step.
type cluster struct {
	t           *testing.T
	now         time.Time
	electorate  electorate.Electorate
	nodes       map[string]*node
	names       []string
	disks       map[string]lease.State
	incarnation uint64
	flying      []packet
	cut         map[[2]string]bool // source, destination
	observers   int                // maximum known by each member
	open        *lease.Open        // of members started from now on
	apart       func()             // handles two holders; nil: the test fails
	byTCP       bool               // members tell each other of clusters by TCP
	prepare     func(*lease.Machine)
	sent        int // number of messages
	bytes       int
	// lag returns the delays of copies of a packet in steps; none: it is lost. Nil: one step.
	lag  func(src, dst string) []int
	drop func(src, dst string, m message.Message) bool
	fail func(format string, args ...any)
}

type node struct {
	*lease.Machine
	name   string
	paused bool
	until  map[string]time.Time // held leases
	events []lease.Event
	yield  bool // obeys Transfer
	inbox  []packet
}

type packet struct {
	src, dst string
	bytes    []byte
	arrives  time.Time
}

const step = time.Millisecond

func newCluster(t *testing.T, names ...string) *cluster {
	c := &cluster{
		t: t, now: time.Unix(1_000_000, 0), nodes: map[string]*node{}, disks: map[string]lease.State{}, cut: map[[2]string]bool{}, incarnation: 1000,
		electorate: electorate.Electorate{Members: names, Duration: duration},
	}
	c.fail = func(format string, args ...any) {
		t.Helper()
		t.Fatalf(format, args...)
	}
	for _, name := range names {
		c.start(name, c.electorate)
	}
	return c
}

// start begins a new process of a member with its predecessor's disk.
func (c *cluster) start(name string, e electorate.Electorate) *node {
	c.t.Helper()
	c.incarnation++
	m, err := lease.New(c.now, lease.Options{Self: name, Incarnation: c.incarnation, Electorate: e, Open: c.open, State: c.disks[name], Observers: c.observers})
	if err != nil {
		c.t.Fatal(err)
	}
	if c.prepare != nil {
		c.prepare(m)
	}
	n := &node{Machine: m, name: name, until: map[string]time.Time{}}
	c.nodes[name] = n
	if !slices.Contains(c.names, name) {
		c.names = append(c.names, name)
		slices.Sort(c.names)
	}
	return n
}

func (c *cluster) kill(name string) {
	delete(c.nodes, name)
	c.names = slices.DeleteFunc(c.names, func(n string) bool { return n == name })
}

// campaign makes all members candidates.
func (c *cluster) campaign(leases ...string) {
	for _, name := range c.names {
		for _, l := range leases {
			c.nodes[name].Campaign(c.now, lease.Candidacy{Lease: l})
		}
	}
}

// isolate cuts a member off in both directions, or reconnects it.
func (c *cluster) isolate(name string, cut bool) {
	for _, other := range []string{"m1", "m2", "m3", "m4", "m5"} {
		c.cut[[2]string{name, other}], c.cut[[2]string{other, name}] = cut, cut
	}
}

// run advances the time, and checks after each step that no lease has two holders.
func (c *cluster) run(d time.Duration) {
	c.t.Helper()
	for end := c.now.Add(d); c.now.Before(end); {
		c.step()
	}
}

// await runs until a condition holds, for at most d, and returns the time that took.
func (c *cluster) await(d time.Duration, what string, done func() bool) time.Duration {
	c.t.Helper()
	start := c.now
	for !done() {
		if c.now.Sub(start) > d {
			c.fail("not within %v: %s\n%s", d, what, c.describe())
		}
		c.step()
	}
	return c.now.Sub(start)
}

func (c *cluster) step() {
	c.t.Helper()
	c.now = c.now.Add(step)
	var flying []packet
	for _, p := range c.flying {
		if p.arrives.After(c.now) {
			flying = append(flying, p)
			continue
		}
		if n := c.nodes[p.dst]; n != nil && !c.cut[[2]string{p.src, p.dst}] {
			n.inbox = append(n.inbox, p)
		}
	}
	c.flying = flying
	for _, name := range c.names {
		n := c.nodes[name]
		if n.paused {
			continue
		}
		for _, p := range n.inbox {
			msg, err := message.Parse(p.bytes)
			if err != nil {
				c.t.Fatal(err)
			}
			n.Receive(c.now, msg)
		}
		n.inbox = nil
		if next := n.Next(); !next.IsZero() && !c.now.Before(next) {
			n.Tick(c.now)
		}
		if c.byTCP {
			standings := map[string]electorate.Standing{}
			for _, other := range c.others(name) {
				standings[electorate.Name(other)] = c.nodes[other].Standing()
			}
			n.Heed(c.now, standings)
		}
		c.take(n)
	}
	c.check()
}

func (c *cluster) take(n *node) {
	c.t.Helper()
	for s, changed := n.Unsaved(); changed; s, changed = n.Unsaved() {
		c.disks[n.name] = s
		n.Stored(c.now)
	}
	out, events := n.Take()
	for _, e := range events {
		switch e := e.(type) {
		case lease.Granted:
			n.until[e.Lease] = e.Until
		case lease.Lost:
			delete(n.until, e.Lease)
		case lease.Transfer:
			if n.yield {
				c.stepDown(n.name, e.Lease)
			}
		}
	}
	n.events = append(n.events, events...)
	for _, o := range out {
		b, err := o.AppendBinary(nil)
		if err != nil {
			c.t.Fatal(err)
		}
		c.sent++
		c.bytes += len(b)
		if c.drop != nil && c.drop(n.name, o.To, o.Message) {
			continue
		}
		lags := []int{1}
		if c.lag != nil {
			lags = c.lag(n.name, o.To)
		}
		for _, lag := range lags {
			c.flying = append(c.flying, packet{n.name, o.To, b, c.now.Add(time.Duration(lag) * step)})
		}
	}
}

func (c *cluster) stepDown(name, l string) {
	n := c.nodes[name]
	delete(n.until, l)
	n.StepDown(c.now, l)
	c.take(n)
}

// holders lists the holders of a lease, paused processes included.
func (c *cluster) holders(l string) []string {
	var names []string
	for _, name := range c.names {
		if c.now.Before(c.nodes[name].until[l]) {
			names = append(names, name)
		}
	}
	return names
}

func (c *cluster) check() {
	c.t.Helper()
	if c.electorate.Quorum == electorate.None {
		return
	}
	if h := c.holders(vip); len(h) > 1 && c.apart != nil {
		c.apart()
	} else if len(h) > 1 {
		c.fail("two holders: %v\n%s", h, c.describe())
	}
}

// holder returns the only holder; empty if there is none.
func (c *cluster) holder(l string) string {
	c.t.Helper()
	switch h := c.holders(l); len(h) {
	case 0:
		return ""
	case 1:
		return h[0]
	default:
		c.fail("%s has holders %v", l, h)
		return ""
	}
}

func (c *cluster) awaitHolder(d time.Duration) string {
	c.t.Helper()
	c.await(d, "a holder", func() bool { return c.holder(vip) != "" })
	return c.holder(vip)
}

// others lists all members except names.
func (c *cluster) others(names ...string) []string {
	var out []string
	for _, name := range c.names {
		if !slices.Contains(names, name) {
			out = append(out, name)
		}
	}
	return out
}

func (c *cluster) describe() string {
	s := ""
	for _, name := range c.names {
		n := c.nodes[name]
		s += fmt.Sprintf("%s: %+v\n   next %v\n", name, n.Status(c.now), n.Next().Sub(c.now))
	}
	return s
}

// faults returns the faults of a random test. name chooses the member of each, and wait follows it.
func (c *cluster) faults(name func() string, wait func()) map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"isolate": func(rt *rapid.T) {
			c.isolate(name(), true)
			wait()
		},
		"cut": func(rt *rapid.T) {
			c.cut[[2]string{name(), name()}] = true
			wait()
		},
		"heal": func(rt *rapid.T) {
			clear(c.cut)
			wait()
		},
		"pause": func(rt *rapid.T) {
			c.nodes[name()].paused = true
			wait()
		},
		"resume": func(rt *rapid.T) {
			for _, n := range c.nodes {
				n.paused = false
			}
			wait()
		},
	}
}
