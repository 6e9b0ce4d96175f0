package link

import (
	"encoding/binary"
	"net/netip"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/netutil/rtnetlink"
)

var (
	lo   = Link{Index: 1, Name: "lo", AdminUp: true, Loopback: true}
	eth0 = Link{Index: 2, Name: "eth0", AdminUp: true}

	vip4 = netip.MustParseAddr("10.99.0.10")
	vip6 = netip.MustParseAddr("fd00:99::10")
)

// permanent returns an address as an administrator adds it.
func permanent(l Link, cidr string) rtnetlink.Address {
	p := netip.MustParsePrefix(cidr)
	return rtnetlink.Address{Link: l.Index, IP: p.Addr(), Subnet: p.Masked(), Flags: unix.IFA_F_PERMANENT, Valid: rtnetlink.Infinite, Preferred: rtnetlink.Infinite}
}

// vip returns an address as Herald adds it.
func vip(l Link, ip netip.Addr) rtnetlink.Address {
	a := rtnetlink.Address{Link: l.Index, IP: ip, Subnet: netip.PrefixFrom(ip, ip.BitLen()), Flags: unix.IFA_F_NOPREFIXROUTE | unix.IFA_F_DEPRECATED, Valid: 10}
	if l.Loopback {
		a.Scope = unix.RT_SCOPE_HOST
	}
	return a
}

func with(a rtnetlink.Address, edit func(*rtnetlink.Address)) rtnetlink.Address {
	edit(&a)
	return a
}

// linkMessage returns an ifinfomsg.
func linkMessage(family byte, index, flags uint32, name string) []byte {
	b := []byte{family, 0, 0, 0}
	b = binary.NativeEndian.AppendUint32(b, index)
	b = binary.NativeEndian.AppendUint32(b, flags)
	b = binary.NativeEndian.AppendUint32(b, 0)
	attrs := netlink.NewAttributeEncoder()
	attrs.Uint32(unix.IFLA_MTU, 1500)
	attrs.String(unix.IFLA_IFNAME, name)
	encoded, err := attrs.Encode()
	if err != nil {
		panic(err)
	}
	return append(b, encoded...)
}
