package lease_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/herald-vip/herald/election/electorate"
	"github.com/herald-vip/herald/election/lease"
	"github.com/herald-vip/herald/election/lease/message"
)

func voters(names string) electorate.Electorate {
	return electorate.Electorate{Members: strings.Fields(names), Duration: duration}
}

// TestLongNamesAreReplaced replaces one member of a list that leaves no room for a sixth: each step and each disk fit.
func TestLongNamesAreReplaced(t *testing.T) {
	long := func(name string) string { return name + strings.Repeat("x", 152) + "@" }
	c := newCluster(t, long("m1"), long("m2"), long("m3"), long("m4"), long("m5"))
	c.campaign(vip)
	c.awaitHolder(5 * time.Second)
	next := electorate.Electorate{Members: append(slices.Clone(c.names[:4]), long("m6")), Duration: duration}
	c.reconfigure(next, c.names...)
	c.start(next.Members[4], next)
	c.awaitActive(10*time.Second, next, next.Members...)
	for n, disk := range c.disks {
		if err := disk.Validate(); err != nil {
			t.Errorf("%.2s would refuse its disk at the next start: %v", n, err)
		}
	}
}

// reconfigure changes the configuration of running members.
func (c *cluster) reconfigure(e electorate.Electorate, names ...string) {
	c.t.Helper()
	for _, name := range names {
		if err := c.nodes[name].Reconfigure(c.now, e); err != nil {
			c.fail("%s: %v", name, err)
		}
	}
}

// awaitActive runs until members use an electorate.
func (c *cluster) awaitActive(d time.Duration, e electorate.Electorate, names ...string) time.Duration {
	c.t.Helper()
	return c.await(d, "the electorate in force", func() bool {
		for _, name := range names {
			if a := c.nodes[name].Status(c.now).Active; a == nil || a.Digest() != e.Digest() {
				return false
			}
		}
		return true
	})
}

func TestGrowsAndShrinks(t *testing.T) {
	c := newCluster(t, "m1", "m2", "m3")
	c.campaign(vip)
	holder := c.awaitHolder(2 * duration)
	lost := func() bool {
		return slices.ContainsFunc(c.nodes[holder].events, func(e lease.Event) bool { _, ok := e.(lease.Lost); return ok })
	}

	four := voters("m1 m2 m3 m4")
	c.start("m4", four).Campaign(c.now, lease.Candidacy{Lease: vip})
	c.run(3 * duration)
	if p := c.nodes["m4"].Status(c.now).Problem; p == "" {
		t.Error("m4 was not configured elsewhere, and has no problem")
	}
	c.reconfigure(four, "m1", "m2")
	c.run(3 * duration)
	if p := c.nodes["m1"].Status(c.now).Desired; p == nil || p.Digest() != four.Digest() {
		t.Errorf("m1 has pending %v, want to wait for m3", p)
	}
	c.reconfigure(four, "m3")
	c.awaitActive(3*duration, four, "m1", "m2", "m3", "m4")

	three := voters("m1 m2 m3 m4")
	three.Members = slices.DeleteFunc(three.Members, func(n string) bool { return n == c.others(holder)[0] })
	rest := c.others(c.others(holder)[0])
	c.run(duration)
	c.reconfigure(three, rest...)
	c.awaitActive(6*duration, three, rest...)
	c.run(3 * duration)
	if c.holder(vip) != holder || lost() {
		t.Errorf("the lease went from %s to %q", holder, c.holder(vip))
	}
}

// TestGrowsFromOne checks that a sole member holds the lease while others join that have just started and still
// abstain.
func TestGrowsFromOne(t *testing.T) {
	c := newCluster(t, "m1")
	c.campaign(vip)
	c.awaitHolder(2 * duration)
	for _, names := range []string{"m1 m2", "m1 m2 m3"} {
		next := voters(names)
		c.start(next.Members[len(next.Members)-1], next)
		c.reconfigure(next, next.Members...)
		c.awaitActive(6*duration, next, next.Members...)
		c.run(2 * duration)
	}
	if slices.ContainsFunc(c.nodes["m1"].events, func(e lease.Event) bool { _, ok := e.(lease.Lost); return ok }) || c.holder(vip) != "m1" {
		t.Errorf("%q holds the lease: %+v", c.holder(vip), c.nodes["m1"].events)
	}
}

func TestDeadMemberIsReplaced(t *testing.T) {
	c := newCluster(t, "m1", "m2", "m3")
	c.campaign(vip)
	c.awaitHolder(2 * duration)
	c.kill("m3")
	two := voters("m1 m2")
	c.reconfigure(two, "m1", "m2")
	c.awaitActive(3*duration, two, "m1", "m2")
	three := voters("m1 m2 m4")
	c.reconfigure(three, "m1", "m2")
	c.start("m4", three).Campaign(c.now, lease.Candidacy{Lease: vip})
	c.awaitActive(6*duration, three, "m1", "m2", "m4")
	c.run(duration)
	c.kill("m2")
	c.awaitHolder(2 * duration)
}

func TestReconfigureRefuses(t *testing.T) {
	c := newCluster(t, "m1", "m2", "m3")
	c.run(2 * duration)
	m := c.nodes["m1"]
	for e, want := range map[string]string{"m2 m1": "not sorted", "m1 m1 m2": "twice", "": "no members"} {
		if err := m.Reconfigure(c.now, voters(e)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q", e, err, want)
		}
	}
	for _, e := range []string{"m1 m2 m3 m4", "m1 m2", "m1 m2 m3"} { // another desired electorate, and none
		if err := m.Reconfigure(c.now, voters(e)); err != nil {
			t.Errorf("%q: %v", e, err)
		}
	}
	if m.Status(c.now).Desired != nil {
		t.Error("a withdrawn change is pending")
	}
}

// TestAllAreReplaced replaces all members at once while the lease is held. The holder continues without a vote.
func TestAllAreReplaced(t *testing.T) {
	c := newCluster(t, "m1", "m2", "m3")
	c.observers = 8
	for _, name := range c.names {
		c.start(name, c.electorate)
	}
	c.campaign(vip)
	holder := c.awaitHolder(3 * duration)
	next := voters("m4 m5 m6 m7")
	for _, name := range next.Members {
		c.start(name, next)
	}
	for _, name := range c.names {
		c.nodes[name].AddObservers(c.now, c.names...)
	}
	c.reconfigure(next, "m1", "m2", "m3")
	c.awaitActive(20*duration, next, c.names...)
	if s := c.nodes[holder].Status(c.now); s.Number != 8 || c.holder(vip) != holder || len(c.nodes[holder].events) == 0 {
		t.Errorf("after 7 changes electorate %d, and %q holds the lease, not %s", s.Number, c.holder(vip), holder)
	}
}

func TestDurationChanges(t *testing.T) {
	c := newCluster(t, "m1", "m2", "m3")
	c.campaign(vip)
	holder := c.awaitHolder(2 * duration)
	for _, d := range []time.Duration{200 * time.Millisecond, 2 * time.Second} {
		e := voters("m1 m2 m3")
		e.Duration = d
		c.reconfigure(e, "m1", "m2", "m3")
		c.awaitActive(10*time.Second, e, "m1", "m2", "m3")
		c.run(5 * d)
		if c.holder(vip) != holder {
			t.Fatalf("%v: holder %q, want %s", d, c.holder(vip), holder)
		}
	}
}

// TestStartsWithinAnotherElectorate checks that a starting member adopts the others' electorate despite its own configuration, and
// has a vote if it is in it.
func TestStartsWithinAnotherElectorate(t *testing.T) {
	c := newCluster(t, "m1", "m2", "m3")
	c.campaign(vip)
	c.awaitHolder(2 * duration)
	for _, names := range []string{"m1 m2 m3 m4", "m1 m2 m4 m5"} {
		delete(c.disks, "m2")
		c.start("m2", voters(names)).Campaign(c.now, lease.Candidacy{Lease: vip})
		c.awaitActive(duration, c.electorate, "m2")
		c.run(2 * duration)
		if p := c.nodes["m1"].Status(c.now).Members[1].Problem; p != "" {
			t.Errorf("m2, configured with %s, does not count: %s", names, p)
		}
	}
}

// TestIndependentClusters checks that two independently begun clusters refuse and report each other.
func TestIndependentClusters(t *testing.T) {
	c := newCluster(t, "m1", "m2", "m3")
	c.start("m4", voters("m4"))
	c.run(3 * duration)
	c.reconfigure(voters("m3 m4"), "m4")
	c.reconfigure(voters("m1 m2 m3 m4"), "m1", "m2", "m3")
	c.run(5 * duration)
	for _, name := range []string{"m3", "m4"} {
		s := c.nodes[name].Status(c.now)
		other := map[string]string{"m3": "m4", "m4": "m3"}[name]
		i := slices.IndexFunc(s.Members, func(m lease.Member) bool { return m.Name == other })
		if s.Number != 1 || i < 0 || !strings.Contains(s.Members[i].Problem, "begun independently, with [m") {
			t.Errorf("%s has electorate %d and reports %+v", name, s.Number, s.Members)
		}
	}
}

// TestReturnsAfterMissedChanges checks that a removed member that runs on, or restarts with its old list, reverts
// nothing: its electorate has a lesser number. The same m2 is added again two changes later, and m1 restarts while it
// can receive m2 only.
func TestReturnsAfterMissedChanges(t *testing.T) {
	c := newCluster(t, "m1", "m2", "m3")
	c.run(2 * duration)
	c.isolate("m2", true)
	c.reconfigure(voters("m1 m3"), "m1", "m3")
	c.awaitActive(6*duration, voters("m1 m3"), "m1", "m3")
	c.start("m5", voters("m1 m3 m5"))
	c.reconfigure(voters("m1 m3 m5"), "m1", "m3")
	c.awaitActive(6*duration, voters("m1 m3 m5"), "m1", "m3", "m5")
	all := voters("m1 m2 m3 m5")
	c.reconfigure(all, "m1", "m3", "m5")
	c.campaign(vip)
	c.awaitHolder(2 * duration)
	c.isolate("m1", true)
	c.oneWay(false, "m1", "m2")
	c.oneWay(false, "m2", "m1")
	c.start("m1", all).Campaign(c.now, lease.Candidacy{Lease: vip})
	c.run(5 * duration)
	if s := c.nodes["m1"].Status(c.now); s.Number != 3 || c.holder(vip) == "m1" || c.holder(vip) == "m2" {
		t.Errorf("m1 has electorate %d, %q holds the lease", s.Number, c.holder(vip))
	}
	c.reconfigure(all, "m2")
	clear(c.cut)
	c.awaitActive(6*duration, all, all.Members...)
}

// TestElectorateSurvivesRestarts checks that a change adopted by one member, and a promise, survive restarts of all others.
func TestElectorateSurvivesRestarts(t *testing.T) {
	c := newCluster(t, "m1", "m2", "m3")
	c.run(2 * duration)
	four := voters("m1 m2 m3 m4")
	c.start("m4", four)
	c.reconfigure(four, "m1", "m2", "m3")
	c.awaitActive(6*duration, four, "m1")
	for _, name := range four.Members {
		c.start(name, c.electorate)
	}
	c.awaitActive(6*duration, four, four.Members...)
	c.campaign(vip)
	c.awaitHolder(3 * duration)
}

// TestOneHolderAcrossChanges plays a careless operator: at any time, any node gets any list one step from its committed
// electorate, or restarts. Removed members run on.
func TestOneHolderAcrossChanges(t *testing.T) {
	all := []string{"m1", "m2", "m3", "m4", "m5"}
	changes := 0
	rapid.Check(t, func(rt *rapid.T) {
		c := newCluster(t, all[:rapid.IntRange(1, 5).Draw(rt, "members")]...)
		c.fail = rt.Fatalf
		c.observers = 8
		c.campaign(vip)
		c.awaitHolder(3 * duration)
		files := map[string]electorate.Electorate{} // the others have the first
		file := func(name string) electorate.Electorate {
			if e, ok := files[name]; ok {
				return e
			}
			return c.electorate
		}
		name := func() string { return rapid.SampledFrom(c.names).Draw(rt, "member") }
		wait := func() {
			c.run(time.Duration(rapid.SampledFrom([]int{1, 5, 50, 150, 250, 600, 900}).Draw(rt, "ms")) * time.Millisecond)
		}
		toggle := func(e electorate.Electorate, x string) electorate.Electorate {
			e.Members = slices.Clone(e.Members)
			if i, found := slices.BinarySearch(e.Members, x); !found {
				e.Members = slices.Insert(e.Members, i, x)
			} else if len(e.Members) > 1 {
				e.Members = slices.Delete(e.Members, i, i+1)
			}
			return e
		}
		// apart reports whether members without a committed electorate could begin a cluster with a list.
		apart := func(e electorate.Electorate) bool {
			fresh := 0
			for _, x := range e.Members {
				if _, known := c.disks[x]; !known {
					fresh++
				}
			}
			return fresh >= e.Majority()
		}
		give := func(name string, e electorate.Electorate) {
			if n := c.nodes[name]; n != nil && !n.paused && !apart(e) && n.Reconfigure(c.now, e) == nil {
				files[name] = e
			}
		}
		next := c.electorate
		actions := c.faults(name, wait)
		maps.Copy(actions, map[string]func(*rapid.T){
			"wait": func(rt *rapid.T) { wait() },
			"decide": func(rt *rapid.T) { // a step from some node's committed electorate
				if a := c.nodes[name()].Status(c.now).Active; a != nil {
					next = toggle(*a, rapid.SampledFrom(all).Draw(rt, "changed"))
					next.Duration = rapid.SampledFrom([]time.Duration{duration, duration / 3, 2 * duration}).Draw(rt, "lease")
				}
			},
			"give": func(rt *rapid.T) {
				give(name(), next)
				wait()
			},
			"give all": func(rt *rapid.T) {
				for _, x := range next.Members {
					if _, known := c.disks[x]; !known && c.nodes[x] == nil && !apart(next) {
						c.start(x, next).Campaign(c.now, lease.Candidacy{Lease: vip})
						files[x] = next
					}
				}
				for _, name := range c.names {
					give(name, next)
				}
				wait()
			},
			"take back": func(rt *rapid.T) {
				name := name()
				if a := c.nodes[name].Status(c.now).Active; a != nil {
					give(name, *a)
				}
				wait()
			},
			"restart": func(rt *rapid.T) {
				name := name()
				c.start(name, file(name)).Campaign(c.now, lease.Candidacy{Lease: vip})
				wait()
			},
		})
		rt.Repeat(actions)
		for _, d := range c.disks {
			changes = max(changes, int(d.Committed.Number)-1)
		}
	})
	if changes < 2 {
		t.Errorf("at most %d changes were made: the test shows little", changes)
	}
}

// oneWay cuts the messages from one member to others.
func (c *cluster) oneWay(cut bool, src string, dst ...string) {
	for _, name := range dst {
		c.cut[[2]string{src, name}] = cut
	}
}

// TestNextChangeWaitsForVotes checks that the next change waits until all votes under the previous electorate have
// ended. m4 holds the lease by votes of m4, m5 and m1 and knows nothing of the removal of m5, when the next change is
// to remove m4 itself.
func TestNextChangeWaitsForVotes(t *testing.T) {
	c := newCluster(t, "m1", "m2", "m3", "m4", "m5")
	c.run(2 * duration)
	for _, name := range []string{"m2", "m3"} {
		c.oneWay(true, name, "m4")
		c.oneWay(true, "m4", name)
	}
	c.nodes["m4"].Campaign(c.now, lease.Candidacy{Lease: vip})
	c.awaitHolder(duration)
	c.run(2 * duration)
	until := c.nodes["m4"].until[vip]
	c.await(duration, "a renewal", func() bool { return c.nodes["m4"].until[vip].After(until) })
	c.run(3 * step)

	c.oneWay(true, "m1", "m4")
	c.oneWay(false, "m4", "m2", "m3")
	four := voters("m1 m2 m3 m4")
	c.reconfigure(four, "m1", "m2", "m3", "m4")
	c.awaitActive(30*step, four, "m1", "m2", "m3")
	c.oneWay(true, "m4", "m1", "m2", "m3")
	c.reconfigure(voters("m1 m2 m3"), "m1", "m2", "m3")
	c.nodes["m3"].Campaign(c.now, lease.Candidacy{Lease: vip})
	if c.holder(vip) != "m4" {
		t.Fatal("m4 should still hold the lease")
	}
	c.awaitActive(2*duration, voters("m1 m2 m3"), "m1", "m2", "m3")
	if got := c.awaitHolder(2 * duration); got != "m3" {
		t.Errorf("%s holds the lease, want m3", got)
	}
}

// TestChangeNeedsThePresentMajority checks that a change needs a majority of the present electorate. m1 must not leave
// m2 behind, which does not know that it is in [m1 m2] and holds the lease with m3.
func TestChangeNeedsThePresentMajority(t *testing.T) {
	c := newCluster(t, "m1", "m2", "m3")
	c.run(2 * duration)
	c.oneWay(true, "m1", "m2", "m3")
	c.oneWay(true, "m3", "m1")
	c.nodes["m2"].Campaign(c.now, lease.Candidacy{Lease: vip})
	c.awaitHolder(duration)
	two := voters("m1 m2")
	c.reconfigure(two, "m1", "m2")
	c.run(2 * duration)
	c.reconfigure(voters("m1"), "m1")
	c.nodes["m1"].Campaign(c.now, lease.Candidacy{Lease: vip})
	c.run(5 * duration)
	if got := c.holder(vip); got != "m2" || c.nodes["m1"].Status(c.now).Number != 1 {
		t.Errorf("%q holds the lease, want m2, and m1 has electorate %d", got, c.nodes["m1"].Status(c.now).Number)
	}
}

// TestComesBack checks that a member may leave and return without any restart.
func TestComesBack(t *testing.T) {
	c := newCluster(t, "m1", "m2", "m3")
	c.campaign(vip)
	c.run(20 * duration)
	for _, e := range []electorate.Electorate{voters("m1 m2"), voters("m1 m2 m3")} {
		c.reconfigure(e, "m1", "m2", "m3")
		c.awaitActive(5*duration, e, "m1", "m2", "m3")
		c.run(5 * duration)
	}
	holder := c.holder(vip)
	c.await(duration, "votes of all three", func() bool { return len(c.nodes[holder].Status(c.now).Leases[0].Votes) == 3 })
}

// TestShorterLeasesAndRestart: m2 votes for a lease of two seconds, learns of shorter leases, and restarts. It
// remembers how long its vote may count.
func TestShorterLeasesAndRestart(t *testing.T) {
	c := newCluster(t, "m1", "m2", "m3")
	c.electorate.Duration = 2 * time.Second
	for _, name := range c.names {
		c.start(name, c.electorate)
	}
	c.run(3 * time.Second)
	c.drop = func(src, dst string, m message.Message) bool { // m3 knows nothing of the lease
		return src == "m1" && dst == "m3" && slices.ContainsFunc(m.Items, func(it message.Item) bool { return it.Kind != message.Campaign })
	}
	c.nodes["m1"].Campaign(c.now, lease.Candidacy{Lease: vip})
	c.awaitHolder(2 * time.Second)
	c.run(time.Second)
	short := voters("m1 m2 m3")
	short.Duration = 200 * time.Millisecond
	c.reconfigure(short, "m1", "m2", "m3")
	c.awaitActive(6*time.Second, short, "m2", "m3")
	c.isolate("m1", true)
	c.start("m2", short)
	c.nodes["m3"].Campaign(c.now, lease.Candidacy{Lease: vip})
	c.await(3*time.Second, "m3", func() bool { return c.holder(vip) == "m3" })
}

// TestWithdrawnChangeThenAnother: only m1 accepts the addition of m5, which is then withdrawn in favour of the removal of m4.
// Whether or not the first change is discovered and made, the second is made in the end.
func TestWithdrawnChangeThenAnother(t *testing.T) {
	for _, hidden := range []bool{true, false} {
		c := newCluster(t, "m1", "m2", "m3", "m4")
		c.campaign(vip)
		c.awaitHolder(3 * duration)
		five, three := voters("m1 m2 m3 m4 m5"), voters("m1 m2 m3")
		c.drop = func(_, _ string, m message.Message) bool {
			return m.Change != nil && m.Change.Phase == message.Proposed
		}
		c.start("m5", five)
		c.reconfigure(five, "m1", "m2", "m3", "m4")
		c.await(6*duration, "m1 accepts it", func() bool { return c.disks["m1"].Value != nil })
		c.drop = func(src, _ string, m message.Message) bool { return hidden && src == "m1" && m.Change != nil }
		c.reconfigure(c.electorate, "m1", "m2", "m3", "m4")
		c.reconfigure(three, "m1", "m2", "m3", "m4")
		c.awaitActive(12*duration, three, three.Members...)
		want := uint64(2)
		if !hidden {
			want = 4 // m5 is added first
		}
		if got := c.nodes["m2"].Status(c.now).Number; got != want {
			t.Errorf("hidden %t: electorate %d, want %d", hidden, got, want)
		}
	}
}

// TestRemovalWithShorterLeases removes the holder m1 and shortens the Duration in one step, and m1 does not learn of
// it. m2, with the vote that made m1 the holder, restarts afterwards and remembers how long its vote may count.
func TestRemovalWithShorterLeases(t *testing.T) {
	c := newCluster(t, "m1", "m2", "m3")
	c.run(2 * duration)
	c.nodes["m1"].Campaign(c.now, lease.Candidacy{Lease: vip})
	c.awaitHolder(duration)
	c.campaign(vip)
	c.oneWay(true, "m1", "m3")
	c.oneWay(true, "m3", "m1")
	c.run(duration)

	next := voters("m2 m3")
	next.Duration = duration / 4
	c.reconfigure(next, "m2", "m3")
	c.awaitActive(3*duration, next, "m3")
	c.isolate("m1", true)
	c.start("m2", next).Campaign(c.now, lease.Candidacy{Lease: vip})
	c.await(2*duration, "a holder among the remaining members", func() bool { h := c.holder(vip); return h != "" && h != "m1" })
}

// A ballot ends with the electorate under which it began: its votes last for that electorate's Duration only.
func TestBallotEndsWithItsElectorate(t *testing.T) {
	for after := range 100 {
		c := newCluster(t, "m1", "m2", "m3")
		c.run(3 * duration)
		c.lag = func(_, dst string) []int {
			if dst == "m1" {
				return []int{10}
			}
			return []int{1}
		}
		longer := c.electorate
		longer.Duration = 5 * duration
		campaign := func() { c.nodes["m1"].Campaign(c.now, lease.Candidacy{Lease: vip}) }
		if after < 50 {
			campaign()
			c.run(time.Duration(after) * step)
		}
		c.reconfigure(longer, c.names...)
		if after >= 50 {
			c.run(time.Duration(after-50) * step)
			campaign()
		}
		c.await(2*duration, "a holder", func() bool { return c.holder(vip) == "m1" })
		c.isolate("m1", true)
		c.campaign(vip)
		c.run(6 * duration)
	}
}
