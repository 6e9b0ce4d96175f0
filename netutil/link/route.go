package link

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/netutil/rtnetlink"
)

// To names the link by which this host would send a packet to addr now. To its own
// addresses that is lo.
func To(addr netip.Addr) (string, error) {
	k := &rtnetlink.Conn{}
	defer k.Close()
	r, err := routeTo(k, addr)
	if err != nil {
		return "", err
	}
	if r.link == 0 {
		return "", fmt.Errorf("the route to %s leads to no link", addr)
	}
	link, err := net.InterfaceByIndex(r.link)
	if err != nil {
		return "", fmt.Errorf("route to %s: %w", addr, err)
	}
	return link.Name, nil
}

// route is where the kernel sends a packet.
type route struct {
	local bool // to this host itself
	link  int  // index
}

// routeTo asks the kernel where it would send a packet.
func routeTo(k *rtnetlink.Conn, addr netip.Addr) (route, error) {
	header := make([]byte, unix.SizeofRtMsg)
	header[0], header[1] = unix.AF_INET, byte(addr.BitLen())
	if addr.Is6() {
		header[0] = unix.AF_INET6
	}
	dest, err := netlink.MarshalAttributes([]netlink.Attribute{{Type: unix.RTA_DST, Data: addr.AsSlice()}})
	if err != nil {
		return route{}, err
	}
	replies, err := k.Execute(unix.RTM_GETROUTE, 0, append(header, dest...))
	if err != nil {
		return route{}, fmt.Errorf("ask for the route to %s: %w", addr, err)
	}
	for _, m := range replies {
		if len(m.Data) < unix.SizeofRtMsg {
			continue
		}
		r := route{local: m.Data[7] == unix.RTN_LOCAL} // struct rtmsg: the type is the eighth byte
		attrs, err := netlink.NewAttributeDecoder(m.Data[unix.SizeofRtMsg:])
		if err != nil {
			return route{}, fmt.Errorf("route to %s: %w", addr, err)
		}
		for attrs.Next() {
			if attrs.Type() == unix.RTA_OIF {
				r.link = int(attrs.Uint32())
			}
		}
		return r, nil
	}
	return route{}, fmt.Errorf("the kernel names no route to %s", addr)
}
