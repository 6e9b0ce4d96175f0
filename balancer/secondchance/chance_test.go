package secondchance

import (
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	namespace "github.com/herald-vip/herald/testenv/netns"
	"github.com/herald-vip/herald/testenv/nettest"
	"github.com/herald-vip/herald/testenv/wait"
)

// Established connections survive as long as their owning member lives: a fourth node announces, the first is
// drained, the server of the second dies. Over IPv4 and IPv6. Without this package they are lost.
func TestEstablishedGoOn(t *testing.T) {
	l := newLab(t, 4)
	l.routes(1, 2, 3)
	conns := l.connect(l.client, 300)
	l.routes(1, 2, 3, 4)
	if _, lost := use(conns); len(lost) == 0 {
		t.Fatal("without this package no connection is lost when a fourth node announces")
	} else {
		t.Logf("without this package, when a fourth node announces: lost %v of %v", owners(lost), owners(conns))
	}
	// Nodes that still have the old connections would take packets of new ones from the same ports.
	for _, m := range l.nodes {
		m.forget()
	}

	l.run()
	l.routes(1, 2, 3)
	conns = l.connect(l.client, 300)
	if got := owners(conns); len(got) != 3 {
		t.Fatalf("the router does not spread: %v", got)
	}
	survive := func(after string) {
		t.Helper()
		work, lost := use(conns)
		if len(lost) > 0 {
			t.Errorf("after %s: lost %v of %v", after, owners(lost), owners(conns))
		}
		conns = work
	}
	survive("the start")
	l.routes(1, 2, 3, 4)
	survive("a fourth node announces")
	if got := l.passed(); got == 0 {
		t.Error("the router moved no connection")
	}

	l.node(1).setVIP(leaving)
	fresh := l.connect(l.client, 100)
	if got := owners(fresh); got["m1"] > 0 || len(got) != 3 {
		t.Errorf("while m1 is leaving, new connections go to %v", got)
	}
	if got := owners(l.connect(l.node(1).Host, 2)); got["m1"] != 2 {
		t.Errorf("connections from m1 itself go to %v", got)
	}
	conns = append(conns, fresh...)
	survive("m1 is leaving")
	l.routes(2, 3, 4)
	survive("m1 is drained")

	l.node(2).die()
	l.node(2).unbind()
	l.node(2).setVIP(leaving)
	fresh = l.connect(l.client, 100)
	if got := owners(fresh); got["m2"] > 0 {
		t.Errorf("while m2 is gone, new connections go to %v", got)
	}
	l.routes(3, 4)
	work, lost := use(append(conns, fresh...))
	if got := owners(lost); got["m2"] != len(lost) || len(lost) == 0 {
		t.Errorf("after the server of m2 died: lost connections of %v", got)
	}
	conns = work
	survive("m2 is gone")

	for _, m := range l.nodes {
		m.stop()
		m.Must(m.chance.remove())
		if links, err := m.NL.LinkList(); err != nil || len(links) != 2 {
			t.Errorf("%s: links %v, error %v", m.name, links, err)
		}
	}
	if _, lost := use(conns); owners(lost)["m1"] != owners(conns)["m1"] {
		t.Errorf("with the rules removed: lost %v of %v", owners(lost), owners(conns))
	}
}

// A client connects again from a local port while the server still has the port's last connection open: no node takes
// packets of the other's connection.
func TestSamePort(t *testing.T) {
	l := newLab(t, 2)
	l.run()
	for i, vip := range vipAddrs() {
		l.node(1).setVIP(serving)
		l.routes(1)
		before, err := dialBy(l.client, vip, 30000+i)
		l.router.Must(err)
		client := l.router.Link("port0")
		l.router.Must(l.router.NL.LinkSetDown(client)) // the reset is lost
		l.router.Must(before.Conn.(*net.TCPConn).SetLinger(0))
		l.router.Must(before.Close())
		l.router.Must(l.router.NL.LinkSetUp(client))
		l.router.Add("port0", "fd00:0::254/64")
		l.node(1).setVIP(leaving)
		c, err := dialBy(l.client, vip, 30000+i)
		l.router.Must(err)
		if !c.does("anything") {
			t.Errorf("a connection to %s does not work", vip)
		}
		l.router.Must(c.Close())
	}
}

// A client connects to another node from the port of its last connection to this node. The SYN that this node remembers does
// not make it the owning member of the next connection.
func TestPortElsewhere(t *testing.T) {
	l := newLab(t, 2)
	l.run()
	for i, vip := range vipAddrs() {
		l.routes(2)
		before, err := dialBy(l.client, vip, 31000+i)
		l.router.Must(err)
		l.router.Must(before.Conn.(*net.TCPConn).SetLinger(0))
		l.router.Must(before.Close())
		l.routes(1)
		c, err := dialBy(l.client, vip, 31000+i)
		l.router.Must(err)
		l.routes(2)
		if !c.does("anything") {
			t.Errorf("a connection to %s is lost", vip)
		}
		l.router.Must(c.Close())
	}
}

// The mark of a packet in the tunnel matches no routing rule at the owning member.
func TestMark(t *testing.T) {
	l := newLab(t, 2)
	l.run()
	m := l.node(1)
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		local, prohibit := netlink.NewRule(), netlink.NewRule()
		local.Family, local.Priority, local.Table = family, 100, unix.RT_TABLE_LOCAL
		m.Must(m.NL.RuleAdd(local))
		local.Priority = 0
		m.Must(m.NL.RuleDel(local))
		prohibit.Family, prohibit.Priority, prohibit.Mark, prohibit.Type = family, 10, uint32(l.node(2).member.Number), unix.RTN_PROHIBIT
		m.Must(m.NL.RuleAdd(prohibit))
	}
	l.routes(1)
	conns := l.connect(l.client, 10)
	l.routes(2)
	if _, lost := use(conns); len(lost) > 0 {
		t.Errorf("lost %v", owners(lost))
	}
}

// Rules that are not renewed stop passing packets on, and a successor takes over.
func TestKilled(t *testing.T) {
	l := newLab(t, 2)
	for _, m := range l.nodes {
		m.tables.lasts = 2 * time.Second
	}
	l.run()
	l.routes(1)
	conns := l.connect(l.client, 20)
	l.routes(2)
	if _, lost := use(conns); len(lost) > 0 {
		t.Fatalf("lost %v", owners(lost))
	}
	m2 := l.node(2)
	m2.stop()
	wait.Until(t, "the map of VIPs is empty", func() bool {
		var left int
		m2.Must(m2.tables.Do(func(c *nftables.Conn) error {
			for _, f := range families() {
				elements, err := c.GetSetElements(&nftables.Set{Table: f.in(), Name: vips})
				if left += len(elements); err != nil {
					return err
				}
			}
			return nil
		}))
		return left == 0
	})
	before := m2.counts()
	if work, _ := use(conns[:10]); len(work) > 0 || m2.counts() != before {
		t.Errorf("expired rules pass packets on: %d connections work, %+v, before %+v", len(work), m2.counts(), before)
	}
	m2.start()
	wait.Until(t, "a member that answers", func() bool { return len(m2.chance.Status().To) > 0 })
	if _, lost := use(conns[10:]); len(lost) > 0 {
		t.Errorf("with a successor: lost %v", owners(lost))
	}
}

// A node on which the VIP is not bound, as its server was never healthy, passes new connections on.
func TestUnbound(t *testing.T) {
	l := newLab(t, 2)
	l.node(2).unbind()
	l.run()
	l.routes(1, 2)
	if got := owners(l.connect(l.client, 100)); got["m1"] != 100 {
		t.Errorf("connections go to %v", got)
	}
}

// The node is the owning member of connections that it translates, to a pod for instance, though it has no socket for them.
func TestTranslated(t *testing.T) {
	l := newLab(t, 2)
	m1 := l.node(1)
	m1.die()
	m1.serveAt(7000)
	m1.NFT(`table inet t { chain p { type nat hook prerouting priority -100;
			ip daddr 10.99.0.10 tcp dport 6443 dnat ip to 10.0.1.1:7000
			ip6 daddr fd00:99::10 tcp dport 6443 dnat ip6 to [fd00:1::1]:7000
		}
		}`)
	l.run()
	l.routes(1)
	conns := l.connect(l.client, 20)
	for range 2 {
		if _, lost := use(conns); len(lost) > 0 {
			t.Fatalf("lost %d of %d", len(lost), len(conns))
		}
		if got := m1.counts(); got.Passed+got.Answered > 0 {
			t.Errorf("m1 passes its own connections on: %+v", got)
		}
		l.routes(2) // for the second round
	}
	if l.node(2).counts().Passed == 0 {
		t.Error("no packet was passed on")
	}
}

// Full-size packets of a moved connection get through, though the tunnel makes them longer. The owning member learns
// the path MTU to the client, though routers send the ICMP error to another node. The underlay is IPv4 or IPv6.
func TestLong(t *testing.T) {
	for _, members := range []string{"10.0.%d.1", "fd00:%d::1"} {
		l := newLab(t, 2)
		for i, m := range l.nodes {
			m.member.Addr = netip.MustParseAddr(fmt.Sprintf(members, i+1))
		}
		l.run()
		l.routes(1)
		conns := l.connect(l.client, 10)
		l.routes(2)
		for _, what := range []string{"put 300000", "get 300000"} {
			if _, lost := ask(conns, what); len(lost) > 0 {
				t.Errorf("%s: lost %v", what, owners(lost))
			}
		}
		port0 := l.router.Link("port0")
		l.router.Must(l.router.NL.LinkSetMTU(port0, 1300))
		if _, lost := ask(conns, "get 300000"); len(lost) > 0 {
			t.Errorf("with a smaller MTU: lost %v", owners(lost))
		}
		if got := l.node(2).counts(); got.Answered+got.Refused > 0 {
			t.Errorf("m2 answers misrouted packets: %+v", got)
		}
	}
}

// The answer to a SYN cookie belongs to the node that sent the cookie, even when its memory of SYNs is full.
func TestCookies(t *testing.T) {
	for name, memory := range map[string]uint32{"remembered": 1000, "memory full": 4} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, 2)
			for _, m := range l.nodes {
				m.tables.limits.memory = memory
				m.Sysctl("ipv4/tcp_syncookies", "2")
			}
			l.run()
			l.routes(1, 2)
			if _, lost := use(l.connect(l.client, 100)); len(lost) > 0 {
				t.Errorf("lost %v", owners(lost))
			}
			// The nodes share a kernel, so each would accept the other's cookies.
			if got := l.passed(); got > 0 {
				t.Errorf("passed %d packets on though no connection moved", got)
			}
		})
	}
}

// Flushed tables are made anew at once, before the next renewal.
func TestFlushed(t *testing.T) {
	l := newLab(t, 2)
	for _, m := range l.nodes {
		m.tables.lasts = time.Hour
	}
	l.run()
	m2 := l.node(2)
	l.routes(1)
	conns := l.connect(l.client, 20)
	m2.chance.keeper.Lock()
	m2.NFT("flush ruleset")
	m2.chance.keeper.Unlock()
	wait.Until(t, "its counters exist", func() bool {
		m2.chance.keeper.Lock()
		defer m2.chance.keeper.Unlock()
		var objects []nftables.Obj
		m2.Must(m2.tables.Do(func(c *nftables.Conn) (err error) { objects, err = c.GetObjects(families()[0].in()); return err }))
		return len(objects) == 3
	})
	l.routes(2)
	if _, lost := use(conns); len(lost) > 0 {
		t.Errorf("lost %v", owners(lost))
	}
}

// A renewal keeps the tables, which remember connections, unless other programs changed a rule.
func TestRepaired(t *testing.T) {
	l := newLab(t, 2)
	l.run()
	m := l.node(1)
	list := func() string { return m.Run("", "nft", "-s", "list", "table", "ip", tableName) }
	handles := func() string { return m.Run("", "nft", "-sa", "list", "chain", "ip", tableName, "gone") }
	rules, made := list(), handles()
	m.set(m.wanted)
	if got := handles(); got != made {
		t.Errorf("renewed without a change:\n%s\nwant\n%s", got, made)
	}
	for _, command := range []string{
		"flush chain ip " + tableName + " gone",
		"insert rule ip " + tableName + " mine drop",
		"flush chain ip " + tableName + " mine; add rule ip " + tableName + " mine iif lo meta mark set 0; add rule ip " + tableName + " mine accept",
		"flush set ip " + tableName + " members",
	} {
		m.NFT(command)
		m.set(m.wanted)
		if got := list(); got != rules {
			t.Errorf("renewed after %q:\n%s\nwant\n%s", command, got, rules)
		}
	}
}

// Other programs may save the tables and load them again.
func TestReload(t *testing.T) {
	l := newLab(t, 2)
	l.run()
	l.routes(1)
	conns := l.connect(l.client, 20)
	l.node(1).Reload()
	l.routes(2)
	if _, lost := use(conns); len(lost) > 0 {
		t.Errorf("lost %v", owners(lost))
	}
}

// A renewal restores links and settings that other programs removed.
func TestMended(t *testing.T) {
	l := newLab(t, 2)
	l.run()
	m1, m2 := l.node(1), l.node(2)
	for what, remove := range map[string]func(){
		"nothing":                        func() {},
		"the link of the ingress member": func() { m2.Must(m2.NL.LinkDel(m2.Link("herald-tunnel"))) },
		"the link of the owning member":  func() { m1.Must(m1.NL.LinkDel(m1.Link("herald-tunnel"))) },
		"rp_filter": func() {
			m1.Sysctl("ipv4/conf/all/rp_filter", "1")
			m1.Sysctl("ipv4/conf/herald-tunnel/rp_filter", "0")
		},
	} {
		l.routes(1)
		conns := l.connect(l.client, 20)
		remove()
		m1.set(m1.wanted)
		m2.set(m2.wanted)
		l.routes(2)
		if _, lost := use(conns); len(lost) > 0 {
			t.Errorf("without %s: lost %v", what, owners(lost))
		}
	}
}

// With a server bound to the VIP itself the kernel finds a socket for all packets: none are passed on, and the error says why.
func TestListener(t *testing.T) {
	l := newLab(t, 2)
	m1 := l.node(1)
	m1.die()
	m1.Must(namespace.In(m1.NS, func() (err error) {
		m1.listener, err = net.Listen("tcp", "10.99.0.10:6443")
		return err
	}))
	c := newChance(slog.New(slog.DiscardHandler), inside{m1.NS, vxlan{}}, tablesInside{m1.tables, m1.NS}, lasts, nil)
	c.Set(Wanted{Self: m1.member, Links: []string{"eth0"}, VIPs: map[netip.Addr]bool{vipAddrs()[0]: false}})
	if err := c.apply(); err == nil || !strings.Contains(err.Error(), "10.99.0.10:6443") || c.Status().Able {
		t.Errorf("%v, %+v", err, c.Status())
	}
	if links, err := m1.NL.LinkList(); err != nil || len(links) != 2 {
		t.Errorf("links %v, error %v", links, err)
	}
}

// pod adds a pod at 10.244.0.2 to the node.
func (m *machine) pod() *nettest.Host {
	m.T.Helper()
	pod := nettest.NewHost(m.T)
	m.Connect("pod", pod, "eth0")
	m.Add("pod", "10.244.0.1/24")
	pod.Add("eth0", "10.244.0.2/24")
	pod.Route("0.0.0.0/0", "eth0", "10.244.0.1")
	m.Sysctl("ipv4/ip_forward", "1")
	return pod
}

// Answers to connections of a pod that are masqueraded as the VIP reach the pod.
func TestEgress(t *testing.T) {
	l := newLab(t, 2)
	m1 := l.node(1)
	pod := m1.pod()
	m1.NFT(`table ip t { chain p { type nat hook postrouting priority 100; ip saddr 10.244.0.2 snat to 10.99.0.10; }
	}`)
	outside := &machine{Host: l.client, name: "outside", open: make(map[net.Conn]bool)}
	outside.serve()
	l.run()
	l.routes(1)
	c, err := dial(pod, netip.MustParseAddr("10.0.0.1"))
	if err != nil {
		t.Fatalf("%v; m1 %+v", err, m1.counts())
	}
	m1.Must(c.Close())
}

func (m *machine) counts() Counts {
	m.T.Helper()
	m.chance.keeper.Lock()
	defer m.chance.keeper.Unlock()
	c, err := m.tables.counts()
	m.Must(err)
	return c
}

// passed returns how many packets the nodes passed on.
func (l *lab) passed() (sum uint64) {
	l.t.Helper()
	for _, m := range l.nodes {
		sum += m.counts().Passed
	}
	return sum
}
