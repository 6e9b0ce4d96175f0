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

	"github.com/herald-vip/herald/election/lease"
	"github.com/herald-vip/herald/election/transport"
	"github.com/herald-vip/herald/testenv/nettest"
	"github.com/herald-vip/herald/testenv/wait"
)

// These tests use real sockets and real time.

// part makes the admissions of two members drop each other's packets, or stops that.
func (c *cluster) part(a, b *member, cut bool) {
	for _, pair := range [][2]*member{{a, b}, {b, a}} {
		members := maps.Clone(pair[0].config.Members)
		if cut {
			delete(members, pair[1].name)
		}
		pair[0].node.admission.Replace(members, pair[0].name)
	}
}

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
			if err := second.Close(); err != nil {
				t.Fatal(err)
			}
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

func TestPartitionHealsOverSockets(t *testing.T) {
	t.Parallel()
	c := newCluster(t, transport.Listen, nettest.Loopback(3), nil)
	c.start("vip")
	first := c.holder("vip")
	c.met()
	for _, m := range c.others(first) {
		c.part(first, m, true)
	}
	c.holder("vip", c.others(first)...)
	for _, m := range c.others(first) {
		wait.Until(t, "the first is not alive to the others", func() bool { return !m.alive(first.name) })
	}
	for _, m := range c.others(first) {
		c.part(first, m, false)
	}
	c.met()
	c.holder("vip")
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

func TestWrongKeyIsLoggedAndRejected(t *testing.T) {
	t.Parallel()
	c := newCluster(t, transport.Listen, nettest.Loopback(3), nil)
	wrong := c.members[2]
	wrong.config.Keys = [][]byte{key(9)}
	good := c.members[:2]
	c.start("vip")
	c.holder("vip", good...)
	c.met(good...)
	for _, m := range good {
		wait.Until(t, m.name+" has received many unreadable messages", func() bool { return m.Status().Dropped.Unreadable > 15 })
		if n := m.log.Count("cannot be decrypted"); n != 1 || m.log.Count("member=m3") != 1 {
			t.Errorf("%s logs it %d times:\n%v", m.name, n, m.log)
		}
		if m.alive("m3") {
			t.Errorf("m3 is alive to %s", m.name)
		}
	}
	if wrong.holds("vip") {
		t.Error("the member with the wrong key holds the lease")
	}
	wrong.apply(func(config *Config) { config.Keys = [][]byte{key(1)} })
	c.met()
}

func TestMissingKeyIsLoggedAndRejected(t *testing.T) {
	t.Parallel()
	c := newCluster(t, transport.Listen, nettest.Loopback(3), nil)
	open := c.members[2]
	open.config.Keys, open.config.Insecure = nil, true
	good := c.members[:2]
	c.start("vip")
	c.holder("vip", good...)
	c.met(good...)
	for i, m := range c.members {
		wait.Until(t, m.name+" cannot read the others", func() bool { return m.Status().Dropped.Unreadable > 15 })
		if n := m.log.Count("cannot be decrypted"); n != []int{1, 1, 2}[i] || m.log.Count("level=WARN") > 8 {
			t.Errorf("%s logs it %d times:\n%v", m.name, n, m.log)
		}
	}
	if n := open.log.Count("NOT ENCRYPTED"); n != 1 {
		t.Errorf("the open one warned %d times", n)
	}
}

func TestUnknownSourcesAreLoggedAndRejected(t *testing.T) {
	t.Parallel()
	at := nettest.Loopback(4)
	c := newCluster(t, transport.Listen, at[:3], func(config *Config) { config.Keys, config.Insecure = nil, true })
	unknown := c.add(c.members[0].config.clone())
	unknown.name, unknown.config.Self = "m4", "m4"
	unknown.config.Members["m4"] = at[3]
	members := c.members[:3]
	c.start("vip")
	c.holder("vip", members...)
	c.met(members...)
	for _, m := range members {
		wait.Until(t, m.name+" has counted the unknown source", func() bool { return m.Status().Dropped.Unknown > 20 })
		if n := m.log.Count("source=" + at[3].Addr().String()); n != 1 {
			t.Errorf("%s logs it %d times:\n%v", m.name, n, m.log)
		}
		if len(m.Status().Members) != 3 {
			t.Errorf("%s has members %v", m.name, m.Status().Members)
		}
	}
	if unknown.holds("vip") {
		t.Error("the unknown node holds the lease")
	}
}

func TestImpostorIsLoggedAndRejected(t *testing.T) {
	t.Parallel()
	at := nettest.Loopback(3)
	c := newCluster(t, transport.Listen, at, nil)
	impostor := c.members[2] // right address and key, wrong name
	impostor.name, impostor.config.Self = "m9", "m9"
	delete(impostor.config.Members, "m3") // all members share the map
	good := c.members[:2]
	impostor.config.Members = map[string]netip.AddrPort{"m1": at[0], "m2": at[1], "m9": at[2]}
	for _, m := range good {
		m.config.Members = map[string]netip.AddrPort{"m1": at[0], "m2": at[1], "m3": at[2]}
	}
	c.start("vip")
	c.holder("vip", good...)
	for _, m := range good {
		wait.Until(t, m.name+" has counted the impostor", func() bool { return m.Status().Dropped.Refused > 3 })
		if n := m.log.Count("node=m9"); n != 1 {
			t.Errorf("%s logs it %d times:\n%v", m.name, n, m.log)
		}
		for _, node := range m.node.network.list.Members() {
			if node.Name == "m9" {
				t.Errorf("memberlist of %s has it", m.name)
			}
		}
	}
	if impostor.holds("vip") {
		t.Error("the impostor holds the lease")
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
