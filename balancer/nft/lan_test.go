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
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/herald-vip/herald/balancer"
	"github.com/herald-vip/herald/netutil/conntrack"
	namespace "github.com/herald-vip/herald/testenv/netns"
	"github.com/herald-vip/herald/testenv/nettest"
)

// lan is an Ethernet with hosts.
type lan struct {
	t     testing.TB
	hub   *nettest.Host // has the bridge
	hosts int
}

// machine is a host on a lan.
type machine struct {
	*nettest.Host
	name string
	v4   netip.Addr
	v6   netip.Addr
}

func newLAN(t testing.TB) *lan {
	t.Helper()
	l := &lan{t: t, hub: nettest.NewHost(t)}
	l.must(l.hub.NL.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}}))
	l.hub.SetUp("br0")
	return l
}

func (l *lan) must(err error) { l.t.Helper(); l.hub.Must(err) }

// add adds a host to the lan: the first has 10.9.0.1 and fd00:9::1, and so on.
func (l *lan) add(name string) *machine {
	l.t.Helper()
	l.hosts++
	m := &machine{Host: nettest.NewHost(l.t), name: name}
	port := fmt.Sprintf("port%d", l.hosts)
	l.hub.Connect(port, m.Host, "eth0")
	l.must(l.hub.NL.LinkSetMaster(l.hub.Link(port), l.hub.Link("br0")))
	m.v4 = netip.AddrFrom4([4]byte{10, 9, 0, byte(l.hosts)})
	m.v6 = netip.MustParseAddr(fmt.Sprintf("fd00:9::%d", l.hosts))
	m.Add("eth0", m.v4.String()+"/24")
	m.Add("eth0", m.v6.String()+"/64")
	return m
}

// addVIP adds an address to a link, deprecated like Herald's VIPs.
func (m *machine) addVIP(link string, vip netip.Addr) {
	m.T.Helper()
	a := nettest.Parse(m.T, netip.PrefixFrom(vip, vip.BitLen()).String())
	if vip.Is6() {
		a.ValidLft = math.MaxInt32
	}
	m.Must(m.NL.AddrAdd(m.Link(link), a))
}

// in runs f on a thread inside the machine.
func (m *machine) in(f func() error) {
	m.T.Helper()
	m.Must(namespace.In(m.NS, f))
}

// serve listens at a port of the machine's own addresses, see listen.
func (m *machine) serve(port uint16) {
	m.T.Helper()
	m.listen(netip.AddrPortFrom(m.v4, port))
	m.listen(netip.AddrPortFrom(m.v6, port))
}

// listen answers each connection with the machine's name and the client's address, and then echoes.
func (m *machine) listen(addr netip.AddrPort) {
	m.T.Helper()
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
					m.T.Error(err)
				}
				return
			}
			running.Go(func() {
				defer c.Close()
				// Some clients never close.
				defer context.AfterFunc(m.T.Context(), func() { _ = c.Close() })()
				fmt.Fprintf(c, "%s %s\n", m.name, c.RemoteAddr().(*net.TCPAddr).IP)
				// Without splice, which needs two more descriptors.
				_, _ = io.CopyBuffer(struct{ io.Writer }{c}, struct{ io.Reader }{c}, make([]byte, 64))
			})
		}
	})
	m.T.Cleanup(func() { _ = l.Close(); running.Wait() })
}

// plane returns a data plane of the machine that runs until the test ends.
func (m *machine) plane(o Options) *DataPlane {
	m.T.Helper()
	p := m.idlePlane(o)
	m.runs(p)
	return p
}

func (m *machine) idlePlane(o Options) *DataPlane {
	m.T.Helper()
	o.timeout = patience // for busy machines
	p := newPlane(slog.New(slog.NewTextHandler(m.T.Output(), nil)), o, int(m.NS))
	m.T.Cleanup(p.owner.kernel.Close)
	m.Must(p.open())
	return p
}

// runs runs a data plane until the test ends or stop is called.
func (m *machine) runs(p *DataPlane) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { p.Run(ctx); close(done) }()
	stop = func() { cancel(); <-done }
	m.T.Cleanup(stop)
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
	err := namespace.In(m.NS, func() (err error) {
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
	m.T.Helper()
	c, err := m.dial(dst)
	m.Must(err)
	m.T.Cleanup(func() { _ = c.Close() })
	return c
}

// served opens n connections, one after the other, and counts them by server.
func (m *machine) served(dst netip.AddrPort, n int) map[string]int {
	m.T.Helper()
	out := make(map[string]int)
	for range n {
		c, err := m.dial(dst)
		m.Must(err)
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
	m.addVIP("eth0", vip4.Addr())
	m.addVIP("eth0", vip6.Addr())
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
	return namespace.In(m.NS, func() error {
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
