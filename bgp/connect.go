package bgp

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/netip"
	"reflect"
	"syscall"
	"time"

	gobgp "github.com/osrg/gobgp/v4/pkg/server"
	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/internal/wake"
)

// GoBGP waits for one and a half to two seconds before each connection attempt, even the first one, which would
// dominate the time of a restart. So Herald connects at once in parallel, and passes the connection to GoBGP as if
// GoBGP's listener had accepted it. GoBGP resolves the collision if its own attempt succeeds too.

const (
	// connectEvery is the first pause after a failed attempt.
	connectEvery = 250 * time.Millisecond
	// connectTimeout limits one attempt.
	connectTimeout = 2 * time.Second
	// handEvery is the least time between two connections passed to GoBGP for one peer. It bounds the
	// attempts with a peer that rejects the session.
	handEvery = 2 * time.Second
)

// acceptedBy returns the channel of connections that GoBGP's listeners accept, or nil if this version has none.
// GoBGP accepts any connection from the address of a peer, and offers no other way to pass one in.
func acceptedBy(s *gobgp.BgpServer) *chan net.Conn {
	field := reflect.ValueOf(s).Elem().FieldByName("acceptCh")
	if !field.IsValid() || field.Type() != reflect.TypeFor[chan net.Conn]() {
		return nil
	}
	return (*chan net.Conn)(field.Addr().UnsafePointer())
}

// connect passes GoBGP a connection to p, which must be waiting for one.
func (s *Server) connect(p *peer) {
	if s.accepted == nil || *s.accepted == nil || s.closing || time.Since(p.handed) < handEvery {
		return
	}
	epoch, config, conf, addr := p.epoch, s.config, p.Peer, p.addr
	retry := encodePeer(config, conf, addr).Timers.Config.ConnectRetry
	s.wg.Go(func() {
		pauses := wake.Backoff{Min: connectEvery, Max: time.Duration(retry) * time.Second}
		for n := 1; ; n++ {
			ctx, cancel := context.WithTimeout(s.ctx, connectTimeout)
			conn, err := dial(ctx, config, conf, addr)
			cancel()
			if s.hand(p, epoch, conn, err) || !wake.Pause(s.ctx, pauses.After(n)) {
				return
			}
		}
	})
}

// hand passes the connection, if there is one, to GoBGP. It reports whether the attempts are over: GoBGP has
// it, or no longer waits for one.
func (s *Server) hand(p *peer, epoch uint64, conn net.Conn, err error) (done bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.epoch != epoch || s.closing {
		if conn != nil {
			conn.Close()
		}
		return true
	}
	if err != nil {
		return false
	}
	select {
	case *s.accepted <- conn:
		p.handed, p.trial = time.Now(), true
	default:
		conn.Close()
	}
	return true
}

// dial connects to a peer in the same way as GoBGP.
func dial(ctx context.Context, c Config, p v1alpha1.Peer, addr netip.Addr) (net.Conn, error) {
	dialer := net.Dialer{
		KeepAlive: -1,
		Control: func(_, _ string, raw syscall.RawConn) (err error) {
			failed := raw.Control(func(fd uintptr) { err = prepare(int(fd), p, addr, ownASN(p, c.ASN)) })
			return cmp.Or(failed, err)
		},
	}
	if p.LocalAddress.IsValid() {
		dialer.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(p.LocalAddress, 0))
	}
	return dialer.DialContext(ctx, "tcp", netip.AddrPortFrom(addr, p.Port).String())
}

// prepare sets the password and TTL rules of the session with p on a socket.
func prepare(fd int, p v1alpha1.Peer, addr netip.Addr, asn uint32) error {
	if p.Password != "" {
		if err := unix.SetsockoptTCPMD5Sig(fd, unix.IPPROTO_TCP, unix.TCP_MD5SIG, md5Signature(addr, p.Password)); err != nil {
			return fmt.Errorf("set the TCP MD5 password: %w", err)
		}
	}
	level, ttlOption, minTTLOption := unix.IPPROTO_IP, unix.IP_TTL, unix.IP_MINTTL
	if addr.Is6() {
		level, ttlOption, minTTLOption = unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS, unix.IPV6_MINHOPCOUNT
	}
	ttl := 0
	switch {
	case p.TTLSecurity > 0:
		ttl = 255
		if err := unix.SetsockoptInt(fd, level, minTTLOption, int(leastTTL(p))); err != nil {
			return fmt.Errorf("set the least TTL: %w", err)
		}
	case p.Multihop > 0:
		ttl = int(p.Multihop)
	case uint32(p.ASN) != asn:
		ttl = 1
	}
	if ttl != 0 {
		if err := unix.SetsockoptInt(fd, level, ttlOption, ttl); err != nil {
			return fmt.Errorf("set the TTL: %w", err)
		}
	}
	return nil
}

// md5Signature returns the socket option with the password for connections to addr.
func md5Signature(addr netip.Addr, password string) *unix.TCPMD5Sig {
	s := &unix.TCPMD5Sig{Keylen: uint16(len(password))}
	if addr.Is4() {
		s.Addr.Family = unix.AF_INET
		copy(s.Addr.Data[2:], addr.AsSlice()) // after the port
	} else {
		s.Addr.Family = unix.AF_INET6
		copy(s.Addr.Data[6:], addr.AsSlice()) // after the port and the flow label
	}
	copy(s.Key[:], password)
	return s
}
