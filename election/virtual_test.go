package election

import (
	"errors"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/herald-vip/herald/election/electorate"
	"github.com/herald-vip/herald/election/lease"
	"github.com/herald-vip/herald/testenv/fabric"
	"github.com/herald-vip/herald/testenv/must"
	"github.com/herald-vip/herald/testenv/wait"

	"fmt"
)

// sites returns addresses for a fabric.
func sites(n int) []netip.AddrPort {
	var all []netip.AddrPort
	for i := range n {
		all = append(all, netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(1 + i)}), 7946))
	}
	return all
}

// virtually runs a test in virtual time, on a fabric, with n members.
func virtually(t *testing.T, n int, change func(*Config), test func(*testing.T, *fabric.Fabric, *cluster)) {
	// Two processors that run timers of one bubble crash the race detector (https://go.dev/issue/78156). Here, every
	// packet is a timer.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	synctest.Test(t, func(t *testing.T) {
		t.Cleanup(func() { time.Sleep(time.Minute) }) // memberlist ends its last goroutines
		f := fabric.New()
		c := newCluster(t, f.Open, sites(n), change)
		test(t, f, c)
	})
}

// part cuts the member off from others, or mends that.
func (m *member) part(f *fabric.Fabric, cut bool, others ...*member) {
	for _, other := range others {
		f.Part(m.home, other.home, cut)
	}
}

// watch fails the test if two members ever hold a lease at once, until stop is called.
func (c *cluster) watch(name string) (stop func()) {
	all := cluster{members: slices.Clone(c.members)}
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			if all := all.holders(name); len(all) > 1 {
				c.t.Errorf("%s and %s hold %s", all[0].name, all[1].name, name)
				return
			}
			select {
			case <-done:
				return
			case <-time.After(time.Millisecond):
			}
		}
	}()
	return func() { close(done); <-ended }
}

func TestOneHolds(t *testing.T) {
	virtually(t, 3, nil, func(t *testing.T, _ *fabric.Fabric, c *cluster) {
		defer c.watch("vip")()
		c.start("vip")
		holder := c.holder("vip")
		c.met()
		time.Sleep(10 * time.Second)
		if told := holder.told(); len(told) != 1 || !holder.holds("vip") {
			t.Fatalf("the holder received %v", told)
		}
		for _, m := range c.members {
			s := m.Status()
			i := slices.IndexFunc(s.Lease.Leases, func(l lease.LeaseStatus) bool { return l.Lease == "vip" })
			if i < 0 || s.Lease.Leases[i].Holder != holder.name || s.Lease.Leases[i].Epoch == 0 {
				t.Errorf("%s reports %+v", m.name, s.Lease.Leases)
			}
			if !s.Running || !s.Encrypted || len(s.Members) != 3 {
				t.Errorf("%s reports %+v", m.name, s)
			}
			if s.Dropped.Ignored = 0; s.Dropped != (Dropped{}) { // the first messages overtake each other
				t.Errorf("%s dropped %+v", m.name, s.Dropped)
			}
		}
	})
}

func TestStepDownHandsOver(t *testing.T) {
	virtually(t, 3, nil, func(t *testing.T, f *fabric.Fabric, c *cluster) {
		defer c.watch("vip")()
		c.start("vip")
		first := c.holder("vip")
		c.met()
		synctest.Wait()

		var sent []netip.AddrPort
		f.Lock()
		f.Sent = func(src, dst netip.AddrPort, _ []byte) {
			if src == first.home {
				sent = append(sent, dst)
			}
		}
		f.Unlock()
		first.stepDown("vip")
		f.Lock()
		n := len(sent)
		f.Sent = nil
		f.Unlock()
		if n < 2 {
			t.Fatalf("%d messages were sent before StepDown returned", n)
		}
		steppedDown := time.Now()
		c.holder("vip", c.others(first)...)
		if took := time.Since(steppedDown); took > 100*time.Millisecond { // exact, in virtual time
			t.Fatalf("handing over took %v", took)
		}
		if told := first.told(); len(told) != 1 {
			t.Fatalf("it received events of its own StepDown: %v", told)
		}
	})
}

func TestHandlerMayActAtOnce(t *testing.T) {
	virtually(t, 3, nil, func(t *testing.T, _ *fabric.Fabric, c *cluster) {
		for _, m := range c.members {
			m.react(func(e lease.Event) {
				if g, ok := e.(lease.Granted); ok && g.Lease == "vip" {
					m.stepDown("vip")
					m.Describe(nil)
					m.Status()
					m.Campaign(lease.Candidacy{Lease: "other"})
				}
			})
		}
		c.start("vip")
		c.holder("other")
		for _, m := range c.members {
			wait.Until(t, "each has held the lease and stepped down", func() bool {
				return slices.ContainsFunc(m.Status().Lease.Leases, func(l lease.LeaseStatus) bool { return l.Lease == "vip" && !l.Campaigning })
			})
		}
	})
}

func TestPartitionAndHealing(t *testing.T) {
	virtually(t, 3, nil, func(t *testing.T, f *fabric.Fabric, c *cluster) {
		defer c.watch("vip")()
		c.start("vip")
		first := c.holder("vip")
		c.met()
		first.part(f, true, c.others(first)...)
		second := c.holder("vip", c.others(first)...)
		wait.Until(t, "the holder is not alive to the others any more", func() bool { return !second.alive(first.name) })
		if told := first.told(); len(told) != 2 || told[1] != "lost vip" {
			t.Fatalf("the first received %v", told)
		}
		time.Sleep(2 * time.Minute) // by now, memberlist has given up on the others
		first.part(f, false, c.others(first)...)
		c.met()
		time.Sleep(10 * time.Second)
		if told := second.told(); len(told) != 1 {
			t.Fatalf("the holder received %v when the partition healed", told)
		}
		if n := second.log.Count("member has left"); n != 1 {
			t.Fatalf("logged %d times that the first is gone", n)
		}
	})
}

func TestBlockedUDPIsReportedOnce(t *testing.T) {
	virtually(t, 3, nil, func(t *testing.T, f *fabric.Fabric, c *cluster) {
		defer c.watch("vip")()
		first, second := c.members[0], c.members[1]
		f.Filter(first.home, second.home, true) // from the start
		c.start("vip")
		c.holder("vip")
		about := func(m *member, other string) Member {
			s := m.Status().Members
			return s[slices.IndexFunc(s, func(m Member) bool { return m.Name == other })]
		}
		const said = "UDP does not get through"
		for _, broken := range []int{1, 2} {
			wait.Until(t, "status says so", func() bool {
				m := about(first, second.name)
				return m.TCPOnly && strings.Contains(m.Problem, said+" between this node and m2 at 10.0.0.2:7946") && !m.Alive
			})
			wait.Until(t, "the log does", func() bool { return first.log.Count(said) == broken && second.log.Count(said) == broken })
			lines := first.log.Count("level=") + second.log.Count("level=")
			time.Sleep(5 * time.Minute) // shorter than the interval of memberlist's repeated complaints
			if n := first.log.Count("level=") + second.log.Count("level=") - lines; n > 1 {
				t.Fatalf("%d lines more:\n%v\n%v", n, first.log, second.log)
			}
			f.Filter(first.home, second.home, false)
			c.met()
			if m := about(first, second.name); m.TCPOnly || m.Problem != "" {
				t.Fatalf("UDP gets through: %+v", m)
			}
			f.Filter(first.home, second.home, true)
		}
		must.Do(t, second.Close())
		wait.Until(t, "it is down", func() bool { m := about(first, second.name); return !m.Alive && !m.TCPOnly })
	})
}

// TestPartitionIsNoFirewall checks that an absent member that answers by TCP just before its first UDP message is not
// reported as behind a firewall.
func TestPartitionIsNoFirewall(t *testing.T) {
	virtually(t, 3, nil, func(t *testing.T, f *fabric.Fabric, c *cluster) {
		c.start("vip")
		c.met()
		first, second := c.members[0], c.members[1]
		for apart := range 20 {
			f.Part(first.home, second.home, true)
			time.Sleep(3*time.Second + time.Duration(apart)*50*time.Millisecond)
			f.Part(first.home, second.home, false)
			c.met()
		}
		for _, m := range c.members {
			if m.log.Count("UDP") > 0 {
				t.Fatalf("%s:\n%v", m.name, m.log)
			}
		}
	})
}

func TestBadNetwork(t *testing.T) {
	virtually(t, 5, nil, func(t *testing.T, f *fabric.Fabric, c *cluster) {
		f.Delay, f.Loss, f.Twice = 20*time.Millisecond, 0.2, 0.2
		defer c.watch("vip")()
		c.start("vip")
		for range 30 {
			c.holder("vip")
			time.Sleep(time.Second)
		}
	})
}

func TestQuorumNoneFollowsTheLiving(t *testing.T) {
	none := func(c *Config) { c.Quorum = electorate.None }
	virtually(t, 2, none, func(t *testing.T, f *fabric.Fabric, c *cluster) {
		c.start("vip")
		first := c.holder("vip")
		second := c.others(first)[0]
		c.met()
		apart := []time.Duration{5 * time.Minute} // by then, memberlist has given up
		for phase := range 20 {
			apart = append(apart, 2*time.Second+time.Duration(phase)*10*time.Millisecond) // relative to the renewals, 200 ms apart
		}
		for _, apart := range apart {
			f.Part(first.home, second.home, true)
			wait.Until(t, "both hold", func() bool { return first.holds("vip") && second.holds("vip") })
			time.Sleep(apart)
			first.told()
			second.told()
			f.Part(first.home, second.home, false)
			wait.Until(t, "one has stepped down", func() bool { return len(c.holders("vip")) == 1 })
			c.met()
			time.Sleep(10 * time.Second)
			c.holder("vip")
			if told := append(first.told(), second.told()...); len(told) != 1 || told[0] != "lost vip" {
				t.Fatalf("after the partition, the two received %v, want one loss", told)
			}
		}
		if n := first.log.Count("quorum is none"); n != 1 {
			t.Fatalf("warned %d times", n)
		}
	})
}

func TestCloseReleases(t *testing.T) {
	virtually(t, 3, nil, func(t *testing.T, _ *fabric.Fabric, c *cluster) {
		defer c.watch("vip")()
		c.start("vip")
		first := c.holder("vip")
		c.met()
		first.told()
		at := time.Now()
		must.Do(t, first.Close())
		if took := time.Since(at); took > time.Second {
			t.Fatalf("closing took %v", took)
		}
		if told := first.told(); len(told) != 1 || told[0] != "lost vip" {
			t.Fatalf("the handler received %v", told)
		}
		c.holder("vip", c.others(first)...)
		if took := time.Since(at); took > 500*time.Millisecond {
			t.Fatalf("handing over took %v", took)
		}
		for _, m := range c.others(first) {
			wait.Until(t, "the others know that it has left", func() bool { return !m.alive(first.name) })
		}
		if err := first.Apply(first.config); !errors.Is(err, ErrClosed) {
			t.Fatalf("after Close: %v", err)
		}
	})
}

func TestOffAndOn(t *testing.T) {
	virtually(t, 3, nil, func(t *testing.T, _ *fabric.Fabric, c *cluster) {
		c.start("vip")
		first := c.holder("vip")
		c.met()
		must.Do(t, first.Apply(nil))
		if s := first.Status(); s.Running {
			t.Fatalf("%+v", s)
		}
		first.Describe([]net.HardwareAddr{{2, 0, 0, 0, 0, 1}})
		second := c.holder("vip", c.others(first)...)
		first.apply(nil)
		c.met()
		for _, m := range c.others(second) { // its candidacy has survived the configuration
			m.StepDown("nothing")
		}
		second.stepDown("vip")
		third := c.others(second)
		third[0].stepDown("vip")
		third[1].stepDown("vip")
		first.Campaign(lease.Candidacy{Lease: "vip"})
		c.holder("vip", first)
	})
}

func TestHandlerReceivesLiveMembers(t *testing.T) {
	virtually(t, 3, nil, func(t *testing.T, f *fabric.Fabric, c *cluster) {
		if alive := c.members[0].allAlive(); alive != nil {
			t.Fatalf("%v are alive before there is a configuration", alive)
		}
		c.start()
		first, all := c.members[0], []string{"m1", "m2", "m3"}
		knows := func(m *member, want []string) func() bool {
			return func() bool { return slices.Equal(m.sees(), want) && slices.Equal(m.allAlive(), want) }
		}
		for _, m := range c.members {
			wait.Until(t, m.name+" knows that all are alive", knows(m, all))
		}
		first.part(f, true, c.others(first)...)
		wait.Until(t, "it knows that the others are gone", knows(first, all[:1]))
		wait.Until(t, "the others know that it is gone", knows(c.members[1], all[1:]))
		first.part(f, false, c.others(first)...)
		wait.Until(t, "it knows that they are back", knows(first, all))
	})
}

func TestDescriptionsSpread(t *testing.T) {
	virtually(t, 3, nil, func(t *testing.T, _ *fabric.Fabric, c *cluster) {
		c.start()
		c.met()
		mac := net.HardwareAddr{2, 0, 0, 0, 0, 1}
		c.members[0].Describe([]net.HardwareAddr{mac})
		c.members[0].Campaign(lease.Candidacy{Lease: "vip"}, lease.Candidacy{Lease: "other"})
		for _, m := range c.members {
			wait.Until(t, m.name+" knows the description", func() bool {
				s := m.Status().Members
				return len(s) == 3 && s[0].Campaigns == 2 && slices.EqualFunc(m.Hardware()["m1"], []net.HardwareAddr{mac}, slices.Equal)
			})
		}
	})
}

func TestPacketsFitAnyPath(t *testing.T) {
	virtually(t, 5, nil, func(t *testing.T, f *fabric.Fabric, c *cluster) {
		longest := 0
		f.Sent = func(_, _ netip.AddrPort, b []byte) { longest = max(longest, len(b)) }
		var many []string
		for i := range 100 {
			many = append(many, fmt.Sprintf("vip-%d-%s", i, strings.Repeat("x", 40)))
		}
		c.start(many...)
		for i, m := range c.members {
			m.Describe(slices.Repeat([]net.HardwareAddr{{2, 0, 0, 0, 0, byte(i)}}, 49)) // three descriptions exceed a packet
		}
		c.met()
		for _, name := range many {
			c.holder(name)
		}
		time.Sleep(5 * time.Second)
		f.Lock()
		defer f.Unlock()
		if longest > minMTU-headers || longest < 600 {
			t.Fatalf("the longest packet has %d bytes, %d on the wire", longest, longest+headers)
		}
	})
}
