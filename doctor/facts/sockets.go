package facts

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"net/netip"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

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

// parseAddrPort parses an address of /proc/net: 32-bit words in the byte order of this machine, a colon
// and the port.
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

// tryPort binds a port as Herald does and closes it at once, without listening. It returns nil if that
// works.
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
