package nft

import (
	"net"
	"net/netip"
	"testing"

	"github.com/herald-vip/herald/testenv/dataplane"
	namespace "github.com/herald-vip/herald/testenv/netns"
)

// TestConformance runs the tests of all data planes on the kernel's.
func TestConformance(t *testing.T) {
	l := newLAN(t)
	node := l.add("node")
	hosts := make(map[netip.Addr]*machine)
	var backends []netip.AddrPort
	for _, name := range []string{"m1", "m2", "m3"} {
		m := l.add(name)
		hosts[m.v4] = m
		backends = append(backends, netip.AddrPortFrom(m.v4, 6443))
	}
	dataplane.Test(t, node.plane(Options{Node: "node"}), dataplane.Site{
		Listen: func(addr netip.AddrPort) (out net.Listener, err error) {
			err = namespace.In(hosts[addr.Addr()].NS, func() (err error) {
				out, err = net.Listen("tcp", addr.String())
				return err
			})
			return out, err
		},
		Dial: func(dst netip.AddrPort) (out net.Conn, err error) {
			err = namespace.In(node.NS, func() (err error) {
				out, err = net.DialTimeout("tcp", dst.String(), patience)
				return err
			})
			return out, err
		},
		At:       netip.MustParseAddrPort("127.0.0.1:9443"),
		Backends: backends,
	})
}
