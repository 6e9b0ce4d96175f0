package lease_test

// Changes of the electorate leave a live majority.

import (
	"strings"
	"testing"
	"time"

	"github.com/herald-vip/herald/election/electorate"
	"github.com/herald-vip/herald/election/lease"
	"github.com/herald-vip/herald/election/lease/message"
)

// TestDeadLeaveFirst replaces the dead m3 and the live m1 at once: m1 must not leave while m3 has a vote.
func TestDeadLeaveFirst(t *testing.T) {
	c := newCluster(t, "m1", "m2", "m3")
	c.observers = 8
	c.campaign(vip)
	c.awaitHolder(3 * duration)
	c.kill("m3")
	next := voters("m2 m4 m5")
	c.reconfigure(next, "m1", "m2")
	c.start("m4", next).Campaign(c.now, lease.Candidacy{Lease: vip})
	c.start("m5", next).Campaign(c.now, lease.Candidacy{Lease: vip})
	c.nodes["m4"].AddObservers(c.now, "m1")
	c.nodes["m5"].AddObservers(c.now, "m1")
	c.run(2 * step)
	c.awaitActive(40*duration, next, next.Members...)
	c.awaitHolder(3 * duration)
}

// TestDeadLeaveFirstAmongMany does the same while shrinking.
func TestDeadLeaveFirstAmongMany(t *testing.T) {
	c := newCluster(t, "m1", "m2", "m3", "m4", "m5")
	c.campaign(vip)
	c.awaitHolder(3 * duration)
	c.kill("m4")
	c.kill("m5")
	c.reconfigure(voters("m2 m3"), "m1", "m2", "m3")
	c.awaitActive(40*duration, voters("m2 m3"), "m2", "m3")
	c.awaitHolder(3 * duration)
}

// TestSoleVoterIsReplaced checks that the only voter continues until there is another.
func TestSoleVoterIsReplaced(t *testing.T) {
	c := newCluster(t, "m1")
	c.observers = 8
	c.campaign(vip)
	c.awaitHolder(3 * duration)
	two := voters("m2")
	c.reconfigure(two, "m1")
	c.run(3 * step)
	c.start("m2", voters("m1 m2")).AddObservers(c.now, "m1")
	c.awaitActive(3*duration, c.electorate, "m2")
	c.reconfigure(two, "m2")
	c.awaitActive(40*duration, two, "m1", "m2")
}

// TestMembersOfAnotherClusterAreNotAdded checks that members of another cluster are not added: they never adopt this
// cluster's electorate, so its majority could be lost.
func TestMembersOfAnotherClusterAreNotAdded(t *testing.T) {
	c := newCluster(t, "m1", "m2")
	apart := voters("m3 m4")
	c.start("m3", apart)
	c.start("m4", apart)
	c.nodes["m1"].Campaign(c.now, lease.Candidacy{Lease: vip})
	c.run(4 * duration)
	if c.holder(vip) != "m1" {
		t.Fatal("m1 should hold the lease")
	}
	c.reconfigure(voters("m1 m2 m3 m4"), "m1", "m2", "m3", "m4")
	c.run(duration)
	c.campaign(vip)
	c.run(40 * duration)
	for _, name := range c.names {
		s := c.nodes[name].Status(c.now)
		if len(s.Active.Members) != 2 || (s.Problem == "") != s.Active.Has(c.holder(vip)) {
			t.Errorf("%s has %s and the problem %q, %q holds the lease", name, s.Active, s.Problem, c.holder(vip))
		}
	}
}

// TestFromNoneToMajority changes both sides of a partition without a quorum. The side that gains a quorum prevails.
func TestFromNoneToMajority(t *testing.T) {
	c := newCluster(t, "m1", "m2")
	c.electorate.Quorum = electorate.None
	c.disks = map[string]lease.State{}
	c.start("m1", c.electorate)
	c.start("m2", c.electorate)
	c.campaign(vip)
	c.run(4 * duration)
	c.isolate("m1", true)
	c.run(3 * duration)
	majority, short := voters("m1 m2"), voters("m1 m2")
	short.Duration, short.Quorum = duration/2, electorate.None
	c.reconfigure(majority, "m1")
	c.reconfigure(short, "m2") // the operator has not changed m2 yet
	c.run(5 * duration)
	clear(c.cut)
	c.reconfigure(majority, "m1", "m2")
	c.awaitActive(40*duration, majority, "m1", "m2")
	c.awaitHolder(3 * duration)
}

// TestWithdrawnChangeIsSettledAtOnce: only m1 has accepted the removal of m3, which was withdrawn. The change is settled
// while m2 is up. If m2 dies first, it stays unsettled: made with m2 dead, it would leave m1 without a majority.
func TestWithdrawnChangeIsSettledAtOnce(t *testing.T) {
	for _, dies := range []time.Duration{duration, 3 * duration} {
		c := newCluster(t, "m1", "m2", "m3")
		c.campaign(vip)
		c.awaitHolder(3 * duration)
		c.run(2 * duration)
		c.drop = func(_, _ string, m message.Message) bool {
			return m.Change != nil && m.Change.Phase == message.Proposed
		}
		c.reconfigure(voters("m1 m2"), "m1", "m2")
		c.await(6*duration, "m1 accepts it", func() bool { return c.disks["m1"].Value != nil })
		c.reconfigure(c.electorate, "m1", "m2")
		c.run(duration)
		c.drop = nil
		c.run(dies - duration)
		if settled := c.disks["m1"].Value == nil; settled != (dies > duration) {
			t.Errorf("after %v it is settled: %t", dies, settled)
		}
		c.kill("m2")
		c.awaitHolder(3 * duration)
		c.reconfigure(voters("m1 m3"), "m1", "m3")
		c.run(20 * duration)
		if c.holder(vip) == "" {
			t.Errorf("never a holder\n%s", c.describe())
		}
	}
}

// TestForgottenVoteIsReported checks that a member without a committed electorate, but with, by others' messages, an
// unconfigured vote, takes no part and reports the reason.
func TestForgottenVoteIsReported(t *testing.T) {
	c := newCluster(t, "m1", "m2", "m3")
	c.observers = 8
	for _, n := range c.names {
		c.start(n, c.electorate)
	}
	c.run(3 * duration)
	delete(c.disks, "m3")
	c.start("m3", voters("m1 m2"))
	c.run(3 * duration)
	if p := c.nodes["m3"].Status(c.now).Problem; !strings.Contains(p, "it is configured without one") {
		t.Errorf("problem %q", p)
	}
}
