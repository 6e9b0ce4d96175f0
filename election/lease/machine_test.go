package lease_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/herald-vip/herald/election/electorate"
	"github.com/herald-vip/herald/election/lease"

	"maps"

	"pgregory.net/rapid"
)

func TestElects(t *testing.T) {
	for _, names := range [][]string{{"m1"}, {"m1", "m2"}, {"m1", "m2", "m3"}, {"m1", "m2", "m3", "m4", "m5"}} {
		c := newCluster(t, names...)
		c.campaign(vip)
		took := c.await(2*duration, "a holder", func() bool { return c.holder(vip) != "" })
		if took < duration {
			t.Errorf("%v: granted after %v: the members had to abstain", names, took)
		}
		if most := duration + duration/20; took > most {
			t.Errorf("%v: granted after %v, want %v", names, took, most)
		}
		holder := c.holder(vip)
		c.run(20 * duration)
		if got := c.holder(vip); got != holder {
			t.Errorf("%v: the lease moved from %s to %q\n%s", names, holder, got, c.describe())
		}
		s := c.nodes[holder].Status(c.now).Leases[0]
		if !slices.Equal(sorted(s.Votes), names) || s.Holder != holder {
			t.Errorf("%v: status %+v, want all votes", names, s)
		}
	}
}

func sorted(names []string) []string {
	names = slices.Clone(names)
	slices.Sort(names)
	return names
}

func TestFailover(t *testing.T) {
	c := newCluster(t, "m1", "m2", "m3")
	c.campaign(vip)
	first := c.awaitHolder(2 * duration)
	c.run(5 * duration)
	c.kill(first)
	took := c.await(2*duration, "another holder", func() bool { return c.holder(vip) != "" })
	if took > duration+20*time.Millisecond {
		t.Errorf("took over after %v", took)
	}
	second := c.holder(vip)
	c.start(first, c.electorate).Campaign(c.now, lease.Candidacy{Lease: vip})
	c.run(5 * duration)
	if c.holder(vip) != second {
		t.Errorf("%s holds the lease, want %s to keep it", c.holder(vip), second)
	}
}

func TestMinorityGivesUpInTime(t *testing.T) {
	c := newCluster(t, "m1", "m2", "m3")
	c.campaign(vip)
	first := c.awaitHolder(2 * duration)
	c.run(2 * duration)
	c.isolate(first, true)
	c.await(duration, "given up", func() bool { return c.holder(vip) == "" })
	lost, _ := c.nodes[first].events[len(c.nodes[first].events)-1].(lease.Lost)
	why := "too few members answered for 390ms: of m1, m2, m3 only " + first
	if lost.Lease != vip || lost.Reason != why || c.nodes[first].Lease(c.now, vip).Lost != why {
		t.Errorf("last event %+v, want it lost: %s", lost, why)
	}
	second := c.awaitHolder(duration)
	c.isolate(first, false)
	c.run(3 * duration)
	if got := c.holder(vip); got != second {
		t.Errorf("after healing %q holds the lease, want %s", got, second)
	}
}

func TestPausedHolderLoses(t *testing.T) {
	c := newCluster(t, "m1", "m2", "m3")
	c.campaign(vip)
	first := c.awaitHolder(2 * duration)
	c.run(2 * duration)
	c.nodes[first].paused = true
	c.run(3 * duration)
	second := c.holder(vip)
	if second == "" || second == first {
		t.Fatalf("holder %q", second)
	}
	c.nodes[first].paused = false
	before := len(c.nodes[first].events)
	c.step()
	if lost, ok := c.nodes[first].events[before].(lease.Lost); !ok || !strings.Contains(lost.Reason, "did not run in time") {
		t.Errorf("first event after the pause %+v, want Lost for the pause", c.nodes[first].events[before])
	}
	c.run(3 * duration)
	if c.holder(vip) != second {
		t.Errorf("holder %q, want %s", c.holder(vip), second)
	}
}

// TestFailoverIsQuickAlthoughGrantsEndApart: acceptors see a grant end at different times, by the delay of its
// proposal. The first candidate must not wait long for the others.
func TestFailoverIsQuickAlthoughGrantsEndApart(t *testing.T) {
	for _, slow := range []int{1, 2, 5} {
		c := newCluster(t, "m1", "m2", "m3")
		c.lag = func(_, dst string) []int {
			if dst == "m3" {
				return []int{1 + slow}
			}
			return []int{1}
		}
		c.run(2 * duration)
		c.priorities(false, 3, 2, 1)
		c.awaitHolder(duration)
		c.run(5 * duration)
		until := c.nodes["m1"].until[vip]
		c.kill("m1")
		c.lag = nil
		c.await(2*duration, "m2", func() bool { return c.holder(vip) == "m2" })
		if took := c.now.Sub(until); took > duration/4+time.Duration(slow+10)*step {
			t.Errorf("lag of 1 to %d ms: took over %v after the lease ended", 1+slow, took)
		}
	}
}

// TestWhy checks the reasons for a lease without a holder.
func TestWhy(t *testing.T) {
	c := newCluster(t, "m1", "m2", "m3")
	why := func(name string) string { return c.nodes[name].Status(c.now).Leases[0].Why }
	for _, x := range []struct {
		want string
		do   func()
	}{
		{"waiting for an electorate", func() {
			c.isolate("m1", true)
			c.nodes["m1"].StepDown(c.now, vip) // makes the lease known
			c.run(duration / 2)
		}},
		{"waiting for a majority of the members: 1 of 3 have the same configuration", func() { c.run(duration) }},
		{"no member campaigns", func() {
			c.isolate("m1", false)
			c.run(2 * duration)
		}},
		{"", func() {
			c.campaign(vip)
			c.run(2 * duration)
		}},
		{"no quorum: 1 of 3 members reachable, 2 needed", func() {
			c.isolate("m1", true)
			c.run(2 * duration)
		}},
	} {
		x.do()
		if got := why("m1"); !strings.Contains(got, x.want) || (got == "") != (x.want == "") {
			t.Errorf("why: %q, want %q", got, x.want)
		}
	}
}

// TestMargins checks that a lease is held for less time than any acceptor reserves it, and given up before its end.
func TestMargins(t *testing.T) {
	c := newCluster(t, "m1", "m2", "m3")
	c.campaign(vip)
	holder := c.awaitHolder(2 * duration)
	c.run(2 * duration)
	n := c.nodes[holder]
	c.isolate(holder, true)
	until := n.until[vip]
	c.await(duration, "given up", func() bool { return c.holder(vip) == "" })
	if early := until.Sub(c.now); early < duration/10-step || early > duration/10 {
		t.Errorf("given up %v before its end, want %v", early, duration/10)
	}
	for _, name := range c.others(holder) {
		ends := c.nodes[name].Status(c.now).Leases[0].Until
		if gap := ends.Sub(until); gap < duration/5 {
			t.Errorf("%s grants for %v longer than the holder holds, want %v", name, gap, duration/5)
		}
	}
}

func TestForget(t *testing.T) {
	c := newCluster(t, "m1", "m2", "m3")
	c.campaign(vip)
	holder := c.awaitHolder(2 * duration)
	n := c.nodes[holder]
	delete(n.until, vip)
	n.Forget(c.now, vip)
	n.Forget(c.now, vip)
	c.take(n)
	if got := n.Status(c.now).Leases; len(got) != 0 {
		t.Errorf("the status has %+v", got)
	}
	if got := c.awaitHolder(duration); got == holder {
		t.Errorf("%s forgot the lease, and holds it", got)
	}
}

func TestNewRefuses(t *testing.T) {
	good := voters("m1 m2")
	long := voters(strings.Repeat("x", 300) + " y")
	for want, o := range map[string]lease.Options{
		"incarnation 0":    {Self: "m1", Electorate: good},
		"this member's na": {Self: strings.Repeat("x", 254), Incarnation: 1, Electorate: good},
		"not sorted":       {Self: "b", Incarnation: 1, Electorate: electorate.Electorate{Members: []string{"b", "a"}, Duration: duration}},
		"want 20ms to 1m":  {Self: "m1", Incarnation: 1, Electorate: electorate.Electorate{Members: []string{"m1"}}},
		"want 1 to 253":    {Self: "y", Incarnation: 1, Electorate: long},
		"unknown quorum 7": {Self: "m1", Incarnation: 1, Electorate: electorate.Electorate{Members: []string{"m1"}, Duration: duration, Quorum: 7}},
	} {
		if _, err := lease.New(time.Unix(0, 0), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

// TestLapsedLeaseIsGivenBack: a holder that sends but does not receive is granted renewals without knowing it.
// When it steps down from the lapsed lease, no other member waits for the last renewal to end.
func TestLapsedLeaseIsGivenBack(t *testing.T) {
	for resigns, most := range map[bool]time.Duration{true: duration, false: 2 * duration} {
		c := newCluster(t, "m1", "m2", "m3")
		c.campaign(vip)
		deaf := c.awaitHolder(3 * duration)
		c.run(2 * duration)
		for _, other := range c.others(deaf) {
			c.cut[[2]string{other, deaf}] = true
		}
		cut := c.now
		c.await(duration, "the lease lapses", func() bool { return c.holder(vip) != deaf })
		if resigns {
			c.stepDown(deaf, vip)
			c.nodes[deaf].Campaign(c.now, lease.Candidacy{Lease: vip})
		}
		c.await(2*duration, "another has it", func() bool { h := c.holder(vip); return h != "" && h != deaf })
		if took := c.now.Sub(cut); took > most || !resigns && took < duration {
			t.Errorf("stepped down %v: another has the lease after %v", resigns, took)
		}
	}
}

// TestOneHolder causes random faults in any order: no lease has two holders at any time, and there is a holder soon
// after the last fault.
func TestOneHolder(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		names := []string{"m1", "m2", "m3", "m4", "m5"}[:rapid.SampledFrom([]int{2, 3, 3, 4, 5}).Draw(rt, "members")]
		c := newCluster(t, names...)
		c.fail = func(format string, args ...any) { rt.Fatalf(format, args...) }
		seed := rapid.Uint64().Draw(rt, "seed")
		random := func(n int) int { // SplitMix64
			seed += 0x9e3779b97f4a7c15
			x := seed
			x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
			x = (x ^ x>>27) * 0x94d049bb133111eb
			return int((x^x>>31)>>1) % n
		}
		c.lag = func(string, string) []int {
			switch k := random(100); {
			case k < 5:
				return nil
			case k < 10:
				return []int{1 + random(5), 1 + random(2000)}
			case k < 15:
				return []int{1 + random(300)}
			}
			return []int{1 + random(4)}
		}
		c.campaign(vip)
		name := func() string { return rapid.SampledFrom(names).Draw(rt, "member") }
		wait := func() {
			c.run(time.Duration(rapid.SampledFrom([]int{1, 5, 50, 150, 250, 600, 900}).Draw(rt, "ms")) * time.Millisecond)
		}
		actions := c.faults(name, wait)
		maps.Copy(actions, map[string]func(*rapid.T){
			"wait": func(rt *rapid.T) { wait() },
			"restart": func(rt *rapid.T) {
				c.start(name(), c.electorate).Campaign(c.now, lease.Candidacy{Lease: vip})
				wait()
			},
			"resign": func(rt *rapid.T) {
				n := c.nodes[name()]
				if !n.paused {
					c.stepDown(n.name, vip)
				}
				wait()
			},
			"stand": func(rt *rapid.T) {
				n := c.nodes[name()]
				if !n.paused {
					n.Campaign(c.now, lease.Candidacy{Lease: vip, Priority: random(3), Preempt: random(2) == 0})
					n.yield = true
				}
				wait()
			},
		})
		rt.Repeat(actions)
		clear(c.cut)
		c.lag = nil
		for _, n := range c.nodes {
			n.paused = false
		}
		c.run(step)
		c.campaign(vip)
		c.awaitHolder(3 * duration)
		c.run(3 * duration)
		if c.holder(vip) == "" {
			rt.Fatalf("the holder did not stay\n%s", c.describe())
		}
		if !slices.Contains(names, c.holder(vip)) {
			rt.Fatalf("an unknown member holds the lease")
		}
	})
}
