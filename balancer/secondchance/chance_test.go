package secondchance

import (
	"encoding/binary"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/netutil/link"
	namespace "github.com/herald-vip/herald/testenv/netns"
	"github.com/herald-vip/herald/testenv/nettest"
	"github.com/herald-vip/herald/testenv/wait"
)

// Connections outlive whatever the router does as long as their owner lives: a fourth node announces, the first is
// drained, the server of the second dies. In IPv4 and IPv6; without this package they do not.
func TestEstablishedGoOn(t *testing.T) {
	l := newLab(t, 4)
	l.routes(1, 2, 3)
	conns := l.connect(l.client, 300)
	l.routes(1, 2, 3, 4)
	if _, lost := use(conns); len(lost) == 0 {
		t.Fatal("without this package a fourth announces, and nothing is lost")
	} else {
		t.Logf("without this package a fourth announces: lost %v of %v", owners(lost), owners(conns))
	}
	// What nodes believe in still would take the packets of new connections from the same ports.
	for _, m := range l.nodes {
		m.forget()
	}

	l.run()
	l.routes(1, 2, 3)
	conns = l.connect(l.client, 300)
	if got := owners(conns); len(got) != 3 {
		t.Fatalf("the router does not spread: %v", got)
	}
	stay := func(after string) {
		t.Helper()
		work, lost := use(conns)
		if len(lost) > 0 {
			t.Errorf("after %s: lost %v of %v", after, owners(lost), owners(conns))
		}
		conns = work
	}
	stay("nothing")
	l.routes(1, 2, 3, 4)
	stay("a fourth announces")
	if got := l.passed(); got == 0 {
		t.Error("the router has moved nothing")
	}

	l.node(1).is(leaving)
	fresh := l.connect(l.client, 100)
	if got := owners(fresh); got["m1"] > 0 || len(got) != 3 {
		t.Errorf("while m1 is leaving new connections come to %v", got)
	}
	if got := owners(l.connect(l.node(1).Host, 2)); got["m1"] != 2 {
		t.Errorf("m1 has its own clients' connections come to %v", got)
	}
	conns = append(conns, fresh...)
	stay("m1 is leaving")
	l.routes(2, 3, 4)
	stay("m1 is drained")

	l.node(2).die()
	l.node(2).unbind()
	l.node(2).is(leaving)
	fresh = l.connect(l.client, 100)
	if got := owners(fresh); got["m2"] > 0 {
		t.Errorf("while m2 is gone new connections come to %v", got)
	}
	l.routes(3, 4)
	work, lost := use(append(conns, fresh...))
	if got := owners(lost); got["m2"] != len(lost) || len(lost) == 0 {
		t.Errorf("as the server of m2 has died, connections of %v are lost", got)
	}
	conns = work
	stay("m2 is gone")

	for _, m := range l.nodes {
		m.stop()
		m.Must(m.chance.remove())
		if links, err := m.NL.LinkList(); err != nil || len(links) != 2 {
			t.Errorf("%s has the links %v, %v", m.name, links, err)
		}
	}
	if _, lost := use(conns); owners(lost)["m1"] != owners(conns)["m1"] {
		t.Errorf("when all is removed, %v are lost of %v", owners(lost), owners(conns))
	}
}

// A client begins anew from a port whose last connection the server believes in still: neither node takes what is
// the other's.
func TestSamePort(t *testing.T) {
	l := newLab(t, 2)
	l.run()
	for i, vip := range vipAddrs() {
		l.node(1).is(serving)
		l.routes(1)
		before, err := dialBy(l.client, vip, 30000+i)
		l.router.Must(err)
		client := l.router.Link("port0")
		l.router.Must(l.router.NL.LinkSetDown(client)) // what ends it is lost
		l.router.Must(before.Conn.(*net.TCPConn).SetLinger(0))
		l.router.Must(before.Close())
		l.router.Must(l.router.NL.LinkSetUp(client))
		l.router.Add("port0", "fd00:0::254/64")
		l.node(1).is(leaving)
		c, err := dialBy(l.client, vip, 30000+i)
		l.router.Must(err)
		if !c.does("anything") {
			t.Errorf("a connection to %s does not work", vip)
		}
		l.router.Must(c.Close())
	}
}

// A client begins anew, with another node, from a port whose last connection has just been with this one: that this one has seen a SYN
// from there does not make the next connection its own.
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

// What nobody owns comes to each node once, and not at all to one that is somebody else than the sender believes.
func TestStrays(t *testing.T) {
	l := newLab(t, 3)
	l.run()
	l.routes(1)
	visits := func(want ...uint64) {
		t.Helper()
		var got []uint64
		wait.Until(t, "all packets have ended", func() bool {
			got = nil
			for _, m := range l.nodes {
				c := m.counts()
				got = append(got, c.Passed+c.Answered+c.Refused)
			}
			return slices.Equal(got, want)
		})
	}
	const n = 50
	l.strays(0, n)
	visits(2*n, 2*n, 2*n)
	if c := l.node(3).counts(); c.Answered != 2*n {
		t.Errorf("of what nobody owns the last node answers %v", c)
	}

	believes := func(i int, others ...Member) {
		w := l.node(i).wanted
		w.Others = others
		l.node(i).believes(w)
	}
	m1, m2, m3 := l.node(1), l.node(2), l.node(3)
	// Nodes that do not agree. m1 takes m3's address for m2's.
	believes(1, Member{Name: "m2", Number: m2.member.Number, Addr: m3.member.Addr})
	before := m3.received()
	l.strays(n, n)
	wait.Until(t, "packets come to m3", func() bool { return m3.received() >= before+2*n })
	visits(4*n, 2*n, 2*n)
	// m2 knows m1 only: it would be the origin.
	believes(1, m2.member, m3.member)
	believes(2, m1.member)
	l.strays(2*n, n)
	visits(6*n, 4*n, 2*n)
	// m2 does not know m1, and takes nothing from it.
	believes(2, m3.member)
	before = m2.arrived()
	l.strays(3*n, n)
	visits(8*n, 4*n, 2*n)
	if after := m2.arrived(); after != before {
		t.Errorf("m2 takes %d packets of a tunnel from who is no member", after-before)
	}
}

// However many strays come, no more are passed on than the limits let. A connection counts once, whatever it sends.
func TestFlood(t *testing.T) {
	l := newLab(t, 3)
	const burst, n = 100, 2000
	for _, m := range l.nodes {
		m.tables.limits.source = limit{1, burst}
	}
	l.run()
	l.routes(1)
	conns := l.connect(l.client, 10)
	l.routes(2)
	for range 2 * burst {
		if _, lost := use(conns); len(lost) > 0 {
			t.Fatalf("lost %v", owners(lost))
		}
	}

	l.routes(1)
	begun := time.Now()
	l.strays(0, n)
	wait.Until(t, "all packets have come", func() bool { c := l.node(1).counts(); return c.Passed+c.Refused == 2*n })
	passed, most := l.node(1).counts().Passed, 2*(burst+1+uint64(time.Since(begun)/time.Second)) // of a source in each family
	if passed < 2*burst || passed > most {
		t.Errorf("m1 passes %d on, of each source %d may be", passed, burst)
	}
	if c := l.node(3).counts(); c.Answered > most {
		t.Errorf("m3 answers %+v, at most %d may come there", c, most)
	}
}

// The mark that a packet has had on its way leads it by no rule at its owner.
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

// When nobody renews it nothing is passed on any more, and a successor takes over.
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
	wait.Until(t, "nothing is passed on", func() bool {
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
		t.Errorf("it still passes on: %d work, %+v, before it was %+v", len(work), m2.counts(), before)
	}
	m2.start()
	wait.Until(t, "a member that answers", func() bool { return len(m2.chance.Status().To) > 0 })
	if _, lost := use(conns[10:]); len(lost) > 0 {
		t.Errorf("with a successor %v are lost", owners(lost))
	}
}

// A node where the VIP is not bound, as its server has never been well, passes new connections on.
func TestUnbound(t *testing.T) {
	l := newLab(t, 2)
	l.node(2).unbind()
	l.run()
	l.routes(1, 2)
	if got := owners(l.connect(l.client, 100)); got["m1"] != 100 {
		t.Errorf("connections come to %v", got)
	}
}

// Where a filter stands between members nothing vanishes: what comes to the wrong one is answered as without this package.
func TestFiltered(t *testing.T) {
	l := newLab(t, 2)
	m2 := l.node(2)
	m2.nft(`table inet filter {
		chain p { type filter hook prerouting priority -310; udp dport 7947 drop; }
	}`)
	l.start()
	l.routes(1)
	conns := l.connect(l.client, 20)
	l.routes(2)
	if work, _ := use(conns[:10]); len(work) > 0 {
		t.Errorf("%d connections go on", len(work))
	}
	if c := m2.counts(); c.Passed > 0 {
		t.Errorf("m2 passes on: %+v", c)
	}
	if is := m2.chance.Status(); !is.Able || len(is.To) > 0 || !strings.Contains(is.Lacks, "no answer by the tunnel from m1:") {
		t.Errorf("status of m2: %+v", is)
	}
	m2.nft("delete table inet filter")
	for _, m := range l.nodes {
		m.believes(m.wanted) // sooner than by and by
	}
	wait.Until(t, "a member that answers", func() bool { return len(m2.chance.Status().To) > 0 })
	if _, lost := use(conns[10:]); len(lost) > 0 {
		t.Errorf("without the filter %d are lost", len(lost))
	}
}

// A connection whose destination the node translates, as to a pod, is its own, though it has no socket for it.
func TestTranslated(t *testing.T) {
	l := newLab(t, 2)
	m1 := l.node(1)
	m1.die()
	m1.serveAt(7000)
	m1.nft(`table inet t { chain p { type nat hook prerouting priority -100;
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
			t.Errorf("m1 does not know its own: %+v", got)
		}
		l.routes(2) // and then
	}
	if l.node(2).counts().Passed == 0 {
		t.Error("nothing was passed on")
	}
}

// What is long comes to a connection that has moved, though the tunnel makes it longer; and the owner learns what
// the path to the client can take, though routers tell another node. Members may reach each other by either family.
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
			t.Errorf("m2 keeps packets that are not its own: %+v", got)
		}
	}
}

// The answer to a SYN cookie is the server's, even when it cannot remember to whom it has given one.
func TestCookies(t *testing.T) {
	for name, memory := range map[string]uint32{"remembered": 1000, "memory full": 4} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, 2)
			for _, m := range l.nodes {
				m.tables.limits.memory = memory
				sysctl(m.Host, "ipv4/tcp_syncookies", "2")
			}
			l.run()
			l.routes(1, 2)
			if _, lost := use(l.connect(l.client, 100)); len(lost) > 0 {
				t.Errorf("lost %v", owners(lost))
			}
			// Another node of this kernel would take the cookie for its own.
			if got := l.passed(); got > 0 {
				t.Errorf("passed %d on of what has not moved", got)
			}
		})
	}
}

// When somebody flushes nftables they are made anew, before anything would be renewed.
func TestFlushed(t *testing.T) {
	l := newLab(t, 2)
	for _, m := range l.nodes {
		m.tables.lasts = time.Hour
	}
	l.run()
	m2 := l.node(2)
	l.routes(1)
	conns := l.connect(l.client, 20)
	m2.chance.calling.Lock()
	m2.Must(m2.tables.Batch(func(c *nftables.Conn) error { c.FlushRuleset(); return nil }))
	m2.chance.calling.Unlock()
	wait.Until(t, "its counters are there", func() bool {
		m2.chance.calling.Lock()
		defer m2.chance.calling.Unlock()
		var objects []nftables.Obj
		m2.Must(m2.tables.Do(func(c *nftables.Conn) (err error) { objects, err = c.GetObjects(families()[0].in()); return err }))
		return len(objects) == 3
	})
	l.routes(2)
	if _, lost := use(conns); len(lost) > 0 {
		t.Errorf("lost %v", owners(lost))
	}
}

// What others remove is made anew with what is renewed.
func TestMended(t *testing.T) {
	l := newLab(t, 2)
	l.run()
	m1, m2 := l.node(1), l.node(2)
	for what, remove := range map[string]func(){
		"nothing":                   func() {},
		"the link of who passes on": func() { m2.Must(m2.NL.LinkDel(m2.Link("herald-tunnel"))) },
		"the link of the owner":     func() { m1.Must(m1.NL.LinkDel(m1.Link("herald-tunnel"))) },
		"rp_filter": func() {
			sysctl(m1.Host, "ipv4/conf/all/rp_filter", "1")
			sysctl(m1.Host, "ipv4/conf/herald-tunnel/rp_filter", "0")
		},
	} {
		l.routes(1)
		conns := l.connect(l.client, 20)
		remove()
		m1.believes(m1.wanted)
		m2.believes(m2.wanted)
		l.routes(2)
		if _, lost := use(conns); len(lost) > 0 {
			t.Errorf("without %s: lost %v", what, owners(lost))
		}
	}
}

// A VIP that a node does not have, or has no more, is no obstacle between those that have it, nor to what it still serves.
func TestUnknown(t *testing.T) {
	l := newLab(t, 3)
	l.run()
	m2 := l.node(2)
	l.routes(2, 3)
	conns := l.connect(l.client, 100)
	other := map[netip.Addr]bool{netip.MustParseAddr("10.99.0.11"): false}
	m2.believes(Wanted{Self: m2.member, Others: m2.wanted.Others, Links: m2.wanted.Links, VIPs: other})
	l.routes(1)
	if _, lost := use(conns); len(lost) > 0 || m2.counts().Passed == 0 {
		t.Errorf("lost %v of %v; m2 %+v", owners(lost), owners(conns), m2.counts())
	}
	m2.unbind()
	_, lost := use(conns)
	if got := owners(lost); got["m3"] > 0 {
		t.Errorf("with the VIP gone from m2: lost %v", got)
	}
	fresh := l.connect(l.client, 20)
	if got := owners(fresh); got["m1"] != 20 {
		t.Errorf("new connections come to %v", got)
	}
}

// A connection whose server is a pod of the node goes on, too, when its packets come by the tunnel.
func TestPod(t *testing.T) {
	l := newLab(t, 2)
	m1 := l.node(1)
	m1.die()
	pod := &machine{Host: m1.pod(), name: "pod", open: make(map[net.Conn]bool)}
	pod.serve()
	m1.nft(`table ip t { chain p { type nat hook prerouting priority -100; ip daddr 10.99.0.10 tcp dport 6443 dnat to 10.244.0.2:6443; }
		}`)
	l.run()
	l.routes(1)
	var conns []*conn
	for range 20 {
		c, err := dial(l.client, vipAddrs()[0])
		m1.Must(err)
		t.Cleanup(func() { _ = c.Close() })
		conns = append(conns, c)
	}
	l.routes(2)
	if _, lost := use(conns); len(lost) > 0 || l.node(2).counts().Passed == 0 {
		t.Errorf("lost %d of %d", len(lost), len(conns))
	}
}

// A server at the VIP itself owns all connections, as the kernel sees it: then none are passed on, and it is said why.
func TestListener(t *testing.T) {
	l := newLab(t, 2)
	m1 := l.node(1)
	m1.die()
	m1.Must(namespace.In(m1.NS, func() (err error) {
		m1.listener, err = net.Listen("tcp", "10.99.0.10:6443")
		return err
	}))
	c := newChance(slog.New(slog.DiscardHandler), inside{m1.NS, link.Tunnel{}}, tablesInside{m1.tables, m1.NS}, lasts, nil)
	c.Set(Wanted{Self: m1.member, Links: []string{"eth0"}, VIPs: map[netip.Addr]bool{vipAddrs()[0]: false}})
	if err := c.apply(); err == nil || !strings.Contains(err.Error(), "10.99.0.10:6443") || c.Status().Able {
		t.Errorf("%v, %+v", err, c.Status())
	}
	if links, err := m1.NL.LinkList(); err != nil || len(links) != 2 {
		t.Errorf("there are links %v, %v", links, err)
	}
}

// Nothing comes to the tunnel's port but from a member to this node's own address.
func TestOutsiders(t *testing.T) {
	l := newLab(t, 2)
	m1, m2, pod := l.node(1), l.node(2), l.node(1).pod()
	pod.Add("lo", "10.0.2.1/32") // it pretends to be m2
	for _, name := range []string{"all", "pod"} {
		sysctl(m1.Host, "ipv4/conf/"+name+"/rp_filter", "2")
	}
	l.run()
	m1.Add("eth0", "10.0.1.9/24") // another address of the node
	guarded, open := m1.hear("[fd00:1::1]:7947"), m1.hear(":9000")
	before := m1.arrived()
	frame := inTunnel(append(append([]byte{6 << 4, 0, 0, 0, 0, 0, 59, 64}, link.TunnelAddr(200, false).AsSlice()...), vipAddrs()[1].AsSlice()...))
	for _, tt := range []struct {
		from *nettest.Host
		at   string
		to   []string
	}{
		{l.client, "", []string{"10.0.1.1:7947", "10.0.1.9:7947", "[fd00:1::1]:7947"}},
		{m2.Host, "", []string{"10.0.1.9:7947", "[fd00:1::1]:7947"}},
		{m1.Host, "", []string{"10.0.1.1:7947", "[fd00:1::1]:7947"}},
		{pod, "10.0.2.1", []string{"10.0.1.1:7947"}},
	} {
		for _, to := range append(tt.to, "10.0.1.1:9000") { // where it comes to, after all others
			send(tt.from, tt.at, to, frame)
		}
		if _, _, err := open.ReadFrom(make([]byte, 100)); err != nil {
			t.Fatal(err)
		}
	}
	m1.Must(guarded.SetReadDeadline(time.Now()))
	if _, from, err := guarded.ReadFrom(make([]byte, 100)); err == nil {
		t.Errorf("the tunnel's port has heard %s", from)
	}
	if got := m1.arrived() - before; got > 0 {
		t.Errorf("%d packets have come by the tunnel from others than members", got)
	}
	send(m2.Host, "", "10.0.1.1:7947", frame)
	wait.Until(t, "a member's packet comes by the tunnel", func() bool { return m1.arrived() == before+1 })
}

// What a member sends by the tunnel comes to connections that there are, and to no server.
func TestServersAreNotReached(t *testing.T) {
	l := newLab(t, 2)
	l.run()
	m1, m2 := l.node(1), l.node(2)
	server := m1.hear("10.0.1.1:5000")
	m1.nft(`table inet answered { counter answers {}
		chain o { type filter hook output priority 0; ip daddr 10.0.0.1 tcp sport 6443 counter name answers; }
	}`)
	before := m1.arrived()
	v4 := func(protocol byte, payload ...byte) []byte {
		p := []byte{0x45, 0, 0, byte(20 + len(payload)), 0, 1, 0, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 1, 1}
		binary.BigEndian.PutUint16(p[10:], checksum(p))
		return append(p, payload...)
	}
	syn := []byte{0x30, 0, port >> 8, port & 0xff, 0, 0, 0, 1, 0, 0, 0, 0, 5 << 4, 2, 255, 255, 0, 0, 0, 0}
	binary.BigEndian.PutUint16(syn[16:], checksum(append([]byte{10, 0, 0, 1, 10, 0, 1, 1, 0, 6, 0, byte(len(syn))}, syn...)))
	datagram := []byte{0x20, 0, 5000 >> 8, 5000 & 0xff, 0, 9, 0, 0, '!'}
	for _, frame := range [][]byte{v4(17, datagram...), v4(6, syn...)} {
		send(m2.Host, "", "10.0.1.1:7947", inTunnel(frame))
	}
	wait.Until(t, "both come by the tunnel", func() bool { return m1.arrived() >= before+2 })
	send(l.client, "", "10.0.1.1:5000", []byte("?")) // is what is heard first
	b := make([]byte, 9)
	n, _, err := server.ReadFrom(b)
	if m1.Must(err); string(b[:n]) != "?" {
		t.Errorf("a server of UDP has heard %q by the tunnel", b[:n])
	}
	if n := m1.counter("answered"); n > 0 {
		t.Errorf("a server of TCP has answered %d times what came by the tunnel", n)
	}
}

// checksum is that of the Internet (RFC 1071).
func checksum(b []byte) uint16 {
	var sum uint32
	for i := 0; i+1 < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

// inTunnel is a packet as the tunnel has it, from m2 to m1, of which m1 is the last to be visited.
func inTunnel(packet []byte) []byte {
	of := []byte{0x86, 0xdd}
	if packet[0]>>4 == 4 {
		of = []byte{8, 0}
	}
	return append(append([]byte{0x88, 0, 0, 200, 0, 0, 1, 0, 2, 0x68, 0, 0, 0, 100, 2, 0x68, 0, 0, 0, 200}, of...), packet...)
}

// send sends a datagram, from an address of the host if one is given.
func send(from *nettest.Host, at, to string, b []byte) {
	from.T.Helper()
	from.Must(namespace.In(from.NS, func() error {
		d := net.Dialer{LocalAddr: &net.UDPAddr{IP: net.ParseIP(at)}}
		c, err := d.Dial("udp", to)
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = c.Write(b)
		return err
	}))
}

// hear listens for datagrams.
func (m *machine) hear(at string) net.PacketConn {
	m.T.Helper()
	var c net.PacketConn
	m.Must(namespace.In(m.NS, func() (err error) { c, err = net.ListenPacket("udp", at); return err }))
	m.T.Cleanup(func() { _ = c.Close() })
	m.Must(c.SetDeadline(time.Now().Add(patience)))
	return c
}

// pod is one of the machine's, at 10.244.0.2.
func (m *machine) pod() *nettest.Host {
	m.T.Helper()
	pod := nettest.NewHost(m.T)
	m.Must(m.NL.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "pod"}, PeerName: "eth0", PeerNamespace: netlink.NsFd(int(pod.NS))}))
	m.SetUp("pod")
	m.Add("pod", "10.244.0.1/24")
	pod.SetUp("eth0")
	pod.Add("eth0", "10.244.0.2/24")
	pod.Route("0.0.0.0/0", "eth0", "10.244.0.1")
	sysctl(m.Host, "ipv4/ip_forward", "1")
	return pod
}

// What a pod asks for elsewhere, with the VIP as its address there, comes back to it.
func TestEgress(t *testing.T) {
	l := newLab(t, 2)
	m1 := l.node(1)
	pod := m1.pod()
	m1.nft(`table ip t { chain p { type nat hook postrouting priority 100; ip saddr 10.244.0.2 snat to 10.99.0.10; }
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

// An ICMP error about an answer by UDP is for the node whose server has sent it: nothing else learns the path's MTU.
func TestErrorAboutUDP(t *testing.T) {
	l := newLab(t, 2)
	m1 := l.node(1)
	server := m1.hear("0.0.0.0:53").(*net.UDPConn)
	l.run()
	l.routes(1)
	l.router.Must(l.router.NL.LinkSetMTU(l.router.Link("port0"), 1300))
	var client net.Conn
	m1.Must(namespace.In(l.client.NS, func() (err error) { client, err = net.Dial("udp4", "10.99.0.10:53"); return err }))
	defer client.Close()
	_, err := client.Write([]byte("?"))
	m1.Must(err)
	_, from, err := server.ReadFromUDP(make([]byte, 9))
	m1.Must(err)
	wait.Until(t, "m1 sends what the path takes", func() bool {
		vip := unix.PktInfo4(&unix.Inet4Pktinfo{Spec_dst: vipAddrs()[0].As4()})
		_, _, err := server.WriteMsgUDP(make([]byte, 1400), vip, from)
		m1.Must(err)
		_ = client.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		_, err = client.Read(make([]byte, 2000))
		return err == nil
	})
}

// Where so many strays have been passed on that there is no place to remember more, connections go on nevertheless.
func TestMemoryFull(t *testing.T) {
	l := newLab(t, 2)
	for _, m := range l.nodes {
		m.tables.limits.memory = 500
	}
	l.run()
	l.routes(1)
	conns := l.connect(l.client, 20)
	l.routes(2)
	l.strays(0, 600)
	if _, lost := use(conns); len(lost) > 0 {
		t.Errorf("lost %d of %d; m2 %+v", len(lost), len(conns), l.node(2).counts())
	}
}

// strays sends n segments in each family that are of no connection, from ports of their own.
func (l *lab) strays(from, n int) {
	l.t.Helper()
	for _, vip := range vipAddrs() {
		var c net.Conn
		l.router.Must(namespace.In(l.client.NS, func() (err error) {
			network := map[bool]string{true: "ip4:tcp", false: "ip6:tcp"}[vip.Is4()]
			c, err = net.Dial(network, vip.String())
			return err
		}))
		for i := range n {
			const ack = 0x10
			segment := binary.BigEndian.AppendUint16(nil, uint16(20000+from+i))
			segment = binary.BigEndian.AppendUint16(segment, port)
			segment = append(segment, 1, 2, 3, 4, 5, 6, 7, 8, 5<<4, ack, 1, 0, 0, 0, 0, 0) // nobody looks at the checksum so far
			_, err := c.Write(segment)
			l.router.Must(err)
		}
		l.router.Must(c.Close())
	}
}

// received is how many packets have come by the tunnel, greetings and what is for another MAC among them.
func (m *machine) received() uint64 {
	m.T.Helper()
	return m.Link("herald-tunnel").Attrs().Statistics.RxPackets
}

// arrived is how many packets for this node have come by the tunnel, without greetings.
func (m *machine) arrived() uint64 { return m.counter("seen") }

// counter is the one that a table has.
func (m *machine) counter(table string) (n uint64) {
	m.T.Helper()
	in := &nftables.Table{Name: table, Family: nftables.TableFamilyINet}
	m.chance.calling.Lock()
	defer m.chance.calling.Unlock()
	m.Must(m.tables.Do(func(c *nftables.Conn) error {
		found, err := c.GetObjects(in)
		if err == nil && len(found) == 1 {
			n = found[0].(*nftables.CounterObj).Packets
		}
		return err
	}))
	return n
}

func (m *machine) nft(rules string) {
	m.T.Helper()
	m.In(func() {
		nft := exec.Command("nft", "-f", "-")
		nft.Stdin = strings.NewReader(rules)
		if out, err := nft.CombinedOutput(); err != nil {
			m.T.Fatalf("nft: %v: %s", err, out)
		}
	})
}

func (m *machine) counts() Counts {
	m.T.Helper()
	m.chance.calling.Lock()
	defer m.chance.calling.Unlock()
	c, err := m.tables.counts()
	m.Must(err)
	return c
}

// passed is how many packets nodes have passed on.
func (l *lab) passed() (sum uint64) {
	l.t.Helper()
	for _, m := range l.nodes {
		sum += m.counts().Passed
	}
	return sum
}
