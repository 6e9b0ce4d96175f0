package address_test

import (
	"net"
	"net/netip"
	"testing"

	"github.com/herald-vip/herald/netutil/address"
	"github.com/herald-vip/herald/netutil/link"

	"github.com/herald-vip/herald/testenv/nettest"
)

// A VIP accepts connections, but the kernel never picks it as the source of the node's own traffic.
func TestTraffic(t *testing.T) {
	h, client := nettest.NewHost(t), nettest.NewHost(t)
	h.AddVeth("veth0", "client0")
	h.Must(h.NL.LinkSetNsFd(h.Link("client0"), int(client.NS)))
	client.SetUp("client0")
	h.AddVeth("bare0", "bare1") // without addresses

	h.Add("veth0", "10.0.0.1/24")
	h.Add("veth0", "fd00:1::1/64")
	client.Add("client0", "10.0.0.2/24")
	client.Add("client0", "fd00:1::2/64")
	client.Route("10.99.0.0/16", "client0", "10.0.0.1")
	client.Route("fd00:99::/64", "client0", "fd00:1::1")
	h.Route("0.0.0.0/0", "bare0", "")
	h.Route("::/0", "bare0", "")

	a := open(h, address.Options{})
	onLo, onVeth := []netip.Addr{vip4, vip6}, []netip.Addr{vip4.Next(), vip6.Next()}
	for i := range onLo {
		h.Must(a.Bind("lo", onLo[i]))
		h.Must(a.Bind("veth0", onVeth[i]))
	}

	for _, addr := range append(onLo, onVeth...) {
		var l net.Listener
		var err error
		h.In(func() { l, err = net.Listen("tcp", netip.AddrPortFrom(addr, 0).String()) })
		h.Must(err)
		var c net.Conn
		client.In(func() { c, err = net.Dial("tcp", l.Addr().String()) })
		if err != nil {
			t.Errorf("client cannot connect to %s: %v", addr, err)
		} else {
			_ = c.Close()
		}
		_ = l.Close()
	}

	for dst, want := range map[string]string{
		"10.0.0.2":      "10.0.0.1",
		"192.0.2.1":     "10.0.0.1", // over the link without addresses
		"fd00:1::2":     "fd00:1::1",
		"2001:db8::1":   "fd00:1::1",
		"10.99.255.255": "10.0.0.1",
	} {
		var c net.Conn
		var err error
		h.In(func() { c, err = net.Dial("udp", net.JoinHostPort(dst, "9")) })
		h.Must(err)
		if got := c.LocalAddr().(*net.UDPAddr).IP.String(); got != want {
			t.Errorf("source of traffic to %s is %s, want %s", dst, got, want)
		}
		_ = c.Close()
	}
}

func TestLookups(t *testing.T) {
	h := nettest.NewHost(t)
	h.AddVeth("veth0", "veth1")
	h.Add("lo", "10.255.0.1/32")
	h.Add("veth0", "10.0.0.1/24")
	h.Add("veth0", "fd00:1::1/64")
	a := open(h, address.Options{})
	for _, addr := range []netip.Addr{vip4, vip6} {
		h.Must(a.Bind("veth0", addr))
	}
	local := netip.MustParseAddr("10.0.0.1")
	h.In(func() {
		if got, err := link.RouterID("m1"); err != nil || got != local {
			t.Errorf("router ID %s, error %v", got, err)
		}
		if got, err := link.RouterID("m1", local); err != nil || got != netip.MustParseAddr("10.255.0.1") {
			t.Errorf("router ID other than %s: %s, error %v", local, got, err)
		}
		if got, err := link.GlobalAddr6(local); err != nil || got != netip.MustParseAddr("fd00:1::1") {
			t.Errorf("next hop %s, error %v", got, err)
		}
	})
}
