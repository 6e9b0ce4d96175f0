package election

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/herald-vip/herald/lease"
)

// guest adds a member without a vote at an address.
func (c *cluster) guest(name string, at netip.AddrPort) *member {
	config := c.members[0].config.clone()
	config.Self, config.Bind = name, at
	return c.add(config)
}

// mixed runs a test in virtual time, with three members that vote and as many guests.
func mixed(t *testing.T, test func(t *testing.T, f *fabric, c *cluster, voters, guests []*member)) {
	virtually(t, 3, nil, func(t *testing.T, f *fabric, c *cluster) {
		for i, at := range sites(6)[3:] {
			c.guest(fmt.Sprintf("w%d", i+1), at)
		}
		test(t, f, c, c.members[:3], c.members[3:])
	})
}

func TestGuestsJoinAndHold(t *testing.T) {
	mixed(t, func(t *testing.T, f *fabric, c *cluster, voters, guests []*member) {
		defer c.watch("vip")()
		c.start()
		mac := net.HardwareAddr{2, 0, 0, 0, 0, 1}
		guests[0].Describe([]net.HardwareAddr{mac})
		all := []string{"m1", "m2", "m3", "w1", "w2", "w3"}
		for _, m := range c.members {
			soon(t, m.name+" knows that all are alive", func() bool { return slices.Equal(m.sees(), all) })
			soon(t, m.name+" knows the hardware of w1", func() bool { return len(m.Hardware()["w1"]) == 1 })
			for _, s := range m.Status().Members {
				if s.Voter != strings.HasPrefix(s.Name, "m") || !s.Alive || s.Problem != "" || s.Address != c.members[slices.Index(all, s.Name)].home {
					t.Errorf("%s says %+v", m.name, s)
				}
			}
		}
		for i, g := range guests {
			g.Stand(lease.Candidacy{Lease: "vip", Priority: 10 - i})
		}
		c.holder("vip", guests[0])
		time.Sleep(5 * time.Second)
		if told := guests[0].told(); len(told) != 1 {
			t.Fatalf("the holder was told %v", told)
		}
		for _, g := range guests {
			if s := g.Lease("vip"); s.Holder != "w1" {
				t.Errorf("%s says %+v", g.name, s)
			}
		}

		resigned := time.Now()
		guests[0].resign("vip")
		c.holder("vip", guests[1])
		if took := time.Since(resigned); took > 100*time.Millisecond { // virtual time: exact
			t.Errorf("handing over took %v", took)
		}
		crashed := time.Now()
		guests[1].crash()
		c.holder("vip", guests[2])
		if took := time.Since(crashed); took > time.Second {
			t.Errorf("taking over took %v", took)
		}
		all = slices.DeleteFunc(all, func(name string) bool { return name == "w2" })
		for _, m := range c.others(guests[1]) {
			soon(t, m.name+" knows that w2 is gone", func() bool { return slices.Equal(m.Alive(), all) })
		}
	})
}

// All voters are started anew and know of nobody: guests join again.
func TestGuestsComeBackToVotersThatForgot(t *testing.T) {
	mixed(t, func(t *testing.T, _ *fabric, c *cluster, voters, guests []*member) {
		defer c.watch("vip")()
		c.start()
		for _, g := range guests {
			g.Stand(lease.Candidacy{Lease: "vip"})
		}
		c.holder("vip")
		c.met()
		for _, m := range voters {
			m.crash()
		}
		time.Sleep(time.Minute) // memberlist has given up on them by then
		for _, m := range voters {
			m.apply(nil)
		}
		restarted := time.Now()
		c.holder("vip", guests...)
		if took := time.Since(restarted); took > 5*time.Second {
			t.Errorf("nobody held the lease for %v", took)
		}
		c.met()
	})
}

// The connection between guests is cut, and gossip between them, and then that between
// one of them and the voters: nobody else holds what it may hold.
func TestGuestsInAPartition(t *testing.T) {
	mixed(t, func(t *testing.T, f *fabric, c *cluster, voters, guests []*member) {
		defer c.watch("vip")()
		c.start()
		for i, g := range guests {
			g.Stand(lease.Candidacy{Lease: "vip", Priority: 10 - i})
		}
		first := c.holder("vip")
		c.met()
		for _, other := range c.others(first) {
			if slices.Contains(guests, other) {
				f.part(first.home, other.home, true)
			}
		}
		first.told()
		time.Sleep(time.Minute)
		if told := first.told(); len(told) > 0 || !first.holds("vip") {
			t.Errorf("that guests do not hear each other moved the lease: %v", told)
		}
		for _, m := range voters {
			f.part(first.home, m.home, true)
		}
		second := c.holder("vip", c.others(first)...)
		time.Sleep(time.Minute)
		for _, other := range c.others(first) {
			f.part(first.home, other.home, false)
		}
		c.met()
		time.Sleep(10 * time.Second)
		c.holder("vip", second)
	})
}

func TestGuestBecomesVoterByReload(t *testing.T) {
	virtually(t, 3, nil, func(t *testing.T, _ *fabric, c *cluster) {
		defer c.watch("vip")()
		three := slices.Clone(c.members)
		w := c.guest("w1", sites(4)[3])
		c.start()
		w.Stand(lease.Candidacy{Lease: "vip"})
		c.holder("vip", w)
		c.met()
		w.told()
		elect(c.members...)
		for _, m := range c.members {
			m.apply(nil)
		}
		in := func(n int) func() bool {
			return func() bool {
				return !slices.ContainsFunc(c.members, func(m *member) bool {
					active := m.Status().Lease.Active
					return active == nil || len(active.Members) != n || voters(m.Status()) != n
				})
			}
		}
		soon(t, "all four vote", in(4))
		elect(three...)
		w.config.Members = three[0].config.Members
		for _, m := range c.members {
			m.apply(nil)
		}
		soon(t, "three vote again", in(3))
		time.Sleep(5 * time.Second)
		if told := w.told(); len(told) > 0 || !w.holds("vip") {
			t.Errorf("the lease moved: %v %+v", told, w.Lease("vip"))
		}
		if err := w.Apply(&Config{Self: "w1", Members: w.config.Members, Keys: w.config.Keys, Lease: w.config.Lease}); err == nil ||
			!strings.Contains(err.Error(), "set bind to its address") {
			t.Errorf("without an address: %v", err)
		}
	})
}

// Many guests stand for many leases at the same time: each goes at once to whom it is
// meant for first.
func TestManyGuestsShareManyLeases(t *testing.T) {
	virtually(t, 3, nil, func(t *testing.T, _ *fabric, c *cluster) {
		const guests, leases = 20, 200
		for i, at := range sites(3 + guests)[3:] {
			c.guest(fmt.Sprintf("w%02d", i), at)
		}
		c.start()
		for _, m := range c.members {
			soon(t, m.name+" knows that all are alive", func() bool { return len(m.Alive()) == 3+guests })
		}
		name := func(i int) string { return fmt.Sprint("vip-", i) }
		choice := func(i, k int) *member { return c.members[3+(i*7+k*13)%guests] }
		for i := range leases {
			for k := range 3 {
				choice(i, k).Stand(lease.Candidacy{Lease: name(i), Priority: 3 - k})
			}
		}
		began := time.Now()
		for i := range leases {
			c.holder(name(i), choice(i, 0))
		}
		if took := time.Since(began); took > 300*time.Millisecond { // virtual time: exact
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
