package election

import (
	"context"
	"encoding/binary"
	"log"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/herald-vip/herald/election/advertisement"
	"github.com/herald-vip/herald/election/lease"
	"github.com/herald-vip/herald/election/members"
	"github.com/herald-vip/herald/election/transport"
	"github.com/herald-vip/herald/testenv/fabric"
	"github.com/herald-vip/herald/testenv/must"
	"github.com/herald-vip/herald/testenv/nettest"
	"github.com/herald-vip/herald/testenv/wait"
)

// serves is an advertisement with a healthy apiserver.
func serves() advertisement.Advertisement {
	return advertisement.Advertisement{Checks: map[string]bool{"apiserver": true}}
}

// advertise makes members advertise that they serve.
func advertise(members ...*member) {
	for _, m := range members {
		m.Advertise(serves())
	}
}

// lastState returns the last state of another member that the handler received.
func (m *member) lastState(other string) (advertisement.MemberState, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.given) == 0 {
		return advertisement.MemberState{}, false
	}
	last := m.given[len(m.given)-1]
	i := slices.IndexFunc(last, func(o advertisement.MemberState) bool { return o.Member == other })
	if i < 0 {
		return advertisement.MemberState{}, false
	}
	return last[i], true
}

// rotation returns the members with a healthy apiserver, as the handler last received.
func (m *member) rotation() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.given) == 0 {
		return ""
	}
	var names []string
	for _, o := range m.given[len(m.given)-1] {
		if o.Advertisement.Checks["apiserver"] && !o.Advertisement.Draining && !o.TimedOut {
			names = append(names, o.Member)
		}
	}
	return strings.Join(names, " ")
}

// within waits, in virtual time, until the members know that exactly these serve. It fails the test if that takes
// longer than limit.
func within(t *testing.T, limit time.Duration, serving string, members ...*member) {
	t.Helper()
	began := time.Now()
	for _, m := range members {
		wait.Until(t, m.name+" knows that these serve: "+serving, func() bool { return m.rotation() == serving })
	}
	if took := time.Since(began); took > limit {
		t.Errorf("it took %[2]v until all knew that %[1]q serve", serving, took)
	}
}

func TestAdvertisementsReachAll(t *testing.T) {
	mixed(t, func(t *testing.T, f *fabric.Fabric, c *cluster, voters, observers []*member) {
		c.start()
		c.met()
		if all := c.members[0].MemberStates(); len(all) > 0 {
			t.Fatalf("before any advertisement: %v", all)
		}
		advertise(voters...)
		within(t, 5*time.Millisecond, "m1 m2 m3", c.members...)
		observers[0].Advertise(serves()) // observers may advertise
		within(t, 5*time.Millisecond, "m1 m2 m3 w1", c.members...)
		for _, m := range c.members {
			for i, o := range m.MemberStates() {
				want := append(slices.Clone(voters), observers[0])[i]
				if o.Member != want.name || o.Address != want.home || o.Self != (want == m) || time.Since(o.Received) > time.Second {
					t.Errorf("%s reports %+v", m.name, o)
				}
			}
		}
		voters[1].Advertise(advertisement.Advertisement{Checks: map[string]bool{"apiserver": false}})
		within(t, 5*time.Millisecond, "m1 m3 w1", c.members...)
		voters[1].Advertise(advertisement.Advertisement{Draining: true, Checks: map[string]bool{"apiserver": true}})
		for _, m := range c.members {
			wait.Until(t, m.name+" knows that m2 drains", func() bool { o, _ := m.lastState("m2"); return o.Advertisement.Draining })
		}

		for _, m := range c.members {
			m.mu.Lock()
			m.given = nil
			m.mu.Unlock()
		}
		time.Sleep(10 * time.Second)
		for _, m := range c.members {
			m.mu.Lock()
			if len(m.given) > 0 {
				t.Errorf("the handler of %s received repetitions: %v", m.name, m.given)
			}
			m.mu.Unlock()
			if d := m.Status().Dropped; d.Malformed > 0 {
				t.Errorf("%s dropped %+v", m.name, d)
			}
		}
	})
}

func TestDeadMemberTimesOutAfterOneLease(t *testing.T) {
	mixed(t, func(t *testing.T, f *fabric.Fabric, c *cluster, voters, observers []*member) {
		c.start()
		c.met()
		advertise(voters...)
		within(t, 5*time.Millisecond, "m1 m2 m3", c.members...)
		rest := c.others(voters[0])
		voters[0].crash()
		within(t, 610*time.Millisecond, "m2 m3", rest...)
		if o, _ := observers[0].lastState("m1"); !o.TimedOut || o.Left || !o.Advertisement.Checks["apiserver"] {
			t.Errorf("crashed member: %+v", o)
		}
		voters[0].apply(nil)
		within(t, 300*time.Millisecond, "m1 m2 m3", rest...)

		voters[0].part(f, true, rest...)
		within(t, 610*time.Millisecond, "m2 m3", rest...)
		within(t, 610*time.Millisecond, "m1", voters[0])
		time.Sleep(time.Minute) // by now, memberlist has given up
		voters[0].part(f, false, rest...)
		within(t, 2*time.Second, "m1 m2 m3", c.members...)

		began := time.Now()
		must.Do(t, voters[1].Apply(nil))
		if took := time.Since(began); took > time.Second {
			t.Errorf("leaving took %v", took)
		}
		within(t, 0, "m1 m3", c.others(voters[1])...)
		if o, _ := observers[0].lastState("m2"); !o.TimedOut || !o.Left {
			t.Errorf("member that left: %+v", o)
		}
		if all := voters[1].MemberStates(); all != nil {
			t.Errorf("without an election: %v", all)
		}
		voters[1].apply(nil) // the advertisement survives the configuration
		within(t, time.Second, "m1 m2 m3", c.members...)
	})
}

func TestJoiningMemberIsInformedAtOnce(t *testing.T) {
	mixed(t, func(t *testing.T, _ *fabric.Fabric, c *cluster, voters, observers []*member) {
		for _, m := range voters {
			m.apply(nil)
			m.Advertise(serves())
		}
		within(t, 3*time.Second, "m1 m2 m3", voters...)
		for _, g := range observers {
			time.Sleep(time.Second + 7*time.Millisecond)
			g.apply(nil)
			within(t, 30*time.Millisecond, "m1 m2 m3", g)
		}
	})
}

func TestAdvertisementsHoldForTheLeaseInForce(t *testing.T) {
	virtually(t, 3, nil, func(t *testing.T, _ *fabric.Fabric, c *cluster) {
		c.start()
		advertise(c.members...)
		within(t, 3*time.Second, "m1 m2 m3", c.members...)
		for _, length := range []time.Duration{300 * time.Millisecond, 3 * time.Second} {
			for _, m := range c.members {
				m.apply(func(c *Config) { c.Lease = length })
			}
			time.Sleep(10 * time.Second)
			c.members[0].crash()
			began := time.Now()
			within(t, length+10*time.Millisecond, "m2 m3", c.members[1:]...)
			if took := time.Since(began); took < length/2 {
				t.Errorf("with leases of %v, it times out after %v", length, took)
			}
			c.members[0].apply(nil)
			within(t, 10*time.Second, "m1 m2 m3", c.members...)
		}
	})
}

// TestAdvertisementsInABadNetwork loses half of all packets and reorders or duplicates others.
func TestAdvertisementsInABadNetwork(t *testing.T) {
	mixed(t, func(t *testing.T, f *fabric.Fabric, c *cluster, voters, _ []*member) {
		c.start()
		c.met()
		f.Lock()
		f.Delay, f.Loss, f.Twice = 20*time.Millisecond, 0.5, 0.2
		f.Unlock()
		for healthy := true; healthy || time.Now().Second() < 20; healthy = !healthy {
			voters[0].Advertise(advertisement.Advertisement{Checks: map[string]bool{"apiserver": healthy}})
			for _, m := range c.members {
				wait.Until(t, m.name+" knows it", func() bool { o, ok := m.lastState("m1"); return ok && o.Advertisement.Checks["apiserver"] == healthy })
			}
		}
	})
}

// TestSlowHandlersDelayNoOthers blocks the handler in events of leases and in advertisements. Neither waits for the
// other, and no other member waits.
func TestSlowHandlersDelayNoOthers(t *testing.T) {
	virtually(t, 3, nil, func(t *testing.T, _ *fabric.Fabric, c *cluster) {
		c.start("vip")
		holder := c.holder("vip")
		c.met()
		holder.react(func(lease.Event) { time.Sleep(30 * time.Second) })
		time.Sleep(time.Second)
		advertise(c.members...)
		within(t, 5*time.Millisecond, "m1 m2 m3", c.members...)
		holder.react(nil)

		first, slow := c.members[0], c.members[1]
		slow.mu.Lock()
		slow.onStates = func() { time.Sleep(30 * time.Second) }
		slow.mu.Unlock()
		for range 10 {
			first.Advertise(advertisement.Advertisement{Draining: true})
			within(t, 5*time.Millisecond, "m2 m3", c.members[2])
			first.Advertise(serves())
			within(t, 5*time.Millisecond, "m1 m2 m3", c.members[2])
		}
		time.Sleep(time.Minute)
		wait.Until(t, "the slow one knows, too", func() bool { return slow.rotation() == "m1 m2 m3" })
		slow.mu.Lock()
		slow.onStates = nil
		slow.mu.Unlock()
	})
}

// TestEarlierReleasesReceiveNoAdvertisements has a member of a release without advertisements: it receives only messages that
// it understands, and takes part.
func TestEarlierReleasesReceiveNoAdvertisements(t *testing.T) {
	virtually(t, 3, nil, func(t *testing.T, f *fabric.Fabric, c *cluster) {
		config := c.members[2].config
		c.members = c.members[:2]
		quiet := slog.New(slog.DiscardHandler)
		a := transport.NewAdmission(quiet, true)
		sockets, err := f.Open(config.home(), a)
		if err != nil {
			t.Fatal(err)
		}
		understood := 0
		r := members.New(config.Self, a, func(b []byte) {
			if understood++; len(b) == 0 || b[0] != 2 { // version of lease messages
				t.Errorf("the handler received %q", b)
			}
		})
		r.Configure(config.Members, nil)
		ring, err := memberlist.NewKeyring(config.Keys, config.Keys[0])
		if err != nil {
			t.Fatal(err)
		}
		s := settings(config, ring, r)
		s.DelegateProtocolMax = 0
		s.Transport, s.Logger = sockets, log.New(transport.NewLogFilter(quiet, a), "", 0)
		earlier, err := memberlist.Create(s)
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := earlier.Shutdown(); err != nil {
				t.Error(err)
			}
		}()
		c.start()
		advertise(c.members...)
		wait.Until(t, "it has joined", func() bool {
			return c.members[0].node.members.Joined("m3@10.0.0.3:7946") && r.Joined("m1@10.0.0.1:7946") && r.Joined("m2@10.0.0.2:7946")
		})
		within(t, 2*time.Second, "m1 m2", c.members...)
		time.Sleep(time.Minute)
		synctest.Wait()
		if understood == 0 {
			t.Error("it receives nothing")
		}
	})
}

func TestInvalidAdvertisementsAreCounted(t *testing.T) {
	virtually(t, 2, nil, func(t *testing.T, _ *fabric.Fabric, c *cluster) {
		c.start()
		c.met()
		first, second := c.members[0], c.members[1]
		first.Advertise(serves())
		within(t, 5*time.Millisecond, "m1", second)
		before := second.Status().Dropped
		// The format of advertisement/message.go: an advertisement without checks, and a challenge.
		claim := func(from string, run byte, sequence uint64) []byte {
			b := append([]byte{0xb0, 1, 0, byte(len(from))}, from...)
			b = append(b, 0, 0, 0, 0, 0, 0, 0, run)
			b = binary.AppendUvarint(b, sequence)
			b = append(b, 0, 0, 0, 0, 0, 0, 0, 0)
			return append(binary.AppendUvarint(b, 60_000), 0, 0)
		}
		for _, b := range [][]byte{
			{0xb0},
			claim("nobody", 1, 1),
			append([]byte{0xb0, 1, 1, 6}, "nobody\x00\x00\x00\x00\x00\x00\x00\x01"...),
			claim("m1", 1, 1<<60), // causes a challenge, which m1 does answer
		} {
			if err := first.node.network.list.SendToAddress(memberlist.Address{Addr: second.home.String(), Name: second.name}, b); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second)
		after := second.Status().Dropped
		if after.Malformed != before.Malformed+1 || after.Ignored < before.Ignored+2 || second.rotation() != "m1" {
			t.Errorf("%+v became %+v; %q serves", before, after, second.rotation())
		}
		if n := second.log.Count("an advertisement is truncated"); n != 1 {
			t.Errorf("logged %d times", n)
		}
	})
}

// TestAdvertisementsOverSockets uses real sockets and floods a recipient.
func TestAdvertisementsOverSockets(t *testing.T) {
	t.Parallel()
	ipv4 := nettest.Loopback(4)
	for name, at := range map[string][]netip.AddrPort{"IPv4": ipv4, "IPv6": free(t, 4)} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, transport.Listen, at[:3], nil)
			w := c.observer("w1", at[3])
			c.start()
			ctx, stop := context.WithCancel(t.Context())
			var flooder sync.WaitGroup
			defer flooder.Wait()
			defer stop()
			if name == "IPv4" {
				conn, err := net.DialUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 99)}, net.UDPAddrFromAddrPort(w.home))
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				flooder.Go(func() { flood(ctx, conn) })
			}
			advertise(c.members[:3]...)
			for range 10 {
				wait.Until(t, "w1 knows that all serve", func() bool { return w.rotation() == "m1 m2 m3" })
				c.members[0].Advertise(advertisement.Advertisement{Draining: true})
				wait.Until(t, "w1 knows that m1 drains", func() bool { return w.rotation() == "m2 m3" })
				c.members[0].Advertise(serves())
			}
			must.Do(t, c.members[1].Close())
			wait.Until(t, "w1 knows that m2 has left", func() bool { o, _ := w.lastState("m2"); return o.TimedOut && o.Left })
		})
	}
}
