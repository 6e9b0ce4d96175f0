package secondchance

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"go.uber.org/goleak"

	"github.com/herald-vip/herald/netutil/ruleset"
	namespace "github.com/herald-vip/herald/testenv/netns"
	"github.com/herald-vip/herald/testenv/nettest"
	"github.com/herald-vip/herald/testenv/wait"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	port = 6443

	noDAD = "ipv6/conf/default/accept_dad" // addresses of new links are usable at once

	// patience is how long a test waits for an event that should happen at once.
	patience = 15 * time.Second
)

// vipAddrs returns the addresses of the VIP.
func vipAddrs() []netip.Addr {
	return []netip.Addr{netip.MustParseAddr("10.99.0.10"), netip.MustParseAddr("fd00:99::10")}
}

// lab is a client behind a router that spreads connections over nodes by addresses and ports (ECMP). Each node
// has its own link.
type lab struct {
	t              testing.TB
	client, router *nettest.Host
	nodes          []*machine
}

// machine is a node that serves the VIP.
type machine struct {
	*nettest.Host
	name   string
	member Member
	tables *tables
	chance *Chance
	wanted Wanted
	stop   func() // ends Run and leaves the rules and the link

	mu       sync.Mutex
	listener net.Listener
	open     map[net.Conn]bool
}

func newLab(t testing.TB, n int) *lab {
	t.Helper()
	l := &lab{t: t, client: nettest.NewHost(t), router: nettest.NewHost(t)}
	for _, s := range []string{"ipv4/ip_forward", "ipv6/conf/all/forwarding", "ipv4/fib_multipath_hash_policy", "ipv6/fib_multipath_hash_policy"} {
		l.router.Sysctl(s, "1")
	}
	l.router.Sysctl(noDAD, "0")
	l.attach(l.client, 0)
	for i := 1; i <= n; i++ {
		m := &machine{Host: nettest.NewHost(t), name: fmt.Sprintf("m%d", i), open: make(map[net.Conn]bool), stop: func() {}}
		l.attach(m.Host, i)
		m.member = Member{Name: m.name, Number: Number(100 * i), Addr: at(i)} // in the order of the names
		m.bind()
		m.serve()
		m.tables = &tables{Socket: ruleset.Socket{NetNS: int(m.NS), Timeout: patience}, limits: usual(), lasts: lasts}
		m.NFT(`table inet seen { counter arrived {}
			chain p { type filter hook prerouting priority -400; iifname herald-tunnel udp dport 7948 return; iifname herald-tunnel counter name arrived; }
		}`)
		l.nodes = append(l.nodes, m)
	}
	for _, m := range l.nodes {
		for _, addr := range []netip.Addr{m.member.Addr, netip.MustParseAddr(fmt.Sprintf("fd00:%d::1", m.member.Addr.As4()[2]))} {
			// A router may avoid a neighbour that it has not resolved yet, and move connections to it later.
			wait.Until(t, "neighbours known", func() bool { c, err := dial(l.client, addr); return err == nil && c.Close() == nil })
		}
	}
	return l
}

// attach connects a host to the router: 10.0.i.1 and fd00:i::1.
func (l *lab) attach(h *nettest.Host, i int) {
	l.t.Helper()
	h.Sysctl(noDAD, "0")
	name := fmt.Sprintf("port%d", i)
	l.router.Connect(name, h, "eth0")
	l.router.Add(name, fmt.Sprintf("10.0.%d.254/24", i))
	l.router.Add(name, fmt.Sprintf("fd00:%d::254/64", i))
	h.Add("eth0", fmt.Sprintf("10.0.%d.1/24", i))
	h.Add("eth0", fmt.Sprintf("fd00:%d::1/64", i))
	h.Route("0.0.0.0/0", "eth0", fmt.Sprintf("10.0.%d.254", i))
	h.Route("::/0", "eth0", fmt.Sprintf("fd00:%d::254", i))
}

// routes makes the router send packets for the VIP to these nodes, as if they alone announced it.
func (l *lab) routes(nodes ...int) {
	l.t.Helper()
	for _, vip := range vipAddrs() {
		r := &netlink.Route{Dst: &net.IPNet{IP: vip.AsSlice(), Mask: net.CIDRMask(vip.BitLen(), vip.BitLen())}}
		for _, i := range nodes {
			gateway := fmt.Sprintf("10.0.%d.1", i)
			if vip.Is6() {
				gateway = fmt.Sprintf("fd00:%d::1", i)
			}
			r.MultiPath = append(r.MultiPath, &netlink.NexthopInfo{Gw: net.ParseIP(gateway), LinkIndex: l.router.Link(fmt.Sprintf("port%d", i)).Attrs().Index})
		}
		l.router.Must(l.router.NL.RouteReplace(r))
	}
}

// node returns m1, m2 and so on.
func (l *lab) node(i int) *machine { return l.nodes[i-1] }

// run starts all nodes and waits until they answer probes.
func (l *lab) run() {
	l.t.Helper()
	l.start()
	for _, m := range l.nodes {
		m.set(m.wanted) // now that all are running
	}
	wait.Until(l.t, "members that answer", func() bool {
		return !slices.ContainsFunc(l.nodes, func(m *machine) bool { return len(m.chance.Status().To) < len(l.nodes)-1 })
	})
}

// start starts all nodes as members of each other.
func (l *lab) start() {
	l.t.Helper()
	for _, m := range l.nodes {
		m.wanted = Wanted{Self: m.member, Links: []string{"eth0"}}
		for _, other := range l.nodes {
			if other != m {
				m.wanted.Others = append(m.wanted.Others, other.member)
			}
		}
		m.start()
	}
}

// start runs a Chance with m.wanted.
func (m *machine) start() {
	m.T.Helper()
	m.chance = newChance(slog.New(slog.NewTextHandler(m.T.Output(), nil)), inside{m.NS, vxlan{}}, tablesInside{m.tables, m.NS}, m.tables.lasts, func(bool) {})
	m.setVIP(serving)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	chance := m.chance
	go func() { chance.run(ctx); close(done) }()
	m.stop = func() { cancel(); <-done; chance.stopProber() } // as if the process was killed
	m.T.Cleanup(func() { m.stop(); m.tables.Close() })
}

// setVIP sets whether the node is serving or leaving the VIP, at once.
func (m *machine) setVIP(state string) {
	m.T.Helper()
	m.wanted.VIPs = make(map[netip.Addr]bool)
	for _, vip := range vipAddrs() {
		m.wanted.VIPs[vip] = state == leaving
	}
	m.set(m.wanted)
}

// set applies a desired state at once.
func (m *machine) set(w Wanted) {
	m.T.Helper()
	m.chance.Set(w)
	m.Must(m.chance.apply())
}

// bind and unbind add and remove the VIP.
func (m *machine) bind() {
	m.T.Helper()
	m.Add("lo", "10.99.0.10/32")
	m.Add("lo", "fd00:99::10/128")
}

func (m *machine) unbind() {
	m.T.Helper()
	m.Remove("lo", "10.99.0.10/32")
	m.Remove("lo", "fd00:99::10/128")
}

// serve starts a server that sends the machine's name and echoes lines. Before it echoes "get n" it sends n bytes, and before
// "put n" it reads n bytes.
func (m *machine) serve() {
	m.T.Helper()
	m.serveAt(port)
}

func (m *machine) serveAt(port int) {
	m.T.Helper()
	m.Must(namespace.In(m.NS, func() (err error) {
		m.listener, err = net.Listen("tcp", fmt.Sprintf(":%d", port))
		return err
	}))
	var running sync.WaitGroup
	running.Go(func() {
		for {
			c, err := m.listener.Accept()
			if err != nil {
				return
			}
			m.mu.Lock()
			m.open[c] = true
			m.mu.Unlock()
			running.Go(func() {
				defer c.Close()
				fmt.Fprintln(c, m.name)
				for in := bufio.NewReader(c); ; {
					line, err := in.ReadString('\n')
					if err != nil {
						return
					}
					var n int64
					if _, err := fmt.Sscanf(line, "get %d", &n); err == nil {
						_, _ = c.Write(make([]byte, n))
					}
					if _, err := fmt.Sscanf(line, "put %d", &n); err == nil {
						_, _ = io.CopyN(io.Discard, in, n)
					}
					fmt.Fprint(c, line)
				}
			})
		}
	})
	m.T.Cleanup(func() { m.die(); running.Wait() })
}

// die closes the server and its connections.
func (m *machine) die() {
	_ = m.listener.Close()
	m.mu.Lock()
	defer m.mu.Unlock()
	for c := range m.open {
		_ = c.Close()
	}
}

// forget resets all connections of the server.
func (m *machine) forget() {
	m.T.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	for c := range m.open {
		_ = c.(*net.TCPConn).SetLinger(0)
		_ = c.Close()
	}
}

// inside is a tunnel in another network namespace.
type inside struct {
	ns     netns.NsHandle
	tunnel vxlan
}

func (i inside) ensure(number uint16, local netip.Addr) (index int, err error) {
	err = namespace.In(i.ns, func() (err error) { index, err = i.tunnel.ensure(number, local); return err })
	return index, err
}

func (i inside) reach(self uint16, others map[uint16]netip.Addr, v6 bool) error {
	return namespace.In(i.ns, func() error { return i.tunnel.reach(self, others, v6) })
}

func (i inside) probe(self uint16, received func(uint16)) (ask func(uint16) error, stop func(), err error) {
	err = namespace.In(i.ns, func() (err error) { ask, stop, err = i.tunnel.probe(self, received); return err })
	return ask, stop, err
}

func (i inside) removeLink() error { return namespace.In(i.ns, i.tunnel.removeLink) }

// tablesInside are tables in another network namespace.
type tablesInside struct {
	*tables
	ns netns.NsHandle
}

func (i tablesInside) listener(vips map[netip.Addr]bool) (at netip.AddrPort, err error) {
	err = namespace.In(i.ns, func() (err error) { at, err = i.tables.listener(vips); return err })
	return at, err
}

// conn is a client's connection and the name of its owning member.
type conn struct {
	net.Conn
	in    *bufio.Reader
	owner string
}

// connect opens n connections from a host, every second one over IPv6.
func (l *lab) connect(from *nettest.Host, n int) []*conn {
	l.t.Helper()
	out := make([]*conn, n)
	for i := range out {
		var err error
		out[i], err = dial(from, vipAddrs()[i%2])
		from.Must(err)
		l.t.Cleanup(func() { _ = out[i].Close() })
	}
	return out
}

func dial(from *nettest.Host, dst netip.Addr) (*conn, error) { return dialBy(from, dst, 0) }

// dialBy dials from a local port.
func dialBy(from *nettest.Host, dst netip.Addr, local int) (*conn, error) {
	var c net.Conn
	err := namespace.In(from.NS, func() (err error) {
		d := net.Dialer{Timeout: patience, LocalAddr: &net.TCPAddr{Port: local}}
		c, err = d.Dial("tcp", netip.AddrPortFrom(dst, port).String())
		return err
	})
	if err != nil {
		return nil, err
	}
	out := &conn{Conn: c, in: bufio.NewReader(c)}
	if err = c.SetDeadline(time.Now().Add(patience)); err == nil {
		out.owner, err = out.in.ReadString('\n')
	}
	if err != nil {
		_ = c.Close()
		return nil, err
	}
	out.owner = strings.TrimSpace(out.owner)
	return out, nil
}

// does reports whether the server carries out a command and echoes it.
func (c *conn) does(what string) bool {
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return false
	}
	if _, err := fmt.Fprintln(c, what); err != nil {
		return false
	}
	var n int64
	if _, err := fmt.Sscanf(what, "put %d", &n); err == nil {
		if _, err := c.Write(make([]byte, n)); err != nil {
			return false
		}
	}
	if _, err := fmt.Sscanf(what, "get %d", &n); err == nil {
		if _, err := io.CopyN(io.Discard, c.in, n); err != nil {
			return false
		}
	}
	line, err := c.in.ReadString('\n')
	return err == nil && line == what+"\n"
}

// owners counts connections by owning member.
func owners(conns []*conn) map[string]int {
	out := make(map[string]int)
	for _, c := range conns {
		out[c.owner]++
	}
	return out
}

// use sends on all connections at once and separates working from lost ones.
func use(conns []*conn) (work, lost []*conn) { return ask(conns, "still there") }

func ask(conns []*conn, what string) (work, lost []*conn) {
	var all sync.WaitGroup
	echo := make([]bool, len(conns))
	for i, c := range conns {
		all.Go(func() { echo[i] = c.does(what) })
	}
	all.Wait()
	for i, c := range conns {
		if echo[i] {
			work = append(work, c)
		} else {
			lost = append(lost, c)
		}
	}
	return work, lost
}
