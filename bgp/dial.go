package bgp

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/api/v1alpha1"
)

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
