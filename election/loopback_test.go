package election

import (
	"maps"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/herald-vip/herald/election/lease"
	"github.com/herald-vip/herald/election/transport"
	"github.com/herald-vip/herald/testenv/must"
	"github.com/herald-vip/herald/testenv/nettest"
	"github.com/herald-vip/herald/testenv/wait"
)

// These tests use real sockets and real time.

func TestOneHoldsOverSockets(t *testing.T) {
	t.Parallel()
	for name, at := range map[string][]netip.AddrPort{
		"IPv4": nettest.Loopback(3),
		"IPv6": free(t, 3),
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, transport.Listen, at, nil)
			c.start("vip")
			first := c.holder("vip")
			c.met()
			first.stepDown("vip")
			second := c.holder("vip", c.others(first)...)
			must.Do(t, second.Close())
			first.Campaign(lease.Candidacy{Lease: "vip"})
			c.holder("vip", c.others(second)...)
			for _, m := range c.members {
				if m.log.Count("level=WARN") > 1 || m.log.Count("level=ERROR") > 0 { // of the member that closed
					t.Errorf("%s complains:\n%v", m.name, m.log)
				}
			}
		})
	}
}

// free returns n addresses of the IPv6 loopback with ports outside the ephemeral range that are free.
func free(t *testing.T, n int) []netip.AddrPort {
	t.Helper()
	var all []netip.AddrPort
	for range 100 {
		at := netip.AddrPortFrom(netip.IPv6Loopback(), uint16(10_000+rand.IntN(20_000)))
		udp, err := net.ListenUDP("udp6", net.UDPAddrFromAddrPort(at))
		if err != nil {
			continue
		}
		defer udp.Close() // later, or the loop would find it again
		tcp, err := net.ListenTCP("tcp6", net.TCPAddrFromAddrPort(at))
		if err != nil {
			continue
		}
		defer tcp.Close()
		if all = append(all, at); len(all) == n {
			return all
		}
	}
	t.Fatal("no port is free")
	return nil
}

func TestKeysRotate(t *testing.T) {
	c := newCluster(t, transport.Listen, nettest.Loopback(3), func(config *Config) { config.Lease = 2 * time.Second })
	c.start("vip")
	holder := c.holder("vip")
	c.met()
	for _, m := range c.members {
		m.told()
	}
	for _, keys := range [][][]byte{{key(1), key(2)}, {key(2), key(1)}, {key(2)}} {
		for _, m := range c.members {
			m.apply(func(config *Config) { config.Keys = keys })
		}
		before := holder.granted("vip") // messages encrypted before arrive meanwhile
		wait.Until(t, "the lease is renewed", func() bool { return holder.granted("vip").Until.After(before.Until.Add(time.Second)) })
	}
	for _, m := range c.members {
		if told := m.told(); len(told) > 0 {
			t.Errorf("the handler of %s received %v", m.name, told)
		}
		if d := m.Status().Dropped; d.Unreadable > 0 {
			t.Errorf("%s could not read %d messages", m.name, d.Unreadable)
		}
	}
}

// TestIntrudersAreLoggedAndRejected checks that each of these is counted, logged once, and never holds the lease.
func TestIntrudersAreLoggedAndRejected(t *testing.T) {
	at := nettest.Loopback(4)
	source := "source=" + at[3].Addr().String()
	for name, test := range map[string]struct {
		change  func(c *cluster, intruder *member) // before the start
		line    string
		dropped func(Dropped) uint64
		least   uint64
		then    func(t *testing.T, c *cluster, intruder *member, good []*member)
	}{
		"another key": {
			func(_ *cluster, intruder *member) { intruder.config.Keys = [][]byte{key(9)} },
			"cannot be decrypted", func(d Dropped) uint64 { return d.Unreadable }, 15,
			func(t *testing.T, c *cluster, intruder *member, good []*member) {
				for _, m := range good {
					if m.log.Count("member=m3") != 1 || m.alive("m3") {
						t.Errorf("m3 is alive to %s: %t; log:\n%v", m.name, m.alive("m3"), m.log)
					}
				}
				intruder.apply(func(config *Config) { config.Keys = [][]byte{key(1)} })
				c.met()
			},
		},
		"no key": {
			func(_ *cluster, intruder *member) { intruder.config.Keys, intruder.config.Insecure = nil, true },
			"cannot be decrypted", func(d Dropped) uint64 { return d.Unreadable }, 15,
			func(t *testing.T, c *cluster, intruder *member, _ []*member) {
				wait.Until(t, "it cannot read the others", func() bool { return intruder.Status().Dropped.Unreadable > 15 })
				if intruder.log.Count("cannot be decrypted") != 2 || intruder.log.Count("NOT ENCRYPTED") != 1 {
					t.Errorf("it logs:\n%v", intruder.log)
				}
				for _, m := range c.members {
					if m.log.Count("level=WARN") > 8 {
						t.Errorf("%s logs too much:\n%v", m.name, m.log)
					}
				}
			},
		},
		"another address": {
			func(c *cluster, intruder *member) {
				for _, m := range c.members {
					m.config.Keys, m.config.Insecure = nil, true
				}
				intruder.config.Members = maps.Clone(intruder.config.Members)
				intruder.config.Bind, intruder.config.Members["m3"] = at[3], at[3]
			},
			source, func(d Dropped) uint64 { return d.Unknown }, 20,
			func(t *testing.T, _ *cluster, _ *member, good []*member) {
				for _, m := range good {
					if len(m.Status().Members) != 3 || m.alive("m3") {
						t.Errorf("%s has members %v", m.name, m.Status().Members)
					}
				}
			},
		},
		"another name": {
			func(_ *cluster, intruder *member) { // with the right address and key
				intruder.config.Members = maps.Clone(intruder.config.Members)
				intruder.config.Members["m9"] = intruder.config.Members["m3"]
				delete(intruder.config.Members, "m3")
				intruder.name, intruder.config.Self = "m9", "m9"
			},
			"node=m9", func(d Dropped) uint64 { return d.Refused }, 3,
			func(t *testing.T, _ *cluster, _ *member, good []*member) {
				for _, m := range good {
					if slices.ContainsFunc(m.node.network.list.Members(), func(n *memberlist.Node) bool { return n.Name == "m9" }) {
						t.Errorf("memberlist of %s has it", m.name)
					}
				}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, transport.Listen, at[:3], nil)
			intruder, good := c.members[2], c.members[:2]
			test.change(c, intruder)
			c.start("vip")
			c.holder("vip", good...)
			c.met(good...)
			for _, m := range good {
				wait.Until(t, m.name+" has counted it", func() bool { return test.dropped(m.Status().Dropped) > test.least })
				if n := m.log.Count(test.line); n != 1 {
					t.Errorf("%s logs it %d times:\n%v", m.name, n, m.log)
				}
			}
			if intruder.holds("vip") {
				t.Error("the intruder holds the lease")
			}
			test.then(t, c, intruder, good)
		})
	}
}

// TestAnotherNodesFileIsReported gives a node the file of another node, with that node's name and address.
func TestAnotherNodesFileIsReported(t *testing.T) {
	t.Parallel()
	at := nettest.Loopback(3)
	at[0] = netip.AddrPortFrom(netip.MustParseAddr("192.0.2.1"), at[0].Port()) // an address of no node
	c := newCluster(t, transport.Listen, at, nil)
	c.start("vip")
	wrong, good := c.members[0], c.members[1:]
	c.holder("vip", good...)
	const reason = `no link of this node has 192.0.2.1, the address of \"m1\": ` +
		`set nodeName if the file is another node's, else correct the address in election`
	wait.Until(t, "the log says it", func() bool { return wrong.log.Count("takes no part") > 0 })
	if n := wrong.log.Count(reason); n != 1 {
		t.Errorf("logged %d times:\n%v", n, wrong.log)
	}
	if got := wrong.Status().Lease.Problem; got != strings.ReplaceAll(reason, `\"`, `"`) {
		t.Errorf("status says %q", got)
	}
	for _, m := range good {
		if got := m.Status().Lease.Problem; got != "" {
			t.Errorf("status of %s reports %q", m.name, got)
		}
	}
}

func TestUnchangeableSettings(t *testing.T) {
	at := nettest.Loopback(4)
	c := newCluster(t, transport.Listen, at[:3], nil)
	c.start("vip")
	c.holder("vip")
	m := c.members[0]
	for name, change := range map[string]func(*Config){
		"the name of this node cannot change":    func(c *Config) { c.Self = "m2" },
		"the address of this node cannot change": func(c *Config) { c.Members["m1"] = at[3] },
		"encryption cannot be turned off":        func(c *Config) { c.Keys, c.Insecure = nil, true },
	} {
		bad := m.config.clone()
		change(bad)
		err := m.Apply(bad)
		if err == nil || !strings.HasPrefix(err.Error(), "election: ") || !strings.Contains(err.Error(), name) {
			t.Errorf("want an error with %q, got %v", name, err)
		}
	}
	m.apply(nil)
	c.met()
	if !slices.Contains(c.members, c.holder("vip")) {
		t.Error("the lease is gone")
	}
}

// TestManyCallers calls all methods concurrently.
func TestManyCallers(t *testing.T) {
	c := newCluster(t, transport.Listen, nettest.Loopback(3), nil)
	c.start("vip")
	var callers sync.WaitGroup
	for _, m := range c.members {
		for i := range 4 {
			callers.Go(func() {
				for n := range 50 {
					m.Campaign(lease.Candidacy{Lease: "vip", Priority: n % 3}, lease.Candidacy{Lease: "other"})
					m.Describe([]net.HardwareAddr{{2, 0, 0, 0, byte(i), byte(n)}})
					m.Status()
					m.stepDown("vip")
					m.Forget("other")
				}
			})
		}
		callers.Go(func() {
			for range 10 {
				if err := m.Apply(m.config); err != nil {
					t.Error(err)
				}
			}
		})
	}
	callers.Wait()
	for _, m := range c.members {
		m.Campaign(lease.Candidacy{Lease: "vip"})
	}
	c.holder("vip")
}

// granted returns the last grant reported to the member.
func (m *member) granted(name string) lease.Granted {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.held[name]
}
