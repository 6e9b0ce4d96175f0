package facts

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/arp"
	"github.com/herald-vip/herald/bgp"
	"github.com/herald-vip/herald/bgp/bfd"
	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/internal/wake"
	"github.com/herald-vip/herald/netutil/link"
	"github.com/herald-vip/herald/service/peering"
)

// askPeers returns the obstacle to each session, by name of the peer. A running Herald knows it.
func (f *Facts) askPeers(ctx context.Context, c *config.Config) map[string]string {
	out := make(map[string]string)
	if c.BGP == nil {
		return out
	}
	if f.Running != nil {
		for _, p := range f.Running.Peers {
			name, problem := cmp.Or(p.Gateway, p.Name), p.Reason
			switch {
			case p.State != bgp.Established:
				problem = cmp.Or(p.Reason, "the session is "+string(p.State))
			case p.BFD != nil && p.BFD.State != bfd.Up: // p.Reason may only say that routes wait for BFD
				problem = "BFD is " + p.BFD.State.String() + ": " + p.BFD.Reason
			}
			out[name] = cmp.Or(out[name], problem) // there may be several gateways
		}
		return out
	}
	if f.RouterIDError != nil {
		return out // a finding of its own
	}
	sessions := peering.FileConfig(c)
	sessions.RouterID = cmp.Or(sessions.RouterID, f.routerID)
	var numbered []v1alpha1.Peer
	for _, p := range sessions.Peers {
		addrs := []netip.Addr{p.Address}
		if p.DefaultGateway != "" {
			if addrs, _ = link.Gateways(p.DefaultGateway == v1alpha1.IPv6); len(addrs) == 0 {
				out[p.Name()] = "no default route of the main routing table has a gateway"
			}
		}
		for _, p.Address = range addrs {
			if p.Address.IsValid() {
				numbered = append(numbered, p)
			}
		}
	}
	answers := together(numbered, v1alpha1.Peer.Name, func(p v1alpha1.Peer) string { return askPeer(ctx, sessions, p) })
	for _, p := range numbered {
		name := p.Name()
		if p.DefaultGateway != "" {
			name = v1alpha1.GatewayName(p.DefaultGateway)
		}
		out[name] = cmp.Or(out[name], answers[p.Name()])
	}
	return out
}

// askAgain is the pause before the second attempt to open a session.
const askAgain = 1500 * time.Millisecond

// askPeer tries a session with p, twice if the first attempt fails: a router that has just started, or
// just ended a session, refuses connections for a second.
func askPeer(ctx context.Context, c bgp.Config, p v1alpha1.Peer) string {
	problem := bgp.Examine(ctx, c, p)
	if problem == "" || !wake.Pause(ctx, askAgain) {
		return problem
	}
	return bgp.Examine(ctx, c, p)
}

// askMembers tries the gossip ports of the other members from this node's own port.
func (f *Facts) askMembers(ctx context.Context, c *config.Config) map[string]Reach {
	if f.Running != nil {
		return nil
	}
	return together(Others(c), itself, func(name string) Reach { return f.reach(ctx, c.Election.Bind, c.Election.Members[name]) })
}

// reach tries the gossip port of a member by TCP and by UDP.
func (f *Facts) reach(ctx context.Context, own, member netip.AddrPort) Reach {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	var r Reach
	var both sync.WaitGroup
	both.Go(func() {
		dialer := net.Dialer{}
		if src := f.source(own.Addr()); src.IsValid() {
			dialer.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(src, 0))
		}
		conn, err := dialer.DialContext(ctx, "tcp", member.String())
		if err == nil {
			conn.Close()
		}
		r.TCP = answer(err)
	})
	both.Go(func() { r.UDP = f.datagram(ctx, own, member) })
	both.Wait()
	return r
}

// datagram sends an empty datagram from this node's gossip port, the only source that members accept;
// they ignore it. A closed port, or a filter that rejects, refuses it.
func (f *Facts) datagram(ctx context.Context, own, member netip.AddrPort) Answer {
	if !f.source(own.Addr()).IsValid() || f.Ports[Port{"gossip", "udp", own}] != nil {
		return Unasked
	}
	dialer := net.Dialer{LocalAddr: net.UDPAddrFromAddrPort(own), Control: func(_, _ string, raw syscall.RawConn) error {
		return raw.Control(func(fd uintptr) { // several sockets share the port
			_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
		})
	}}
	conn, err := dialer.DialContext(ctx, "udp", member.String())
	if err != nil {
		return Unasked
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	_ = conn.SetDeadline(deadline)
	_, err = conn.Write(nil)
	for err == nil { // skip other packets of the member
		_, err = conn.Read(make([]byte, 1))
	}
	return answer(err)
}

// answer classifies the error of a connection.
func answer(err error) Answer {
	var timeout net.Error
	switch {
	case err == nil:
		return Accepted
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.ECONNRESET):
		return Refused
	case errors.Is(err, os.ErrDeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return Silent
	}
	return Unreachable
}

// wireTimeout bounds each round of probes on a link, which takes 400 ms.
const wireTimeout = 2 * time.Second

// askWire probes the VIPs on a flat layer 2 for machines that use them. A second round probes the VIPs
// that a member uses for further machines.
func (f *Facts) askWire(ctx context.Context, c *config.Config) map[netip.Addr]Use {
	out := make(map[netip.Addr]Use)
	var first []arp.Watched
	for _, v := range c.VIPs {
		if v.Announce != config.AnnounceARP {
			continue
		}
		for _, addr := range v.Addresses {
			if link, err := f.Carrier(v, addr); err == nil && f.Host.Links[link].Up {
				first = append(first, arp.Watched{Link: link, Addr: addr, Policy: arp.Yield, Probe: true})
			}
		}
	}
	found := askLinks(ctx, first, nil)
	var second []arp.Watched
	var members []net.HardwareAddr
	for _, w := range first {
		use := found[w.Addr]
		if use.MAC != nil && f.Member(c, use.MAC) != "" {
			second, members = append(second, w), append(members, use.MAC)
		} else {
			use.Stranger = use.MAC
		}
		out[w.Addr] = use
	}
	for addr, more := range askLinks(ctx, second, members) {
		use := out[addr]
		use.Stranger = more.MAC
		out[addr] = use
	}
	return out
}

// askLinks probes each address once and returns the first MAC address that answered, apart from known.
func askLinks(ctx context.Context, watched []arp.Watched, known []net.HardwareAddr) map[netip.Addr]Use {
	out := make(map[netip.Addr]Use)
	if len(watched) == 0 {
		return out
	}
	ctx, cancel := context.WithTimeout(ctx, wireTimeout)
	defer cancel()
	findings := make(chan arp.Finding, len(watched)) // the first decision about each
	decided := make(map[netip.Addr]bool)
	announcer := arp.New(slog.New(slog.DiscardHandler), arp.Options{Observe: func(f arp.Finding) {
		if f.State != arp.Unknown && !decided[f.Addr] {
			decided[f.Addr] = true
			findings <- f
		}
	}})
	announcer.Members(known)
	announcer.Apply(watched)
	done := make(chan error, 1)
	go func() { done <- announcer.Run(ctx) }()
	for range watched {
		select {
		case f := <-findings:
			out[f.Addr] = Use{MAC: f.MAC}
		case <-ctx.Done():
		}
	}
	cancel()
	runErr := <-done
	failed := announcer.Stats().Failed > 0
	for _, w := range watched {
		use, answered := out[w.Addr]
		switch {
		case runErr != nil:
			use.Err = runErr
		case use.MAC != nil:
		case failed: // silence proves nothing
			use.Err = errors.New("this process cannot send packets on " + w.Link)
		case !answered:
			use.Err = errors.New("the link did not send the probe in time")
		}
		out[w.Addr] = use
	}
	return out
}

// States of sockets in /proc/net.
const (
	stateListen = 0x0a
	stateClose  = 0x07 // of a UDP socket that is not connected
)

// parseSockets returns the listening sockets of a table of /proc/net: tcp, tcp6, udp or udp6.
func parseSockets(network, table string) []Socket {
	want := uint64(stateListen)
	if network == "udp" {
		want = stateClose
	}
	var out []Socket
	for line := range strings.Lines(table) {
		fields := strings.Fields(line)
		const local, state, inode, least = 1, 3, 9, 10
		if len(fields) < least {
			continue
		}
		at, ok := parseAddrPort(fields[local])
		s, err := strconv.ParseUint(fields[state], 16, 8)
		if !ok || err != nil || s != want {
			continue
		}
		out = append(out, Socket{Network: network, Local: at, inode: fields[inode]})
	}
	return out
}

// parseAddrPort parses an address of /proc/net: 32-bit words in the byte order of this machine, a colon and the port.
func parseAddrPort(s string) (netip.AddrPort, bool) {
	words, number, _ := strings.Cut(s, ":")
	b, err := hex.DecodeString(words)
	if err != nil || len(b)%4 != 0 {
		return netip.AddrPort{}, false
	}
	for i := 0; i < len(b); i += 4 {
		binary.NativeEndian.PutUint32(b[i:], binary.BigEndian.Uint32(b[i:]))
	}
	addr, ok := netip.AddrFromSlice(b)
	port, err := strconv.ParseUint(number, 16, 16)
	return netip.AddrPortFrom(addr.Unmap(), uint16(port)), ok && err == nil
}

// tryPort binds a port as Herald does and closes it at once, without listening. It returns nil if that works.
func tryPort(p Port) error {
	err := bindOnce(p)
	if errors.Is(err, unix.EAFNOSUPPORT) && p.Local.Addr() == netip.IPv6Unspecified() { // no IPv6 here
		p.Local = netip.AddrPortFrom(netip.IPv4Unspecified(), p.Local.Port())
		err = bindOnce(p)
	}
	return err
}

func bindOnce(p Port) error {
	family, kind, addr, port := unix.AF_INET6, unix.SOCK_STREAM, p.Local.Addr(), int(p.Local.Port())
	var at unix.Sockaddr = &unix.SockaddrInet6{Port: port, Addr: addr.As16()}
	if addr.Is4() {
		family, at = unix.AF_INET, &unix.SockaddrInet4{Port: port, Addr: addr.As4()}
	}
	if p.Network == "udp" {
		kind = unix.SOCK_DGRAM
	}
	fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	// A missing address is a finding of its own. With SO_REUSEADDR only a listener of another
	// program prevents the bind, not lingering connections.
	_ = unix.SetsockoptInt(fd, unix.SOL_IP, unix.IP_FREEBIND, 1)
	if family == unix.AF_INET6 {
		_ = unix.SetsockoptInt(fd, unix.SOL_IPV6, unix.IPV6_FREEBIND, 1)
	}
	if p.Network == "tcp" {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	}
	if p.Use == "BFD" && family == unix.AF_INET6 {
		_ = unix.SetsockoptInt(fd, unix.SOL_IPV6, unix.IPV6_V6ONLY, 1)
	}
	return unix.Bind(fd, at)
}
