package election

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/herald-vip/herald/lease"
)

// elect gives all these members the same list.
func elect(members ...*member) {
	for _, m := range members {
		m.config = m.config.clone()
		clear(m.config.Members)
		for _, other := range members {
			m.config.Members[other.name] = other.home
		}
	}
}

// voters counts the members that have a vote.
func voters(s Status) int {
	n := 0
	for _, m := range s.Members {
		if m.Voter {
			n++
		}
	}
	return n
}

func TestMembersChangeOneByOne(t *testing.T) {
	virtually(t, 4, nil, func(t *testing.T, _ *fabric, c *cluster) {
		defer c.watch("vip")()
		old, added := c.members[:3], c.members[3]
		elect(old...)
		c.members = old
		c.start("vip")
		holder := c.holder("vip")
		c.met()
		holder.told()

		c.members = append(old[:3:3], added)
		elect(c.members...)
		c.start("vip") // one after the other
		c.met()
		time.Sleep(5 * time.Second)
		for _, m := range c.members {
			if told := m.told(); len(told) > 0 {
				t.Errorf("%s was told %v while a member was added", m.name, told)
			}
			s := m.Status()
			if len(s.Members) != 4 || s.Lease.Active == nil || len(s.Lease.Active.Members) != 4 || s.Lease.Problem != "" {
				t.Errorf("%s is in the election %+v", m.name, s.Lease)
			}
		}

		elect(old...)
		for _, m := range old {
			m.apply(nil)
		}
		if err := added.Apply(nil); err != nil {
			t.Fatal(err)
		}
		c.members = old
		time.Sleep(5 * time.Second)
		c.holder("vip", old...)
		for _, m := range old {
			if s := m.Status(); voters(s) != 3 || s.Lease.Active == nil || len(s.Lease.Active.Members) != 3 {
				t.Errorf("%s is in the election %+v", m.name, s.Lease)
			}
		}
	})
}

func TestTooGreatAChangeChangesNothing(t *testing.T) {
	virtually(t, 5, nil, func(t *testing.T, _ *fabric, c *cluster) {
		all := maps.Clone(c.members[0].config.Members)
		c.members = c.members[:3]
		elect(c.members...)
		c.start("vip")
		holder := c.holder("vip")
		c.met()
		bad := holder.config.clone()
		bad.Members = all
		bad.Keys = [][]byte{key(9)}
		err := holder.Apply(bad)
		if err == nil || !strings.HasPrefix(err.Error(), "election: ") || strings.Contains(err.Error(), "\n") {
			t.Fatalf("two members at once: %v", err)
		}
		time.Sleep(5 * time.Second)
		if told := holder.told(); len(told) != 1 {
			t.Fatalf("the holder was told %v", told)
		}
		if s := holder.Status(); len(s.Members) != 3 || s.Dropped.Unreadable > 0 {
			t.Fatalf("%+v", s)
		}
	})
}

func TestMismatchIsNamed(t *testing.T) {
	virtually(t, 5, nil, func(t *testing.T, _ *fabric, c *cluster) {
		odd, good := c.members[2], c.members[:2]
		elect(c.members[:3]...)
		elect(odd, c.members[3], c.members[4]) // knows neither of the others
		odd.config.Members["m1"], odd.config.Members["m2"] = good[0].home, good[1].home
		c.members = c.members[:3]
		c.start("vip")
		c.holder("vip", good...)
		time.Sleep(5 * time.Second)
		for _, m := range good {
			s := m.Status()
			if len(s.Members) != 3 || !strings.Contains(s.Members[2].Problem, "electorate") || s.Members[0].Problem+s.Members[1].Problem != "" {
				t.Errorf("%s says %+v", m.name, s.Members)
			}
		}
		if s := odd.Status(); s.Lease.Problem == "" || len(s.Lease.Leases) != 1 || s.Lease.Leases[0].Why == "" || odd.holds("vip") {
			t.Errorf("the odd one says %+v", s.Lease)
		}
	})
}

func TestLeaseChangesInPlace(t *testing.T) {
	virtually(t, 3, nil, func(t *testing.T, _ *fabric, c *cluster) {
		defer c.watch("vip")()
		c.start("vip")
		c.holder("vip")
		c.met()
		for _, m := range c.members {
			m.apply(func(config *Config) { config.Lease = 3 * time.Second })
		}
		time.Sleep(10 * time.Second)
		holder := c.holder("vip")
		if left := time.Until(holder.granted("vip").Until); left < time.Second {
			t.Fatalf("the lease ends in %v", left)
		}
	})
}

// A member that is removed is heard until all others know: its vote may be needed.
func TestRemovedMemberVotesUntilAllKnow(t *testing.T) {
	virtually(t, 4, nil, func(t *testing.T, _ *fabric, c *cluster) {
		defer c.watch("vip")()
		c.start()
		for _, m := range c.members[:2] {
			m.Stand(lease.Candidacy{Lease: "vip"})
		}
		holder := c.holder("vip", c.members[:2]...)
		c.met()
		c.members[2].crash()
		stay := c.members[:3]
		elect(stay...)
		for _, m := range c.members[:2] {
			m.apply(nil)
		}
		time.Sleep(10 * time.Second)
		if told := holder.told(); len(told) != 1 {
			t.Fatalf("the holder was told %v", told)
		}
		c.members[2].apply(nil)
		time.Sleep(10 * time.Second)
		for _, m := range stay {
			if s := m.Status(); voters(s) != 3 || s.Lease.Pending != nil {
				t.Errorf("%s is in the election %+v", m.name, s.Lease)
			}
			soon(t, "the one that left is heard no more", func() bool { return m.Status().Members[0].Alive && len(m.heard()) == 3 })
		}
		if told := holder.told(); len(told) != 0 {
			t.Fatalf("the holder was told %v", told)
		}
	})
}

func TestMemberComesBackAfterACrash(t *testing.T) {
	virtually(t, 3, nil, func(t *testing.T, _ *fabric, c *cluster) {
		defer c.watch("vip")()
		c.start("vip")
		first := c.holder("vip")
		c.met()
		for _, away := range []time.Duration{0, 10 * time.Second} { // before and after the others have noticed
			first.crash()
			time.Sleep(away)
			first.apply(nil)
			c.met()
			c.holder("vip")
			time.Sleep(5 * time.Second)
		}
	})
}

func TestMemberComesBackElsewhere(t *testing.T) {
	virtually(t, 4, nil, func(t *testing.T, _ *fabric, c *cluster) {
		moved, home := c.members[2], c.members[3].home
		c.members = c.members[:3]
		elect(c.members...)
		c.start("vip")
		c.holder("vip")
		c.met()
		if err := moved.Apply(nil); err != nil {
			t.Fatal(err)
		}
		moved.home = home
		elect(c.members...)
		c.start("vip")
		c.met()
		c.holder("vip")
	})
}
