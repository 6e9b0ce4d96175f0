package lease_test

import (
	"slices"
	"testing"
	"time"

	"github.com/herald-vip/herald/lease"
)

func TestElects(t *testing.T) {
	for _, names := range [][]string{{"m1"}, {"m1", "m2"}, {"m1", "m2", "m3"}, {"m1", "m2", "m3", "m4", "m5"}} {
		c := newCluster(t, names...)
		c.stand(vip)
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
	c.stand(vip)
	first := c.awaitHolder(2 * duration)
	c.run(5 * duration)
	c.kill(first)
	took := c.await(2*duration, "another holder", func() bool { return c.holder(vip) != "" })
	if took > duration+20*time.Millisecond {
		t.Errorf("took over after %v", took)
	}
	second := c.holder(vip)
	c.start(first, c.electorate).Stand(c.now, lease.Candidacy{Lease: vip})
	c.run(5 * duration)
	if c.holder(vip) != second {
		t.Errorf("%s holds the lease, want %s to keep it", c.holder(vip), second)
	}
}

func TestMinorityGivesUpInTime(t *testing.T) {
	c := newCluster(t, "m1", "m2", "m3")
	c.stand(vip)
	first := c.awaitHolder(2 * duration)
	c.run(2 * duration)
	c.isolate(first, true)
	c.await(duration, "given up", func() bool { return c.holder(vip) == "" })
	lost, _ := c.nodes[first].events[len(c.nodes[first].events)-1].(lease.Lost)
	if lost.Lease != vip || lost.Reason == "" {
		t.Errorf("last event %+v, want Lost", lost)
	}
	second := c.awaitHolder(duration)
	c.isolate(first, false)
	c.run(3 * duration)
	if got := c.holder(vip); got != second {
		t.Errorf("after healing %q holds the lease, want %s", got, second)
	}
}

func TestReleaseHandsOver(t *testing.T) {
	c := newCluster(t, "m1", "m2", "m3")
	c.stand(vip)
	first := c.awaitHolder(2 * duration)
	c.run(2 * duration)
	c.resign(first, vip)
	took := c.await(duration, "another holder", func() bool { return c.holder(vip) != "" })
	if took > 10*time.Millisecond {
		t.Errorf("the successor took %v", took)
	}
}

func TestPausedHolderLoses(t *testing.T) {
	c := newCluster(t, "m1", "m2", "m3")
	c.stand(vip)
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
	if _, ok := c.nodes[first].events[before].(lease.Lost); !ok {
		t.Errorf("first event after the pause %+v, want Lost", c.nodes[first].events[before])
	}
	c.run(3 * duration)
	if c.holder(vip) != second {
		t.Errorf("holder %q, want %s", c.holder(vip), second)
	}
}
