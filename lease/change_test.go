package lease_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/herald-vip/herald/lease"
	"pgregory.net/rapid"
)

func electorate(names string) lease.Electorate {
	return lease.Electorate{Members: strings.Fields(names), Duration: duration}
}

// reconfigure changes the configuration of members that run.
func (c *cluster) reconfigure(e lease.Electorate, names ...string) {
	c.t.Helper()
	for _, name := range names {
		if err := c.nodes[name].Reconfigure(c.now, e); err != nil {
			c.fail("%s: %v", name, err)
		}
	}
}

// awaitActive runs until members use an electorate.
func (c *cluster) awaitActive(d time.Duration, e lease.Electorate, names ...string) time.Duration {
	c.t.Helper()
	return c.await(d, "the electorate in use", func() bool {
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
	c.stand(vip)
	holder := c.awaitHolder(2 * duration)
	lost := func() bool {
		return slices.ContainsFunc(c.nodes[holder].events, func(e lease.Event) bool { _, is := e.(lease.Lost); return is })
	}

	four := electorate("m1 m2 m3 m4")
	c.start("m4", four).Stand(c.now, lease.Candidacy{Lease: vip})
	c.run(3 * duration)
	if p := c.nodes["m4"].Status(c.now).Problem; p == "" {
		t.Error("m4 was not configured elsewhere, and has no problem")
	}
	c.reconfigure(four, "m1", "m2")
	c.run(3 * duration)
	if p := c.nodes["m1"].Status(c.now).Pending; p == nil || p.Digest() != four.Digest() {
		t.Errorf("m1 has pending %v, want to wait for m3", p)
	}
	c.reconfigure(four, "m3")
	c.awaitActive(3*duration, four, "m1", "m2", "m3", "m4")

	three := electorate("m1 m2 m3 m4")
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

func TestDeadMemberIsReplaced(t *testing.T) {
	c := newCluster(t, "m1", "m2", "m3")
	c.stand(vip)
	c.awaitHolder(2 * duration)
	c.kill("m3")
	two := electorate("m1 m2")
	c.reconfigure(two, "m1", "m2")
	c.awaitActive(3*duration, two, "m1", "m2")
	three := electorate("m1 m2 m4")
	c.reconfigure(three, "m1", "m2")
	c.start("m4", three).Stand(c.now, lease.Candidacy{Lease: vip})
	c.awaitActive(6*duration, three, "m1", "m2", "m4")
	c.run(duration)
	c.kill("m2")
	c.awaitHolder(2 * duration)
}

func TestReconfigureRefuses(t *testing.T) {
	c := newCluster(t, "m1", "m2", "m3")
	c.run(duration)
	m := c.nodes["m1"]
	for e, want := range map[string]string{
		"m1 m2 m3 m4 m5": "one member at a time",
		"m1 m2 m4":       "one member at a time",
		"m1":             "one member at a time",
		"m2 m1":          "not sorted",
		"m1 m1 m2":       "twice",
		"":               "no members",
	} {
		if err := m.Reconfigure(c.now, electorate(e)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q", e, err, want)
		}
	}
	if err := m.Reconfigure(c.now, electorate("m1 m2 m3 m4")); err != nil {
		t.Fatal(err)
	}
	err := m.Reconfigure(c.now, electorate("m1 m2"))
	if err == nil || !strings.Contains(err.Error(), "not complete") {
		t.Errorf("another change: error %v", err)
	}
	if err := m.Reconfigure(c.now, electorate("m1 m2 m3")); err != nil {
		t.Errorf("take back: %v", err)
	}
	if m.Status(c.now).Pending != nil {
		t.Error("a change that was taken back is pending")
	}
}

func TestDurationChanges(t *testing.T) {
	c := newCluster(t, "m1", "m2", "m3")
	c.stand(vip)
	holder := c.awaitHolder(2 * duration)
	for _, d := range []time.Duration{200 * time.Millisecond, 2 * time.Second} {
		e := electorate("m1 m2 m3")
		e.Duration = d
		c.reconfigure(e, "m1", "m2", "m3")
		c.awaitActive(10*time.Second, e, "m1", "m2", "m3")
		c.run(5 * d)
		if c.holder(vip) != holder {
			t.Fatalf("%v: holder %q, want %s", d, c.holder(vip), holder)
		}
	}
}

// A member that starts takes the electorate that the others use, if it is a step
// from its own, and none if it is farther.
func TestStartsAmidAnother(t *testing.T) {
	c := newCluster(t, "m1", "m2", "m3")
	c.stand(vip)
	c.awaitHolder(2 * duration)

	c.start("m2", electorate("m1 m2 m3 m4")).Stand(c.now, lease.Candidacy{Lease: vip})
	c.awaitActive(duration, c.electorate, "m2")
	c.run(2 * duration)
	s := c.nodes["m1"].Status(c.now)
	if p := s.Members[1].Problem; p != "" {
		t.Errorf("m2 is a step ahead and does not count: %s", p)
	}

	c.start("m2", electorate("m1 m2 m4 m5")).Stand(c.now, lease.Candidacy{Lease: vip})
	c.run(3 * duration)
	s = c.nodes["m2"].Status(c.now)
	if s.Active != nil || !strings.Contains(s.Problem, "m1 is of the electorate [m1 m2 m3;") {
		t.Errorf("m2 uses %v, problem %q: want none and m1 named", s.Active, s.Problem)
	}
	s = c.nodes["m1"].Status(c.now)
	if p := s.Members[1].Problem; !strings.Contains(p, "[m1 m2 m4 m5;") {
		t.Errorf("m1 says of m2: %q", p)
	}
	c.kill(c.others("m2", c.holder(vip))[0])
	c.run(3 * duration)
	if h := c.holder(vip); h != "" {
		t.Errorf("%s holds the lease with the vote of m2", h)
	}
}

// TestOneHolderAcrossChanges rolls out a series of electorates, each a step from
// the one before, among faults.
func TestOneHolderAcrossChanges(t *testing.T) {
	all := []string{"m1", "m2", "m3", "m4", "m5"}
	rapid.Check(t, func(rt *rapid.T) {
		first := all[:rapid.IntRange(1, 5).Draw(rt, "members")]
		c := newCluster(t, first...)
		c.fail = rt.Fatalf
		c.stand(vip)
		c.awaitHolder(3 * duration)
		steps := []lease.Electorate{c.electorate}
		at := map[string]int{} // step of each node's configuration
		name := func() string { return rapid.SampledFrom(c.names).Draw(rt, "member") }
		wait := func() {
			c.run(time.Duration(rapid.SampledFrom([]int{1, 5, 50, 150, 250, 600, 900}).Draw(rt, "ms")) * time.Millisecond)
		}
		// reload takes the next step on one member, once all have the present one
		// on their disks: whoever rolls out two different changes at once and
		// restarts members then has no quorum to rely on.
		reload := func(name string) {
			n, next := c.nodes[name], at[name]+1
			if n.paused || next >= len(steps) {
				return
			}
			for _, other := range steps[next-1].Members {
				if c.nodes[other] != nil && at[other] < next-1 {
					return
				}
			}
			if n.Reconfigure(c.now, steps[next]) == nil {
				at[name] = next
			}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"wait": func(rt *rapid.T) { wait() },
			"change": func(rt *rapid.T) {
				last := steps[len(steps)-1]
				next := lease.Electorate{Members: slices.Clone(last.Members), Duration: duration}
				x := rapid.SampledFrom(all).Draw(rt, "changed")
				if i, found := slices.BinarySearch(next.Members, x); !found {
					next.Members = slices.Insert(next.Members, i, x)
				} else if len(next.Members) > 1 {
					next.Members = slices.Delete(next.Members, i, i+1)
				}
				steps = append(steps, next)
			},
			"reload": func(rt *rapid.T) {
				reload(name())
				wait()
			},
			"reload all": func(rt *rapid.T) {
				for _, name := range c.names {
					reload(name)
				}
				wait()
			},
			"take back": func(rt *rapid.T) {
				name := name()
				n := c.nodes[name]
				if a := n.Status(c.now).Active; !n.paused && at[name] > 0 && a != nil && a.Digest() == steps[at[name]-1].Digest() {
					if err := n.Reconfigure(c.now, *a); err != nil {
						rt.Fatal(err)
					}
					at[name]--
				}
				wait()
			},
			"new": func(rt *rapid.T) {
				name, last := rapid.SampledFrom(all).Draw(rt, "new"), len(steps)-1
				if c.nodes[name] == nil && slices.Contains(steps[last].Members, name) && last > 0 && !slices.Contains(steps[last-1].Members, name) {
					c.start(name, steps[last]).Stand(c.now, lease.Candidacy{Lease: vip})
					at[name] = last
				}
			},
			"restart": func(rt *rapid.T) {
				name := name()
				if e := steps[at[name]]; slices.Contains(e.Members, name) {
					c.start(name, e).Stand(c.now, lease.Candidacy{Lease: vip})
				}
				wait()
			},
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
		})
	})
}

// oneWay cuts what a member sends to others.
func (c *cluster) oneWay(cut bool, from string, to ...string) {
	for _, name := range to {
		c.cut[[2]string{from, name}] = cut
	}
}

// The next change waits until no vote of the electorate before the present one
// is left: m4 holds the lease by votes of m4, m5 and m1, and knows nothing of the
// change that removes m5, when another is to remove m4 itself.
func TestNextChangeWaitsForVotes(t *testing.T) {
	c := newCluster(t, "m1", "m2", "m3", "m4", "m5")
	c.run(2 * duration)
	for _, name := range []string{"m2", "m3"} {
		c.oneWay(true, name, "m4")
		c.oneWay(true, "m4", name)
	}
	c.nodes["m4"].Stand(c.now, lease.Candidacy{Lease: vip})
	c.awaitHolder(duration)
	c.run(2 * duration)
	until := c.nodes["m4"].until[vip]
	c.await(duration, "a renewal", func() bool { return c.nodes["m4"].until[vip].After(until) })
	c.run(3 * step)

	c.oneWay(true, "m1", "m4")
	c.oneWay(false, "m4", "m2", "m3")
	four := electorate("m1 m2 m3 m4")
	c.reconfigure(four, "m1", "m2", "m3", "m4")
	c.awaitActive(30*step, four, "m1", "m2", "m3")
	c.oneWay(true, "m4", "m1", "m2", "m3")
	c.reconfigure(electorate("m1 m2 m3"), "m1", "m2", "m3")
	c.nodes["m3"].Stand(c.now, lease.Candidacy{Lease: vip})
	if c.holder(vip) != "m4" {
		t.Fatal("m4 should hold the lease still")
	}
	c.awaitActive(2*duration, electorate("m1 m2 m3"), "m1", "m2", "m3")
	if got := c.awaitHolder(2 * duration); got != "m3" {
		t.Errorf("%s holds the lease, want m3", got)
	}
}

// A change needs a majority of the present electorate: m1 cannot leave m2 behind,
// which does not know that it is in [m1 m2] and holds the lease with m3.
func TestChangeNeedsThePresentMajority(t *testing.T) {
	c := newCluster(t, "m1", "m2", "m3")
	c.run(2 * duration)
	c.oneWay(true, "m1", "m2", "m3")
	c.oneWay(true, "m3", "m1")
	c.nodes["m2"].Stand(c.now, lease.Candidacy{Lease: vip})
	c.awaitHolder(duration)
	two := electorate("m1 m2")
	c.reconfigure(two, "m1", "m2")
	c.awaitActive(2*duration, two, "m1")
	c.run(2 * duration)
	c.reconfigure(electorate("m1"), "m1")
	c.nodes["m1"].Stand(c.now, lease.Candidacy{Lease: vip})
	c.run(5 * duration)
	if got := c.holder(vip); got != "m2" {
		t.Errorf("%q holds the lease, want m2", got)
	}
}

// A member that leaves and comes back, without a restart of anybody, is heard.
func TestComesBack(t *testing.T) {
	c := newCluster(t, "m1", "m2", "m3")
	c.stand(vip)
	c.run(20 * duration)
	for _, e := range []lease.Electorate{electorate("m1 m2"), electorate("m1 m2 m3")} {
		c.reconfigure(e, "m1", "m2", "m3")
		c.awaitActive(5*duration, e, "m1", "m2", "m3")
		c.run(5 * duration)
	}
	holder := c.holder(vip)
	c.await(duration, "votes of all three", func() bool { return len(c.nodes[holder].Status(c.now).Leases[0].Votes) == 3 })
}

// m2 votes for a lease of two seconds, is told that leases are shorter, and is
// started anew: it abstains for the shorter time, and yet the lease has ended.
func TestShorterLeasesAndRestart(t *testing.T) {
	c := newCluster(t, "m1", "m2", "m3")
	c.electorate.Duration = 2 * time.Second
	for _, name := range c.names {
		c.start(name, c.electorate)
	}
	c.run(3 * time.Second)
	c.drop = func(from, to string, m lease.Message) bool { // m3 knows nothing of the lease
		return from == "m1" && to == "m3" && slices.ContainsFunc(m.Items, func(it lease.Item) bool { return it.Kind != lease.Stand })
	}
	c.nodes["m1"].Stand(c.now, lease.Candidacy{Lease: vip})
	c.awaitHolder(2 * time.Second)
	c.run(time.Second)
	short := electorate("m1 m2 m3")
	short.Duration = 200 * time.Millisecond
	c.reconfigure(short, "m1", "m2", "m3")
	c.awaitActive(6*time.Second, short, "m2", "m3")
	c.isolate("m1", true)
	c.start("m2", short)
	c.nodes["m3"].Stand(c.now, lease.Candidacy{Lease: vip})
	c.await(time.Second, "m3", func() bool { return c.holder(vip) == "m3" })
}
