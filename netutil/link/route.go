package link

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// To names the link by which this host would send a packet to addr now. To its own
// addresses that is lo.
func To(addr netip.Addr) (string, error) {
	conn, err := netlink.Dial(unix.NETLINK_ROUTE, nil)
	if err != nil {
		return "", fmt.Errorf("open netlink socket: %w", err)
	}
	defer conn.Close()
	replies, err := routeTo(conn, addr)
	if err != nil {
		return "", fmt.Errorf("ask for the route to %s: %w", addr, err)
	}
	for _, r := range replies {
		if len(r.Data) < unix.SizeofRtMsg {
			continue
		}
		attrs, err := netlink.NewAttributeDecoder(r.Data[unix.SizeofRtMsg:])
		if err != nil {
			return "", fmt.Errorf("route to %s: %w", addr, err)
		}
		for attrs.Next() {
			if attrs.Type() == unix.RTA_OIF {
				link, err := net.InterfaceByIndex(int(attrs.Uint32()))
				if err != nil {
					return "", fmt.Errorf("route to %s: %w", addr, err)
				}
				return link.Name, nil
			}
		}
	}
	return "", fmt.Errorf("the route to %s leads to no link", addr)
}

// routeTo asks the kernel where it would send a packet.
func routeTo(conn *netlink.Conn, addr netip.Addr) ([]netlink.Message, error) {
	header := make([]byte, unix.SizeofRtMsg)
	header[0], header[1] = unix.AF_INET, byte(addr.BitLen())
	if addr.Is6() {
		header[0] = unix.AF_INET6
	}
	attrs := netlink.NewAttributeEncoder()
	attrs.ByteOrder = binary.NativeEndian
	attrs.Bytes(unix.RTA_DST, addr.AsSlice())
	encoded, err := attrs.Encode()
	if err != nil {
		return nil, err
	}
	return conn.Execute(netlink.Message{
		Header: netlink.Header{Type: unix.RTM_GETROUTE, Flags: netlink.Request},
		Data:   append(header, encoded...),
	})
}
