package election

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/herald-vip/herald/election/lease"
	"github.com/herald-vip/herald/election/lease/message"
	"github.com/herald-vip/herald/testenv/fabric"
	"github.com/herald-vip/herald/testenv/must"
	"github.com/herald-vip/herald/testenv/wait"
)

// elsewhere returns addresses of another network.
func elsewhere(n int) (all []netip.AddrPort) {
	for i := range n {
		all = append(all, netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 9, byte(1 + i)}), 7946))
	}
	return all
}

// move restarts a member that is not running at another address, with its disk, if there is one.
func (m *member) move(at netip.AddrPort, change func(*Config)) {
	m.t.Helper()
	m.home = at
	m.apply(func(c *Config) {
		if c.Open() {
			c.Bind = at
		}
		if change != nil {
			change(c)
		}
	})
	m.Campaign(lease.Candidacy{Lease: "vip"})
}

// listed makes a cluster of listed members with disks.
func listed(t *testing.T, n int, test func(t *testing.T, f *fabric.Fabric, c *cluster)) {
	dir := t.TempDir()
	virtually(t, n, func(c *Config) { c.State = filepath.Join(dir, c.Self) }, test)
}

// inForce waits until all running members have exactly these voters, each with a packet, and no change pends.
func (c *cluster) inForce(voters []string) {
	c.t.Helper()
	for _, m := range c.members {
		if m.running() == nil {
			continue
		}
		wait.Until(c.t, m.name+" hears the voters that it had", func() bool {
			s := m.Status()
			silent := slices.ContainsFunc(s.Members, func(o Member) bool { return o.Voter && o.Problem != "" })
			return s.Lease.Active != nil && slices.Equal(s.Lease.Active.Members, voters) && s.Lease.Problem == "" && s.Change() == "" && !silent
		})
	}
}

// TestRenumberedAlone gives the only voter another address.
func TestRenumberedAlone(t *testing.T) {
	openly(t, 1, func(t *testing.T, _ *fabric.Fabric, c *cluster) {
		m := c.members[0]
		m.config.Join = nil
		enter(m)
		c.holder("vip", m)
		for _, at := range elsewhere(2) {
			m.crash()
			m.move(at, nil)
			c.holder("vip", m)
			if s := m.Status(); s.Lease.Active.Members[0] == "" || s.Members[0].Address != at || len(s.Members) != 1 {
				t.Errorf("%+v", s.Members)
			}
		}
	})
}

// TestRenumbered gives voters other addresses and leaves them their disks. All go on as the voters that they were.
func TestRenumbered(t *testing.T) {
	for name, moving := range map[string][]int{"one": {2}, "two": {0, 1}, "all": {0, 1, 2}} {
		t.Run("open, "+name, func(t *testing.T) {
			openly(t, 3, func(t *testing.T, _ *fabric.Fabric, c *cluster) {
				defer c.watch("vip")()
				m, places := c.members, sites(3)
				enter(m...)
				c.voters("m1", "m2", "m3")
				before := m[0].Status().Lease.Active.Members
				for _, i := range moving {
					m[i].crash()
					places[i] = elsewhere(3)[i]
				}
				began := time.Now()
				for _, i := range moving {
					m[i].move(places[i], func(c *Config) { c.Join = places })
				}
				c.holder("vip")
				if took := time.Since(began); took > 10*time.Second {
					t.Errorf("without a holder for %v", took)
				}
				c.inForce(before)
				time.Sleep(5 * time.Minute) // longer than a standby waits for a vote
				c.inForce(before)
				c.holder("vip")
			})
		})
	}
	for name, atOnce := range map[string]bool{"at once": true, "one by one": false} {
		t.Run("listed, "+name, func(t *testing.T) {
			listed(t, 3, func(t *testing.T, _ *fabric.Fabric, c *cluster) {
				defer c.watch("vip")()
				m := c.members
				c.start("vip")
				c.holder("vip")
				before := m[0].Status().Lease.Active.Members
				list := map[string]netip.AddrPort{"m1": elsewhere(1)[0], "m2": elsewhere(2)[1], "m3": elsewhere(3)[2]}
				for _, one := range m {
					if atOnce {
						one.crash()
					}
				}
				for _, one := range m {
					if !atOnce {
						one.crash()
					}
					one.move(list[one.name], func(c *Config) { c.Members = list })
					if !atOnce {
						time.Sleep(5 * time.Second)
					}
				}
				c.holder("vip")
				c.inForce(before)
				if n := m[0].Status().Lease.Number; n != 1 {
					t.Errorf("the electorate has changed: number %d", n)
				}
			})
		})
	}
}

// TestVoterThatIsNotFound checks that the status of a renumbered node names the cure for voters that it cannot find.
func TestVoterThatIsNotFound(t *testing.T) {
	openly(t, 3, func(t *testing.T, _ *fabric.Fabric, c *cluster) {
		m := c.members
		enter(m...)
		c.voters("m1", "m2", "m3")
		for _, one := range m {
			one.crash()
		}
		m[0].move(elsewhere(1)[0], nil)
		time.Sleep(10 * time.Second)
		for _, o := range m[0].Status().Members {
			want := fmt.Sprintf("%s is not at %v, its last address: start herald there, or give its new address in election of this node (no packet yet)", o.Name, o.Address)
			if !o.Self && (o.Problem != want || o.Address.Addr().As4()[2] != 0) {
				t.Errorf("%s: %s, want %s", o.Name, o.Problem, want)
			}
		}
	})
}

// TestMovedWithNewDisk checks that a listed node at another address with an empty disk is a new member, in the place of the
// one before.
func TestMovedWithNewDisk(t *testing.T) {
	listed(t, 3, func(t *testing.T, _ *fabric.Fabric, c *cluster) {
		defer c.watch("vip")()
		m := c.members
		c.start("vip")
		c.holder("vip")
		list := map[string]netip.AddrPort{"m1": elsewhere(1)[0], "m2": elsewhere(2)[1], "m3": elsewhere(3)[2]}
		for _, one := range m {
			one.crash()
		}
		for i, one := range m {
			one.move(list[one.name], func(c *Config) {
				if c.Members = list; i == 2 {
					must.Do(t, os.Remove(c.State))
				}
			})
		}
		c.holder("vip")
		c.inForce([]string{"m1@10.0.0.1:7946", "m2@10.0.0.2:7946", "m3@10.0.9.3:7946"})
	})
}

// TestRenumberedByAnUpgrade starts with state files of an earlier release, which do not name the member. A disk with an
// identity is known at any address, one without only at its own.
func TestRenumberedByAnUpgrade(t *testing.T) {
	forget := func(c *Config) {
		s := must.Get[saved](t)(readState(c.State))
		s.Member = ""
		must.Do(t, os.WriteFile(c.State, must.Get[[]byte](t)(json.Marshal(s)), 0o600))
	}
	openly(t, 3, func(t *testing.T, _ *fabric.Fabric, c *cluster) {
		defer c.watch("vip")()
		m := c.members
		enter(m...)
		c.voters("m1", "m2", "m3")
		before := m[0].Status().Lease.Active.Members
		for _, one := range m {
			one.crash()
		}
		for i, one := range m {
			one.move(elsewhere(3)[i], func(c *Config) { forget(c); c.Join = elsewhere(3) })
		}
		c.holder("vip")
		c.inForce(before)
	})
	listed(t, 3, func(t *testing.T, _ *fabric.Fabric, c *cluster) {
		m := c.members
		c.start("vip")
		c.holder("vip")
		for _, one := range m {
			one.crash()
		}
		want := []string{"m1@10.0.0.1:7946", "m2@10.0.0.2:7946", "m3@10.0.9.1:7946"}
		for i, one := range m {
			one.apply(func(c *Config) { forget(c); c.Members["m3"] = elsewhere(1)[0] })
			if s := must.Get[saved](t)(readState(one.config.State)); s.Member != want[i] {
				t.Errorf("%s is stored as %q", one.name, s.Member)
			}
			one.Campaign(lease.Candidacy{Lease: "vip"})
		}
		c.holder("vip")
		c.inForce(want)
	})
}

// TestSendersAreVoters checks that a voter at another address is known by its whole name.
func TestSendersAreVoters(t *testing.T) {
	openly(t, 3, func(t *testing.T, _ *fabric.Fabric, c *cluster) {
		m := c.members
		enter(m...)
		c.voters("m1", "m2", "m3")
		voter := m[0].Status().Lease.Active.Members[2]
		m[2].crash()
		m[2].move(elsewhere(1)[0], nil)
		c.inForce(m[0].Status().Lease.Active.Members)
		other := strings.Replace(voter, "#", "#f", 1)
		for from, accepted := range map[string]bool{
			voter: true,
			other: false, // another identity
			strings.Replace(other, "10.0.0.3", "10.0.0.2", 1): false, // and another place
			strings.Replace(voter, "10.0.0.3", "10.0.9.9", 1): false,
			strings.Replace(voter, "m3@", "m2@", 1):           false,
		} {
			before := m[0].node.unjoined.Load()
			m[0].node.receive(must.Get[[]byte](t)((&message.Message{From: from, Incarnation: 1, Receiver: 1, Sequence: 1}).AppendBinary(nil)))
			if refused := m[0].node.unjoined.Load() > before; refused == accepted {
				t.Errorf("%s is refused: %t", from, refused)
			}
		}
	})
}

// TestRenumberedAtAnyTime crashes nodes and moves them at random. There are never two holders, and in the end there is
// one.
func TestRenumberedAtAnyTime(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			openly(t, 4, func(t *testing.T, f *fabric.Fabric, c *cluster) {
				defer c.watch("vip")()
				f.Loss, f.Twice = 0.02, 0.02
				rng := rand.New(rand.NewPCG(seed, 1))
				m, places, used := c.members, sites(4), 0
				enter(m...)
				c.holder("vip")
				time.Sleep(10 * time.Second)
				for range 25 {
					i := rng.IntN(len(m))
					if m[i].running() != nil {
						m[i].crash()
					}
					time.Sleep(time.Duration(rng.Int64N(int64(5 * time.Second))))
					if rng.IntN(2) == 0 {
						used++
						places[i] = elsewhere(used)[used-1]
					}
					m[i].move(places[i], func(c *Config) { c.Join, c.Bootstrap = slices.Clone(places), false })
					if rng.IntN(3) == 0 {
						time.Sleep(time.Duration(rng.Int64N(int64(30 * time.Second))))
					}
				}
				c.holder("vip")
				time.Sleep(time.Minute)
				c.holder("vip")
				for _, one := range m {
					if s := one.Status(); s.Lease.Problem != "" || len(s.Lease.Active.Members) != 3 {
						t.Errorf("%s reports %+v", one.name, s.Lease)
					}
				}
			})
		})
	}
}

// TestRenumberedBeforeItKnows moves a node that has got a vote and was lost before it knew: it takes part as the voter all
// the same.
func TestRenumberedBeforeItKnows(t *testing.T) {
	openly(t, 3, func(t *testing.T, _ *fabric.Fabric, c *cluster) {
		defer c.watch("vip")()
		m := c.members
		enter(m[0])
		c.holder("vip")
		m[1].apply(nil)
		time.Sleep(5 * time.Second)
		early := must.Get[saved](t)(readState(m[1].config.State))
		enter(m[1:]...)
		c.voters("m1", "m2", "m3")
		before := m[0].Status().Lease.Active.Members
		m[2].crash()
		m[1].crash()
		must.Do(t, os.WriteFile(m[1].config.State, must.Get[[]byte](t)(json.Marshal(early)), 0o600))
		m[1].move(elsewhere(1)[0], nil)
		wait.Until(t, "m2 has its vote", func() bool {
			s := m[1].Status()
			votes := slices.ContainsFunc(s.Members, func(o Member) bool { return o.Self && o.Voter })
			return votes && slices.Equal(s.Lease.Active.Members, before)
		})
		time.Sleep(5 * time.Second)
		c.holder("vip", m[:2]...)
	})
}
