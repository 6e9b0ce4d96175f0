package election

import (
	"context"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/herald-vip/herald/election/electorate"
	"github.com/herald-vip/herald/election/lease"
	"github.com/herald-vip/herald/testenv/fabric"
	"github.com/herald-vip/herald/testenv/must"
	"github.com/herald-vip/herald/testenv/wait"
)

// openly runs a test in virtual time with n members that find each other by the addresses of all; the first bootstraps
// the cluster.
func openly(t *testing.T, n int, test func(t *testing.T, f *fabric.Fabric, c *cluster)) {
	dir, at := t.TempDir(), 0
	virtually(t, n, func(c *Config) {
		c.Bind, c.Members, c.Join = sites(n)[at], nil, sites(n)
		c.Bootstrap, c.Forget, c.State = at == 0, new(time.Hour), filepath.Join(dir, c.Self)
		at++
	}, test)
}

// enter starts members that campaign for the VIP.
func enter(members ...*member) {
	for _, m := range members {
		m.apply(nil)
		m.Campaign(lease.Candidacy{Lease: "vip"})
	}
}

// voters waits until all running members agree that exactly these vote.
func (c *cluster) voters(names ...string) {
	c.t.Helper()
	for _, m := range c.members {
		if m.running() != nil {
			wait.Until(c.t, m.name+" knows that "+strings.Join(names, ", ")+" vote", func() bool {
				active := m.Status().Lease.Active
				return active != nil && slices.Equal(electorate.Names(active.Members), names)
			})
		}
	}
}

func TestMembersJoin(t *testing.T) {
	openly(t, 5, func(t *testing.T, _ *fabric.Fabric, c *cluster) {
		defer c.watch("vip")()
		m := c.members
		enter(m[0])
		c.holder("vip", m[0])
		enter(m[1])
		c.met(m[:2]...)
		time.Sleep(10 * time.Second)
		c.voters("m1")
		enter(m[2])
		c.voters("m1", "m2", "m3")
		enter(m[3:]...)
		c.voters("m1", "m2", "m3", "m4", "m5")
		c.met()
		if told := m[0].told(); len(told) != 1 {
			t.Errorf("the undisturbed holder received %v", told)
		}
		for _, voter := range m {
			s := voter.Status()
			if s.Lease.Problem != "" || s.Lease.Lag != "" || len(s.Members) != 5 {
				t.Errorf("%s reports %+v", voter.name, s)
			}
		}
		m[0].crash()
		c.holder("vip", m[1:]...)
		enter(m[0]) // again, with its disk
		c.met()
		time.Sleep(10 * time.Second)
		c.voters("m1", "m2", "m3", "m4", "m5")
	})
}

// TestMemberIsInstalledAnew checks that a reinstalled node is a new member and takes the place of its predecessor, at the
// same address or another.
func TestMemberIsInstalledAnew(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"disk":    func(c *Config) { _ = os.Remove(c.State) },
		"address": func(c *Config) { _ = os.Remove(c.State); c.Bind = sites(4)[3] },
	} {
		t.Run(name, func(t *testing.T) {
			openly(t, 3, func(t *testing.T, _ *fabric.Fabric, c *cluster) {
				defer c.watch("vip")()
				m := c.members
				enter(m...)
				c.voters("m1", "m2", "m3")
				before := m[0].Status().Lease.Active.Members
				m[2].crash()
				m[2].apply(change)
				m[2].Campaign(lease.Candidacy{Lease: "vip"})
				wait.Until(t, "m3 is another member", func() bool {
					active := m[0].Status().Lease.Active.Members
					return len(active) == 3 && active[2] != before[2] && slices.Equal(active[:2], before[:2])
				})
				c.voters("m1", "m2", "m3")
				c.met()
			})
		})
	}
}

func TestRemoval(t *testing.T) {
	openly(t, 3, func(t *testing.T, _ *fabric.Fabric, c *cluster) {
		m := c.members
		enter(m...)
		c.voters("m1", "m2", "m3")
		m[2].crash()
		wait.Until(t, "m3 has timed out", func() bool { return !m[0].alive("m3") })
		must.Do(t, m[0].Remove(t.Context(), "m3"))
		c.voters("m1", "m2")
		m[1].crash()
		wait.Until(t, "m2 has timed out", func() bool { return !m[0].alive("m2") })
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if err := m[0].Remove(ctx, "m2"); err == nil || !strings.HasPrefix(err.Error(), "the voters have not agreed to remove m2: check with herald status that a majority of them is alive") {
			t.Errorf("without a majority: %v", err)
		}
	})
}

// TestBootstrappedApart checks that of two clusters that were begun apart one is left once they reach each other.
func TestBootstrappedApart(t *testing.T) {
	openly(t, 2, func(t *testing.T, f *fabric.Fabric, c *cluster) {
		m := c.members
		m[1].config.Bootstrap = true
		f.Part(m[0].home, m[1].home, true)
		enter(m...)
		for _, voter := range m {
			wait.Until(t, voter.name+" holds the VIP of its cluster", func() bool { return voter.holds("vip") })
		}
		f.Part(m[0].home, m[1].home, false)
		wait.Until(t, "one cluster is left", func() bool {
			return slices.Equal(m[0].Status().Lease.Active.Members, m[1].Status().Lease.Active.Members)
		})
		c.holder("vip")
		time.Sleep(time.Minute)
		c.holder("vip")
	})
}

// TestListAndJoin migrates between listed and open membership by restarting members one by one.
func TestListAndJoin(t *testing.T) {
	t.Run("join first", func(t *testing.T) { listAndJoin(t, false) })
	t.Run("list first", func(t *testing.T) { listAndJoin(t, true) })
}

func listAndJoin(t *testing.T, listed bool) {
	openly(t, 3, func(t *testing.T, _ *fabric.Fabric, c *cluster) {
		defer c.watch("vip")()
		m := c.members
		list := map[string]netip.AddrPort{"m1": m[0].home, "m2": m[1].home, "m3": m[2].home}
		places := m[0].config.Join
		named := func(c *Config) { c.Members, c.Join, c.Bootstrap = list, nil, false }
		join := func(c *Config) { c.Members, c.Join = nil, places }
		if listed {
			for _, voter := range m {
				named(voter.config)
			}
		}
		enter(m...)
		c.voters("m1", "m2", "m3")
		before := m[0].Status().Lease.Active.Members
		for _, change := range []func(*Config){named, join, named} {
			for _, voter := range m {
				voter.crash()
				voter.apply(change)
				voter.Campaign(lease.Candidacy{Lease: "vip"})
				c.met()
				c.holder("vip")
			}
			time.Sleep(10 * time.Second)
			c.voters("m1", "m2", "m3")
			for _, voter := range m {
				if s := voter.Status(); !slices.Equal(s.Lease.Active.Members, before) || s.Change() != "" {
					t.Errorf("%s has %v and the pending change %q", voter.name, s.Lease.Active, s.Change())
				}
			}
		}
	})
}

// TestIslandsMeet checks that members that have found each other but no voter keep looking at their configured
// addresses.
func TestIslandsMeet(t *testing.T) {
	t.Run("bootstrap without join", func(t *testing.T) {
		openly(t, 3, func(t *testing.T, _ *fabric.Fabric, c *cluster) {
			m := c.members
			enter(m[1], m[2])
			c.met(m[1], m[2])
			m[0].apply(func(c *Config) { c.Join = nil })
			m[0].Campaign(lease.Candidacy{Lease: "vip"})
			c.voters("m1", "m2", "m3")
		})
	})
	t.Run("parted at first", func(t *testing.T) {
		openly(t, 4, func(t *testing.T, f *fabric.Fabric, c *cluster) {
			m := c.members
			part := func(cut bool) {
				for _, a := range []int{0, 3} {
					for _, b := range []int{1, 2} {
						f.Part(m[a].home, m[b].home, cut)
					}
				}
			}
			part(true)
			enter(m[0])
			m[3].apply(func(c *Config) { c.Observer = true })
			c.met(m[0], m[3])
			enter(m[1], m[2])
			c.met(m[1], m[2])
			time.Sleep(time.Minute)
			part(false)
			c.voters("m1", "m2", "m3")
		})
	})
}

// TestReplacedVoterIsReported checks that the status distinguishes a reinstalled member with failing checks from the voter
// that its node was before.
func TestReplacedVoterIsReported(t *testing.T) {
	openly(t, 4, func(t *testing.T, _ *fabric.Fabric, c *cluster) {
		m := c.members
		enter(m[:3]...)
		m[3].apply(func(c *Config) { c.Observer = true })
		c.voters("m1", "m2", "m3")
		m[2].crash()
		wait.Until(t, "m3 has timed out", func() bool { return !m[0].alive("m3") })
		m[2].StepDown("vip") // its checks fail
		m[2].apply(func(c *Config) { _ = os.Remove(c.State) })
		c.met()
		time.Sleep(30 * time.Second)
		for _, voter := range m {
			before := 0
			for _, s := range voter.Status().Members {
				if s.Name == "m3" && s.Voter {
					before++
					if s.Alive || s.Self || !strings.HasPrefix(s.Problem, "its node is now another member") {
						t.Errorf("%s reports %+v", voter.name, s)
					}
				}
			}
			if before != 1 {
				t.Errorf("%s knows %d voters on m3, want the one before", voter.name, before)
			}
		}
		if n := strings.Count(m[0].log.String(), "a member has left or cannot be reached"); n > 2 {
			t.Errorf("m1 logged %d times that a member has left", n)
		}
	})
}

// TestListGrowsAfterJoin adds a member to a list of voters that have identities.
func TestListGrowsAfterJoin(t *testing.T) {
	openly(t, 4, func(t *testing.T, _ *fabric.Fabric, c *cluster) {
		m := c.members
		enter(m[:3]...)
		c.voters("m1", "m2", "m3")
		list := map[string]netip.AddrPort{"m1": m[0].home, "m2": m[1].home, "m3": m[2].home}
		named := func(c *Config) { c.Members, c.Join, c.Bootstrap = list, nil, false }
		for _, voter := range m[:3] {
			voter.crash()
			voter.apply(named)
			voter.Campaign(lease.Candidacy{Lease: "vip"})
			c.met(m[:3]...)
		}
		list["m4"] = m[3].home
		for _, voter := range m {
			voter.apply(named)
		}
		c.voters("m1", "m2", "m3", "m4")
	})
}

func TestOpenConfigMistakes(t *testing.T) {
	ap := netip.MustParseAddrPort
	for want, join := range map[string]netip.AddrPort{
		"an election is either IPv4 or IPv6": ap("[fd00::2]:7946"),
	} {
		c := &Config{Self: "m1", Settings: electorate.Settings{Bind: ap("10.0.0.1:7946"), Join: []netip.AddrPort{join}, Keys: [][]byte{key(1)}, Lease: time.Second}}
		if err := c.check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", join, err, want)
		}
	}
}

// TestBootstrapAfterJoiningByTCP reinstalls the member that bootstraps while UDP does not get through between it and the
// others: it joins them by TCP, begins no second cluster, and says why.
func TestBootstrapAfterJoiningByTCP(t *testing.T) {
	openly(t, 3, func(t *testing.T, f *fabric.Fabric, c *cluster) {
		defer c.watch("vip")()
		m := c.members
		enter(m...)
		c.voters("m1", "m2", "m3")
		m[0].crash()
		c.holder("vip", m[1:]...)
		f.Filter(m[0].home, m[1].home, true)
		f.Filter(m[0].home, m[2].home, true)
		m[0].apply(func(c *Config) { _ = os.Remove(c.State) })
		m[0].Campaign(lease.Candidacy{Lease: "vip"})
		for range 120 {
			time.Sleep(time.Second)
			if s := m[0].Status().Lease; s.Active != nil {
				t.Fatalf("m1 has begun %v", s.Active)
			}
		}
		if s := m[0].Status().Lease; !strings.Contains(s.Problem, " answers by TCP and belongs to a cluster, so this node begins none: let UDP through") {
			t.Errorf("m1 reports %q", s.Problem)
		}
		f.Filter(m[0].home, m[1].home, false)
		f.Filter(m[0].home, m[2].home, false)
		c.voters("m1", "m2", "m3")
	})
}

// TestNamesakeBootstraps starts a node with the name and the file of the member that bootstrapped, at another address.
func TestNamesakeBootstraps(t *testing.T) {
	openly(t, 2, func(t *testing.T, f *fabric.Fabric, c *cluster) {
		defer c.watch("vip")()
		m := c.members
		enter(m...)
		c.holder("vip")
		time.Sleep(5 * time.Second)
		config := m[0].config.clone()
		config.Bind, config.State = netip.MustParseAddrPort("10.0.0.9:7946"), filepath.Join(t.TempDir(), "x")
		twin := c.add(config)
		enter(twin)
		time.Sleep(2 * time.Minute)
		if s := twin.Status().Lease; s.Active != nil || !strings.Contains(s.Problem, "no other node has the name of this one") {
			t.Errorf("the namesake has %v and reports %q", s.Active, s.Problem)
		}
	})
}

// TestTwoBootstrap starts members that all bootstrap and reach each other, one of them by TCP only: one cluster begins.
func TestTwoBootstrap(t *testing.T) {
	for _, filtered := range []bool{false, true} {
		openly(t, 3, func(t *testing.T, f *fabric.Fabric, c *cluster) {
			defer c.watch("vip")()
			m := c.members
			for _, one := range m {
				one.config.Bootstrap = true
				f.Filter(m[1].home, one.home, filtered)
			}
			enter(m...)
			time.Sleep(time.Minute)
			f.Filter(m[1].home, m[0].home, false)
			f.Filter(m[1].home, m[2].home, false)
			c.voters("m1", "m2", "m3")
		})
	}
}
