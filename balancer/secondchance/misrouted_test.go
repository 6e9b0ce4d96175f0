package secondchance

import (
	"encoding/binary"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"

	namespace "github.com/herald-vip/herald/testenv/netns"
	"github.com/herald-vip/herald/testenv/nettest"
	"github.com/herald-vip/herald/testenv/wait"
)

// Packets without an owning member visit each node once. A node drops packets that are meant for another member at its address.
func TestMisrouted(t *testing.T) {
	l := newLab(t, 3)
	l.run()
	l.routes(1)
	visits := func(want ...uint64) {
		t.Helper()
		var got []uint64
		wait.Until(t, "all packets are counted", func() bool {
			got = nil
			for _, m := range l.nodes {
				c := m.counts()
				got = append(got, c.Passed+c.Answered+c.Refused)
			}
			return slices.Equal(got, want)
		})
	}
	const n = 50
	l.sendMisrouted(0, n)
	visits(2*n, 2*n, 2*n)
	if c := l.node(3).counts(); c.Answered != 2*n {
		t.Errorf("the last node of the ring has answered %v", c)
	}

	setOthers := func(i int, others ...Member) {
		w := l.node(i).wanted
		w.Others = others
		l.node(i).set(w)
	}
	m1, m2, m3 := l.node(1), l.node(2), l.node(3)
	// The nodes disagree: m1 takes m3's address for m2's.
	setOthers(1, Member{Name: "m2", Number: m2.member.Number, Addr: m3.member.Addr})
	before := m3.received()
	l.sendMisrouted(n, n)
	wait.Until(t, "packets come to m3", func() bool { return m3.received() >= before+2*n })
	visits(4*n, 2*n, 2*n)
	// m2 knows only m1, the ingress member.
	setOthers(1, m2.member, m3.member)
	setOthers(2, m1.member)
	l.sendMisrouted(2*n, n)
	visits(6*n, 4*n, 2*n)
	// m2 does not know m1, and drops its packets.
	setOthers(2, m3.member)
	before = m2.arrived()
	l.sendMisrouted(3*n, n)
	visits(8*n, 4*n, 2*n)
	if after := m2.arrived(); after != before {
		t.Errorf("m2 receives %d tunnel packets from an address that is no member's", after-before)
	}
}

// A flood of misrouted packets is passed on up to the limits. Each connection counts once.
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
	l.sendMisrouted(0, n)
	wait.Until(t, "all packets are counted", func() bool { c := l.node(1).counts(); return c.Passed+c.Refused == 2*n })
	passed, most := l.node(1).counts().Passed, 2*(burst+1+uint64(time.Since(begun)/time.Second)) // per client in each family
	if passed < 2*burst || passed > most {
		t.Errorf("m1 passes %d packets on, the limit is %d per client", passed, burst)
	}
	if c := l.node(3).counts(); c.Answered > most {
		t.Errorf("m3 answers %+v, at most %d packets may reach it", c, most)
	}
}

// With a filter between members no packet is lost: misrouted packets are answered as without this package.
func TestFiltered(t *testing.T) {
	l := newLab(t, 2)
	m2 := l.node(2)
	m2.NFT(`table inet filter {
		chain p { type filter hook prerouting priority -310; udp dport 7947 drop; }
	}`)
	l.start()
	l.routes(1)
	conns := l.connect(l.client, 20)
	l.routes(2)
	if work, _ := use(conns[:10]); len(work) > 0 {
		t.Errorf("%d connections work", len(work))
	}
	if c := m2.counts(); c.Passed > 0 {
		t.Errorf("m2 passes packets on: %+v", c)
	}
	if st := m2.chance.Status(); !st.Able || len(st.To) > 0 || !strings.Contains(st.Lacks, "no answer by the tunnel from m1:") {
		t.Errorf("status of m2: %+v", st)
	}
	m2.NFT("delete table inet filter")
	for _, m := range l.nodes {
		m.set(m.wanted) // without waiting for the renewal
	}
	wait.Until(t, "a member that answers", func() bool { return len(m2.chance.Status().To) > 0 })
	if _, lost := use(conns[10:]); len(lost) > 0 {
		t.Errorf("without the filter: lost %d", len(lost))
	}
}

// A node without the VIP in its configuration still passes its packets on between other members, and keeps its own connections.
func TestUnknown(t *testing.T) {
	l := newLab(t, 3)
	l.run()
	m2 := l.node(2)
	l.routes(2, 3)
	conns := l.connect(l.client, 100)
	other := map[netip.Addr]bool{netip.MustParseAddr("10.99.0.11"): false}
	m2.set(Wanted{Self: m2.member, Others: m2.wanted.Others, Links: m2.wanted.Links, VIPs: other})
	l.routes(1)
	if _, lost := use(conns); len(lost) > 0 || m2.counts().Passed == 0 {
		t.Errorf("lost %v of %v; m2 %+v", owners(lost), owners(conns), m2.counts())
	}
	m2.unbind()
	_, lost := use(conns)
	if got := owners(lost); got["m3"] > 0 {
		t.Errorf("with the VIP unbound on m2: lost %v", got)
	}
	fresh := l.connect(l.client, 20)
	if got := owners(fresh); got["m1"] != 20 {
		t.Errorf("new connections go to %v", got)
	}
}

// A connection to a pod of the node survives when its packets arrive by the tunnel.
func TestPod(t *testing.T) {
	l := newLab(t, 2)
	m1 := l.node(1)
	m1.die()
	pod := &machine{Host: m1.pod(), name: "pod", open: make(map[net.Conn]bool)}
	pod.serve()
	m1.NFT(`table ip t { chain p { type nat hook prerouting priority -100; ip daddr 10.99.0.10 tcp dport 6443 dnat to 10.244.0.2:6443; }
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

// The tunnel's port receives only packets from members to this node's own address.
func TestOutsiders(t *testing.T) {
	l := newLab(t, 2)
	m1, m2, pod := l.node(1), l.node(2), l.node(1).pod()
	pod.Add("lo", "10.0.2.1/32") // it pretends to be m2
	for _, name := range []string{"all", "pod"} {
		m1.Sysctl("ipv4/conf/"+name+"/rp_filter", "2")
	}
	l.run()
	m1.Add("eth0", "10.0.1.9/24") // another address of the node
	guarded, open := m1.listen("[fd00:1::1]:7947"), m1.listen(":9000")
	before := m1.arrived()
	frame := inTunnel(append(append([]byte{6 << 4, 0, 0, 0, 0, 0, 59, 64}, tunnelAddr(200, false).AsSlice()...), vipAddrs()[1].AsSlice()...))
	for _, tt := range []struct {
		from *nettest.Host
		at   string
		dst  []string
	}{
		{l.client, "", []string{"10.0.1.1:7947", "10.0.1.9:7947", "[fd00:1::1]:7947"}},
		{m2.Host, "", []string{"10.0.1.9:7947", "[fd00:1::1]:7947"}},
		{m1.Host, "", []string{"10.0.1.1:7947", "[fd00:1::1]:7947"}},
		{pod, "10.0.2.1", []string{"10.0.1.1:7947"}},
	} {
		for _, dst := range append(tt.dst, "10.0.1.1:9000") { // the last one is received, after all others
			send(tt.from, tt.at, dst, frame)
		}
		if _, _, err := open.ReadFrom(make([]byte, 100)); err != nil {
			t.Fatal(err)
		}
	}
	m1.Must(guarded.SetReadDeadline(time.Now()))
	if _, from, err := guarded.ReadFrom(make([]byte, 100)); err == nil {
		t.Errorf("the tunnel's port received a packet from %s", from)
	}
	if got := m1.arrived() - before; got > 0 {
		t.Errorf("%d tunnel packets received that are not from members", got)
	}
	send(m2.Host, "", "10.0.1.1:7947", frame)
	wait.Until(t, "a member's packet arrives by the tunnel", func() bool { return m1.arrived() == before+1 })
}

// Packets from the tunnel reach established connections, and no server that begins one.
func TestServersAreNotReached(t *testing.T) {
	l := newLab(t, 2)
	l.run()
	m1, m2 := l.node(1), l.node(2)
	server := m1.listen("10.0.1.1:5000")
	m1.NFT(`table inet answered { counter answers {}
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
	wait.Until(t, "both arrive by the tunnel", func() bool { return m1.arrived() >= before+2 })
	send(l.client, "", "10.0.1.1:5000", []byte("?")) // is received first
	b := make([]byte, 9)
	n, _, err := server.ReadFrom(b)
	if m1.Must(err); string(b[:n]) != "?" {
		t.Errorf("a UDP server received %q by the tunnel", b[:n])
	}
	if n := m1.counter("answered"); n > 0 {
		t.Errorf("a TCP server answered %d packets of the tunnel", n)
	}
}

// checksum returns the Internet checksum (RFC 1071).
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

// inTunnel returns a VXLAN packet from m2 to m1 with a packet inside. m1 is the last node that it visits.
func inTunnel(packet []byte) []byte {
	etherType := []byte{0x86, 0xdd}
	if packet[0]>>4 == 4 {
		etherType = []byte{8, 0}
	}
	return append(append([]byte{0x88, 0, 0, 200, 0, 0, 1, 0, 2, 0x68, 0, 0, 0, 100, 2, 0x68, 0, 0, 0, 200}, etherType...), packet...)
}

// send sends a datagram from a host, with a source address unless at is empty.
func send(from *nettest.Host, at, dst string, b []byte) {
	from.T.Helper()
	from.Must(namespace.In(from.NS, func() error {
		d := net.Dialer{LocalAddr: &net.UDPAddr{IP: net.ParseIP(at)}}
		c, err := d.Dial("udp", dst)
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = c.Write(b)
		return err
	}))
}

// listen listens for datagrams.
func (m *machine) listen(at string) net.PacketConn {
	m.T.Helper()
	var c net.PacketConn
	m.Must(namespace.In(m.NS, func() (err error) { c, err = net.ListenPacket("udp", at); return err }))
	m.T.Cleanup(func() { _ = c.Close() })
	m.Must(c.SetDeadline(time.Now().Add(patience)))
	return c
}

// An ICMP error about a UDP answer reaches the node that sent the answer, which thereby learns the path MTU.
func TestErrorAboutUDP(t *testing.T) {
	l := newLab(t, 2)
	m1 := l.node(1)
	server := m1.listen("0.0.0.0:53").(*net.UDPConn)
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
	wait.Until(t, "m1 sends packets of the path MTU", func() bool {
		vip := unix.PktInfo4(&unix.Inet4Pktinfo{Spec_dst: vipAddrs()[0].As4()})
		_, _, err := server.WriteMsgUDP(make([]byte, 1400), vip, from)
		m1.Must(err)
		_ = client.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		_, err = client.Read(make([]byte, 2000))
		return err == nil
	})
}

// Connections survive when the set of moved connections is full.
func TestMemoryFull(t *testing.T) {
	l := newLab(t, 2)
	for _, m := range l.nodes {
		m.tables.limits.memory = 500
	}
	l.run()
	l.routes(1)
	conns := l.connect(l.client, 20)
	l.routes(2)
	l.sendMisrouted(0, 600)
	if _, lost := use(conns); len(lost) > 0 {
		t.Errorf("lost %d of %d; m2 %+v", len(lost), len(conns), l.node(2).counts())
	}
}

// sendMisrouted sends n segments in each family, each from its own port and of no connection.
func (l *lab) sendMisrouted(from, n int) {
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
			segment = append(segment, 1, 2, 3, 4, 5, 6, 7, 8, 5<<4, ack, 1, 0, 0, 0, 0, 0) // no one checks the checksum on the way
			_, err := c.Write(segment)
			l.router.Must(err)
		}
		l.router.Must(c.Close())
	}
}

// received returns how many packets arrived by the tunnel, with probes and packets for another MAC.
func (m *machine) received() uint64 {
	m.T.Helper()
	return m.Link("herald-tunnel").Attrs().Statistics.RxPackets
}

// arrived returns how many packets for this node arrived by the tunnel, without probes.
func (m *machine) arrived() uint64 { return m.counter("seen") }

// counter reads the only counter of a table.
func (m *machine) counter(table string) (n uint64) {
	m.T.Helper()
	in := &nftables.Table{Name: table, Family: nftables.TableFamilyINet}
	m.chance.keeper.Lock()
	defer m.chance.keeper.Unlock()
	m.Must(m.tables.Do(func(c *nftables.Conn) error {
		found, err := c.GetObjects(in)
		if err == nil && len(found) == 1 {
			n = found[0].(*nftables.CounterObj).Packets
		}
		return err
	}))
	return n
}
