package lease_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/herald-vip/herald/election/electorate"
	"github.com/herald-vip/herald/election/lease"
)

// priorities makes m1, m2 … candidates with these priorities.
func (c *cluster) priorities(preempt bool, priorities ...int) {
	for i, p := range priorities {
		c.nodes[c.names[i]].Campaign(c.now, lease.Candidacy{Lease: vip, Priority: p, Preempt: preempt})
		c.nodes[c.names[i]].yield = true
	}
}

func TestPriorityDecides(t *testing.T) {
	c := newCluster(t, "m1", "m2", "m3")
	c.run(2 * duration) // all vote
	c.priorities(false, 1, 3, 2)
	if got := c.awaitHolder(duration); got != "m2" {
		t.Errorf("%s was elected, want m2", got)
	}
	c.run(duration)
	c.kill("m2")
	if got := c.awaitHolder(2 * duration); got != "m3" {
		t.Errorf("%s took over, want m3", got)
	}
	c.stepDown("m3", vip)
	if got := c.awaitHolder(duration); got != "m1" {
		t.Errorf("%s was handed the lease, want m1", got)
	}
	c.nodes["m3"].Campaign(c.now, lease.Candidacy{Lease: vip, Priority: 2})
	c.run(5 * duration)
	if got := c.holder(vip); got != "m1" {
		t.Errorf("%s holds the lease, want m1 to stay", got)
	}
}

func TestReleaseGoesToTheBest(t *testing.T) {
	c := newCluster(t, "m1", "m2", "m3", "m4", "m5")
	c.priorities(false, 9, 1, 4, 3, 2)
	c.awaitHolder(2 * duration)
	for _, want := range []string{"m3", "m4", "m5", "m2"} {
		c.run(duration)
		holder := c.holder(vip)
		c.stepDown(holder, vip)
		took := c.await(duration, "a successor", func() bool { return c.holder(vip) != "" })
		if got := c.holder(vip); got != want {
			t.Errorf("%s stepped down, %s holds the lease, want %s", holder, got, want)
		}
		if took > 8*step {
			t.Errorf("%s took %v", want, took)
		}
	}
	c.run(duration)
	c.stepDown("m2", vip)
	c.run(2 * duration)
	if s := c.nodes["m1"].Status(c.now).Leases[0]; s.Holder != "" || !strings.Contains(s.Why, "no member campaigns") {
		t.Errorf("no member campaigns, but the status is %+v", s)
	}
}

func TestPreempts(t *testing.T) {
	c := newCluster(t, "m1", "m2", "m3")
	c.priorities(true, 1, 1, 1)
	first := c.awaitHolder(2 * duration)
	c.run(2 * duration)
	better := c.others(first)[0]
	c.nodes[better].Campaign(c.now, lease.Candidacy{Lease: vip, Priority: 5, Preempt: true})
	took := c.await(3*duration, "preempted", func() bool { return c.holder(vip) == better })
	if took < duration {
		t.Errorf("preempted after %v, want the candidate to be steady for %v", took, duration)
	}
	y := slices.IndexFunc(c.nodes[first].events, func(e lease.Event) bool { _, ok := e.(lease.Transfer); return ok })
	if y < 0 || c.nodes[first].events[y].(lease.Transfer).To != better {
		t.Errorf("%s was not asked to transfer the lease to %s: %+v", first, better, c.nodes[first].events)
	}
	c.nodes[first].Campaign(c.now, lease.Candidacy{Lease: vip, Priority: 1, Preempt: true})
	c.run(5 * duration)
	if got := c.holder(vip); got != better {
		t.Errorf("%s holds the lease, want %s", got, better)
	}
}

// TestSpreads checks that equal members share many leases about equally, and agree on the distribution.
func TestSpreads(t *testing.T) {
	c := newCluster(t, "m1", "m2", "m3")
	c.run(2 * duration)
	var names []string
	for i := range 90 {
		names = append(names, "vip-"+string(rune('a'+i%26))+string(rune('a'+i/26)))
	}
	c.campaign(names...)
	c.run(2 * duration)
	count := map[string]int{}
	for _, name := range names {
		count[c.holder(name)]++
	}
	for _, name := range c.names {
		if n := count[name]; n < 15 {
			t.Errorf("%s holds %d of 90 leases: %v", name, n, count)
		}
	}
}

// TestQuorumNone checks that both sides of a partition have a holder without a quorum, and one of them steps down once
// they receive each other.
func TestQuorumNone(t *testing.T) {
	c := newCluster(t)
	c.electorate = electorate.Electorate{Members: []string{"m1", "m2"}, Duration: duration, Quorum: electorate.None}
	c.start("m1", c.electorate)
	c.campaign(vip)
	c.awaitHolder(2 * duration)

	c.start("m2", c.electorate).Campaign(c.now, lease.Candidacy{Lease: vip, Priority: 1})
	c.run(5 * duration)
	if got := c.holder(vip); got != "m1" {
		t.Fatalf("%q holds the lease, want m1 to stay", got)
	}
	c.isolate("m2", true)
	c.run(duration / 3)
	if got := c.holder(vip); got != "m1" {
		t.Fatalf("%q holds the lease, want m1 to keep it in a partition", got)
	}
	c.await(2*duration, "two holders", func() bool { return len(c.holders(vip)) == 2 })
	c.isolate("m2", false)
	c.await(duration/2, "one holder", func() bool { return len(c.holders(vip)) == 1 })
	if got := c.holder(vip); got != "m2" {
		t.Errorf("%s holds the lease, want m2, which has the greater priority", got)
	}
	c.run(5 * duration)
	if got := c.holder(vip); got != "m2" {
		t.Errorf("%q holds the lease, want m2", got)
	}
	c.kill("m2")
	if took := c.await(2*duration, "m1 alone", func() bool { return c.holder(vip) == "m1" }); took > duration+50*time.Millisecond {
		t.Errorf("m1 took over after %v", took)
	}
}
