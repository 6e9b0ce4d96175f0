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

// lan is an Ethernet with hosts.
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

// add adds a host to the lan: the first has 10.9.0.1 and fd00:9::1, and so on.
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
			a.ValidLft = math.MaxInt32 // deprecated, like Herald's VIPs
		}
	}
	m.must(m.nl.AddrAdd(l, a))
}

// in runs f on a thread inside the machine.
func (m *machine) in(f func() error) {
	m.t.Helper()
	m.must(namespace.In(m.ns, f))
}

// run runs a program inside the machine and returns its output.
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

// serve listens at a port of the machine's own addresses, see listen.
func (m *machine) serve(port uint16) {
	m.t.Helper()
	m.listen(netip.AddrPortFrom(m.v4, port))
	m.listen(netip.AddrPortFrom(m.v6, port))
}

// listen answers each connection with the machine's name and the client's address, and then echoes.
func (m *machine) listen(addr netip.AddrPort) {
	m.t.Helper()
	var l net.Listener
	m.in(func() (err error) {
		l, err = net.Listen("tcp", addr.String())
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
				// Some clients never close.
				defer context.AfterFunc(m.t.Context(), func() { _ = c.Close() })()
				fmt.Fprintf(c, "%s %s\n", m.name, c.RemoteAddr().(*net.TCPAddr).IP)
				// Without splice, which needs two more descriptors.
				_, _ = io.CopyBuffer(struct{ io.Writer }{c}, struct{ io.Reader }{c}, make([]byte, 64))
			})
		}
	})
	m.t.Cleanup(func() { _ = l.Close(); running.Wait() })
}

// mac returns the MAC of the machine.
func (m *machine) mac() string {
	m.t.Helper()
	link, err := m.nl.LinkByName("eth0")
	m.must(err)
	return link.Attrs().HardwareAddr.String()
}

// plane returns a data plane of the machine that runs until the test ends.
func (m *machine) plane(o Options) *DataPlane {
	m.t.Helper()
	p := m.idlePlane(o)
	m.runs(p)
	return p
}

func (m *machine) idlePlane(o Options) *DataPlane {
	m.t.Helper()
	o.timeout = patience // for busy machines
	p := newPlane(slog.New(slog.NewTextHandler(m.t.Output(), nil)), o, int(m.ns))
	m.t.Cleanup(p.owner.kernel.Close)
	m.must(p.open())
	return p
}

// runs runs a data plane until the test ends or stop is called.
func (m *machine) runs(p *DataPlane) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { p.Run(ctx); close(done) }()
	stop = func() { cancel(); <-done }
	m.t.Cleanup(stop)
	return stop
}

// conn is a client's connection and the name of its server.
type conn struct {
	*net.TCPConn
	in     *bufio.Reader
	server string
	source string // the client's address as the server sees it
}

// dial connects from the machine.
func (m *machine) dial(dst netip.AddrPort) (*conn, error) { return m.dialFor(dst, patience) }

func (m *machine) dialFor(dst netip.AddrPort, timeout time.Duration) (*conn, error) {
	var c net.Conn
	err := namespace.In(m.ns, func() (err error) {
		c, err = net.DialTimeout("tcp", dst.String(), timeout)
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

// connect dials and fails the test on an error.
func (m *machine) connect(dst netip.AddrPort) *conn {
	m.t.Helper()
	c, err := m.dial(dst)
	m.must(err)
	m.t.Cleanup(func() { _ = c.Close() })
	return c
}

// served opens n connections, one after the other, and counts them by server.
func (m *machine) served(dst netip.AddrPort, n int) map[string]int {
	m.t.Helper()
	out := make(map[string]int)
	for range n {
		c, err := m.dial(dst)
		m.must(err)
		out[c.server]++
		_ = c.SetLinger(0) // leaves no TIME_WAIT behind
		_ = c.Close()
	}
	return out
}

// echoes checks that the connection works.
func (c *conn) echoes() error {
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(c, "still there"); err != nil {
		return err
	}
	line, err := c.in.ReadString('\n')
	if err == nil && line != "still there\n" {
		err = fmt.Errorf("echo %q", line)
	}
	return err
}

// patience is how long a test waits for an event that should happen at once.
const patience = 15 * time.Second

// site is a node, three masters that serve at port 6443, and a client.
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

// holds gives the VIPs to a machine.
func (s *site) holds(m *machine) {
	m.address("eth0", netip.PrefixFrom(vip4.Addr(), 32))
	m.address("eth0", netip.PrefixFrom(vip6.Addr(), 128))
}

// backends returns the addresses of masters, of both families, in a state.
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

// forget removes connections to an address from the machine's conntrack.
func (m *machine) forget(dst netip.AddrPort) error {
	return namespace.In(m.ns, func() error {
		connections, err := conntrack.Translated(dst)
		if err != nil {
			return err
		}
		for i := range connections {
			connections[i].Phase = conntrack.Opening // leaves the sockets open
		}
		return conntrack.End(connections)
	})
}
