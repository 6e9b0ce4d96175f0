package nft

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/balancer"
	"github.com/herald-vip/herald/netutil/conntrack"
	namespace "github.com/herald-vip/herald/testenv/netns"
)

// lan is an Ethernet that hosts are on.
type lan struct {
	t      testing.TB
	ns     netns.NsHandle
	nl     *netlink.Handle
	bridge netlink.Link
	hosts  int
}

// machine is a host on a lan.
type machine struct {
	t    testing.TB
	name string
	ns   netns.NsHandle
	nl   *netlink.Handle
	v4   netip.Addr
	v6   netip.Addr
}

func newLAN(t testing.TB) *lan {
	t.Helper()
	l := &lan{t: t}
	l.ns, l.nl = namespace.New(t)
	l.must(l.nl.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}}))
	var err error
	l.bridge, err = l.nl.LinkByName("br0")
	l.must(err)
	l.must(l.nl.LinkSetUp(l.bridge))
	return l
}

func (l *lan) must(err error) {
	l.t.Helper()
	if err != nil {
		l.t.Fatal(err)
	}
}

// add puts a host on the lan: 10.9.0.1 and fd00:9::1 the first, and so on.
func (l *lan) add(name string) *machine {
	l.t.Helper()
	l.hosts++
	m := &machine{t: l.t, name: name}
	m.ns, m.nl = namespace.New(l.t)
	port := fmt.Sprintf("port%d", l.hosts)
	l.must(l.nl.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: port}, PeerName: "eth0", PeerNamespace: netlink.NsFd(int(m.ns))}))
	link, err := l.nl.LinkByName(port)
	l.must(err)
	l.must(l.nl.LinkSetMaster(link, l.bridge))
	l.must(l.nl.LinkSetUp(link))
	eth0, err := m.nl.LinkByName("eth0")
	l.must(err)
	l.must(m.nl.LinkSetUp(eth0))
	m.v4 = netip.AddrFrom4([4]byte{10, 9, 0, byte(l.hosts)})
	m.v6 = netip.MustParseAddr(fmt.Sprintf("fd00:9::%d", l.hosts))
	m.address("eth0", netip.PrefixFrom(m.v4, 24))
	m.address("eth0", netip.PrefixFrom(m.v6, 64))
	return m
}

func (m *machine) must(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatal(err)
	}
}

// address adds an address to a link.
func (m *machine) address(link string, prefix netip.Prefix) {
	m.t.Helper()
	l, err := m.nl.LinkByName(link)
	m.must(err)
	a := &netlink.Addr{IPNet: &net.IPNet{IP: prefix.Addr().AsSlice(), Mask: net.CIDRMask(prefix.Bits(), prefix.Addr().BitLen())}}
	if prefix.Addr().Is6() {
		a.Flags = unix.IFA_F_NODAD // usable at once
		if prefix.IsSingleIP() {
			a.ValidLft = math.MaxInt32 // and not preferred, as Herald's VIPs are
		}
	}
	m.must(m.nl.AddrAdd(l, a))
}

// in runs f on a thread inside the machine.
func (m *machine) in(f func() error) {
	m.t.Helper()
	m.must(namespace.In(m.ns, f))
}

// run runs a program inside the machine and returns what it prints.
func (m *machine) run(stdin, name string, args ...string) string {
	m.t.Helper()
	var out []byte
	m.in(func() (err error) {
		cmd := exec.Command(name, args...)
		cmd.Stdin = strings.NewReader(stdin)
		if out, err = cmd.CombinedOutput(); err != nil {
			err = fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, out)
		}
		return err
	})
	return string(out)
}

// serve answers every connection to a port of the machine's own addresses.
func (m *machine) serve(port uint16) {
	m.t.Helper()
	m.listen(netip.AddrPortFrom(m.v4, port))
	m.listen(netip.AddrPortFrom(m.v6, port))
}

// listen answers every connection with the machine's name, and echoes what comes then.
func (m *machine) listen(at netip.AddrPort) {
	m.t.Helper()
	var l net.Listener
	m.in(func() (err error) {
		l, err = net.Listen("tcp", at.String())
		return err
	})
	var running sync.WaitGroup
	running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				if !errors.Is(err, net.ErrClosed) {
					m.t.Error(err)
				}
				return
			}
			running.Go(func() {
				defer c.Close()
				// Some clients vanish without a word.
				defer context.AfterFunc(m.t.Context(), func() { _ = c.Close() })()
				fmt.Fprintf(c, "%s %s\n", m.name, c.RemoteAddr().(*net.TCPAddr).IP)
				// Not by splice, whose pipes would take as many files again.
				_, _ = io.CopyBuffer(struct{ io.Writer }{c}, struct{ io.Reader }{c}, make([]byte, 64))
			})
		}
	})
	m.t.Cleanup(func() { _ = l.Close(); running.Wait() })
}

// mac is the hardware address of the machine.
func (m *machine) mac() string {
	m.t.Helper()
	link, err := m.nl.LinkByName("eth0")
	m.must(err)
	return link.Attrs().HardwareAddr.String()
}

// plane makes the machine's plane, which runs until the test ends.
func (m *machine) plane(o Options) *Plane {
	m.t.Helper()
	p := m.idlePlane(o)
	m.runs(p)
	return p
}

func (m *machine) idlePlane(o Options) *Plane {
	m.t.Helper()
	o.timeout = patience // however busy the machine is
	p := newPlane(slog.New(slog.NewTextHandler(m.t.Output(), nil)), o, int(m.ns))
	m.t.Cleanup(p.kernel.Close)
	m.must(p.open())
	return p
}

// runs runs a plane until the test ends, or stop is called.
func (m *machine) runs(p *Plane) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { p.Run(ctx); close(done) }()
	stop = func() { cancel(); <-done }
	m.t.Cleanup(stop)
	return stop
}

// conn is a client's connection, and who answers it.
type conn struct {
	*net.TCPConn
	in     *bufio.Reader
	server string
	source string // the client's address as the server sees it
}

// dial connects from the machine.
func (m *machine) dial(to netip.AddrPort) (*conn, error) { return m.dialFor(to, patience) }

func (m *machine) dialFor(to netip.AddrPort, long time.Duration) (*conn, error) {
	var c net.Conn
	err := namespace.In(m.ns, func() (err error) {
		c, err = net.DialTimeout("tcp", to.String(), long)
		return err
	})
	if err != nil {
		return nil, err
	}
	out := &conn{TCPConn: c.(*net.TCPConn), in: bufio.NewReader(c)}
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return nil, err
	}
	line, err := out.in.ReadString('\n')
	if err != nil {
		_ = c.Close()
		return nil, err
	}
	out.server, out.source, _ = strings.Cut(strings.TrimSpace(line), " ")
	return out, nil
}

// connect is dial that has to succeed.
func (m *machine) connect(to netip.AddrPort) *conn {
	m.t.Helper()
	c, err := m.dial(to)
	m.must(err)
	m.t.Cleanup(func() { _ = c.Close() })
	return c
}

// served tells who serves so many connections, one after the other.
func (m *machine) served(to netip.AddrPort, n int) map[string]int {
	m.t.Helper()
	out := make(map[string]int)
	for range n {
		c, err := m.dial(to)
		m.must(err)
		out[c.server]++
		_ = c.SetLinger(0) // leaves nothing behind
		_ = c.Close()
	}
	return out
}

// echoes is whether the connection works.
func (c *conn) echoes() error {
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(c, "still there"); err != nil {
		return err
	}
	line, err := c.in.ReadString('\n')
	if err == nil && line != "still there\n" {
		err = fmt.Errorf("it says %q", line)
	}
	return err
}

// patience is how long a test waits for what is to come at once.
const patience = 15 * time.Second

// site is a node with a plane, three masters that serve at port 6443, and a client.
type site struct {
	*lan
	node, client *machine
	masters      []*machine
}

const port = 6443

func newSite(t testing.TB) *site {
	s := &site{lan: newLAN(t)}
	s.node, s.client = s.add("node"), s.add("client")
	for i := range 3 {
		m := s.add(fmt.Sprintf("m%d", i+1))
		m.serve(port)
		s.masters = append(s.masters, m)
	}
	return s
}

var (
	local = netip.MustParseAddrPort("127.0.0.1:9443")
	vip4  = netip.MustParseAddrPort("10.9.0.100:6443")
	vip6  = netip.MustParseAddrPort("[fd00:9::100]:6443")
)

// holds has the node hold the VIPs.
func (s *site) holds(m *machine) {
	m.address("eth0", netip.PrefixFrom(vip4.Addr(), 32))
	m.address("eth0", netip.PrefixFrom(vip6.Addr(), 128))
}

// backends are the masters, of both families, all in a state.
func (s *site) backends(state balancer.State, masters ...*machine) []balancer.Backend {
	var out []balancer.Backend
	for _, m := range masters {
		for _, addr := range []netip.Addr{m.v4, m.v6} {
			out = append(out, balancer.Backend{Name: m.name, Addr: netip.AddrPortFrom(addr, port), State: state})
		}
	}
	return out
}

func (s *site) service(listen ...netip.AddrPort) balancer.Service {
	return balancer.Service{Name: "apiserver", Listen: listen, Backends: s.backends(balancer.Serving, s.masters...)}
}

// forget has the machine's conntrack forget what was opened to a place.
func (m *machine) forget(to netip.AddrPort) error {
	return namespace.In(m.ns, func() error {
		connections, err := conntrack.Translated(to)
		if err != nil {
			return err
		}
		for i := range connections {
			connections[i].Phase = conntrack.Opening // sockets are left alone
		}
		return conntrack.End(connections)
	})
}
