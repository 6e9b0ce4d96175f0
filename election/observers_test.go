package election

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/herald-vip/herald/election/electorate"
	"github.com/herald-vip/herald/election/lease"
	"github.com/herald-vip/herald/testenv/fabric"
	"github.com/herald-vip/herald/testenv/wait"
)

// observer adds a member without a vote at an address.
func (c *cluster) observer(name string, at netip.AddrPort) *member {
	config := c.members[0].config.clone()
	config.Self, config.Bind = name, at
	return c.add(config)
}

// mixed runs a test in virtual time with three voters and as many observers.
func mixed(t *testing.T, test func(t *testing.T, f *fabric.Fabric, c *cluster, voters, observers []*member)) {
	virtually(t, 3, nil, func(t *testing.T, f *fabric.Fabric, c *cluster) {
		for i, at := range sites(6)[3:] {
			c.observer(fmt.Sprintf("w%d", i+1), at)
		}
		test(t, f, c, c.members[:3], c.members[3:])
	})
}

func TestObserversJoinAndHold(t *testing.T) {
	mixed(t, func(t *testing.T, f *fabric.Fabric, c *cluster, voters, observers []*member) {
		defer c.watch("vip")()
		c.start()
		mac := net.HardwareAddr{2, 0, 0, 0, 0, 1}
		observers[0].Describe([]net.HardwareAddr{mac})
		all := []string{"m1", "m2", "m3", "w1", "w2", "w3"}
		for _, m := range c.members {
			wait.Until(t, m.name+" knows that all are alive", func() bool { return slices.Equal(m.sees(), all) })
			wait.Until(t, m.name+" knows the hardware of w1", func() bool { return len(m.Hardware()["w1"]) == 1 })
			for _, s := range m.Status().Members {
				if s.Voter != strings.HasPrefix(s.Name, "m") || !s.Alive || s.Problem != "" || s.Address != c.members[slices.Index(all, s.Name)].home {
					t.Errorf("%s reports %+v", m.name, s)
				}
			}
		}
		for i, g := range observers {
			g.Campaign(lease.Candidacy{Lease: "vip", Priority: 10 - i})
		}
		c.holder("vip", observers[0])
		time.Sleep(5 * time.Second)
		if told := observers[0].told(); len(told) != 1 {
			t.Fatalf("the holder received %v", told)
		}
		for _, g := range observers {
			if s := g.Lease("vip"); s.Holder != "w1" {
				t.Errorf("%s reports %+v", g.name, s)
			}
		}

		steppedDown := time.Now()
		observers[0].stepDown("vip")
		c.holder("vip", observers[1])
		if took := time.Since(steppedDown); took > 100*time.Millisecond { // exact, in virtual time
			t.Errorf("handing over took %v", took)
		}
		crashed := time.Now()
		observers[1].crash()
		c.holder("vip", observers[2])
		if took := time.Since(crashed); took > time.Second {
			t.Errorf("taking over took %v", took)
		}
		all = slices.DeleteFunc(all, func(name string) bool { return name == "w2" })
		for _, m := range c.others(observers[1]) {
			wait.Until(t, m.name+" knows that w2 is gone", func() bool { return slices.Equal(m.allAlive(), all) })
		}
	})
}

// TestObserversComeBackToVotersThatForgot restarts all voters, which then know no observer: observers join again.
func TestObserversComeBackToVotersThatForgot(t *testing.T) {
	mixed(t, func(t *testing.T, _ *fabric.Fabric, c *cluster, voters, observers []*member) {
		defer c.watch("vip")()
		c.start()
		for _, g := range observers {
			g.Campaign(lease.Candidacy{Lease: "vip"})
		}
		c.holder("vip")
		c.met()
		for _, m := range voters {
			m.crash()
		}
		time.Sleep(time.Minute) // by now, memberlist has given up on them
		reload(voters...)
		restarted := time.Now()
		c.holder("vip", observers...)
		if took := time.Since(restarted); took > 5*time.Second {
			t.Errorf("no member held the lease for %v", took)
		}
		c.met()
	})
}

// TestObserversInAPartition cuts the connection between observers, with gossip between them, and then between one of
// them and the voters. No other member gets a lease meanwhile.
func TestObserversInAPartition(t *testing.T) {
	mixed(t, func(t *testing.T, f *fabric.Fabric, c *cluster, voters, observers []*member) {
		defer c.watch("vip")()
		c.start()
		for i, g := range observers {
			g.Campaign(lease.Candidacy{Lease: "vip", Priority: 10 - i})
		}
		first := c.holder("vip")
		c.met()
		for _, other := range c.others(first) {
			if slices.Contains(observers, other) {
				f.Part(first.home, other.home, true)
			}
		}
		first.told()
		time.Sleep(time.Minute)
		if told := first.told(); len(told) > 0 || !first.holds("vip") {
			t.Errorf("the partition between observers moved the lease: %v", told)
		}
		first.part(f, true, voters...)
		second := c.holder("vip", c.others(first)...)
		time.Sleep(time.Minute)
		first.part(f, false, c.others(first)...)
		c.met()
		time.Sleep(10 * time.Second)
		c.holder("vip", second)
	})
}

func TestObserverBecomesVoterByReload(t *testing.T) {
	virtually(t, 3, nil, func(t *testing.T, _ *fabric.Fabric, c *cluster) {
		defer c.watch("vip")()
		three := slices.Clone(c.members)
		w := c.observer("w1", sites(4)[3])
		c.start()
		w.Campaign(lease.Candidacy{Lease: "vip"})
		c.holder("vip", w)
		c.met()
		w.told()
		elect(c.members...)
		reload(c.members...)
		in := func(n int) func() bool {
			return func() bool {
				return !slices.ContainsFunc(c.members, func(m *member) bool {
					active := m.Status().Lease.Active
					return active == nil || len(active.Members) != n || voters(m.Status()) != n
				})
			}
		}
		wait.Until(t, "all four vote", in(4))
		elect(three...)
		w.config.Members = three[0].config.Members
		reload(c.members...)
		wait.Until(t, "three vote again", in(3))
		time.Sleep(5 * time.Second)
		if told := w.told(); len(told) > 0 || !w.holds("vip") {
			t.Errorf("the lease moved: %v %+v", told, w.Lease("vip"))
		}
		if err := w.Apply(&Config{Self: "w1", Settings: electorate.Settings{Members: w.config.Members, Keys: w.config.Keys, Lease: w.config.Lease}}); err != nil {
			t.Errorf("it does not keep its address: %v", err)
		}
	})
}

// TestManyObserversShareManyLeases makes many observers candidates for many leases at once: each lease goes directly to
// its preferred member.
func TestManyObserversShareManyLeases(t *testing.T) {
	virtually(t, 3, nil, func(t *testing.T, _ *fabric.Fabric, c *cluster) {
		const observers, leases = 20, 200
		for i, at := range sites(3 + observers)[3:] {
			c.observer(fmt.Sprintf("w%02d", i), at)
		}
		c.start()
		for _, m := range c.members {
			wait.Until(t, m.name+" knows that all are alive", func() bool { return len(m.allAlive()) == 3+observers })
		}
		time.Sleep(time.Second) // by now, all vote
		name := func(i int) string { return fmt.Sprint("vip-", i) }
		choice := func(i, k int) *member { return c.members[3+(i*7+k*13)%observers] }
		for i := range leases {
			for k := range 3 {
				choice(i, k).Campaign(lease.Candidacy{Lease: name(i), Priority: 3 - k})
			}
		}
		began := time.Now()
		for i := range leases {
			c.holder(name(i), choice(i, 0))
		}
		if took := time.Since(began); took > 300*time.Millisecond { // exact, in virtual time
			t.Errorf("that took %v", took)
		}
		time.Sleep(5 * time.Second)
		gone := c.members[3]
		gone.crash()
		crashed := time.Now()
		for i := range leases {
			if choice(i, 0) == gone {
				c.holder(name(i), choice(i, 1))
			}
		}
		if took := time.Since(crashed); took > time.Second {
			t.Errorf("taking over took %v", took)
		}
	})
}
