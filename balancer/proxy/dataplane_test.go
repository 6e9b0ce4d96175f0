package proxy_test

import (
	"math/rand/v2"
	"net"
	"net/netip"
	"testing"

	"go.uber.org/goleak"

	"github.com/herald-vip/herald/balancer"
	"github.com/herald-vip/herald/balancer/proxy"
	"github.com/herald-vip/herald/testenv/dataplane"
	"github.com/herald-vip/herald/testenv/must"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newPlane returns a DataPlane that is closed when the test ends.
func newPlane(t *testing.T, o proxy.Options) *proxy.DataPlane {
	t.Helper()
	p := proxy.New(o)
	t.Cleanup(func() { must.Do(t, p.Close()) })
	return p
}

func apply(t *testing.T, p *proxy.DataPlane, services ...balancer.Service) {
	t.Helper()
	must.Do(t, p.Apply(services))
}

// free returns a free address and port on this host.
func free(t *testing.T) netip.AddrPort {
	t.Helper()
	return freeAt(t, netip.AddrFrom4([4]byte{127, byte(1 + rand.IntN(254)), byte(rand.IntN(256)), 1}), 1)[0]
}

// freeAt returns n free ports at an address, outside the range of ephemeral ports.
func freeAt(t *testing.T, addr netip.Addr, n int) []netip.AddrPort {
	t.Helper()
	var all []netip.AddrPort
	for range 100 {
		place := netip.AddrPortFrom(addr, uint16(10_000+rand.IntN(20_000)))
		l, err := net.Listen("tcp", place.String())
		if err != nil {
			continue
		}
		defer func() { _ = l.Close() }() // at the end, so that no port is found twice
		if all = append(all, place); len(all) == n {
			return all
		}
	}
	t.Fatal("no port is free")
	return nil
}

func TestConformance(t *testing.T) {
	for _, ip := range []string{"127.0.0.1", "::1"} {
		t.Run(ip, func(t *testing.T) {
			places := freeAt(t, netip.MustParseAddr(ip), 4)
			dataplane.Test(t, newPlane(t, proxy.Options{Seed: "node"}), dataplane.Site{
				Listen:   func(a netip.AddrPort) (net.Listener, error) { return net.Listen("tcp", a.String()) },
				Dial:     func(a netip.AddrPort) (net.Conn, error) { return net.Dial("tcp", a.String()) },
				At:       places[0],
				Backends: places[1:],
			})
		})
	}
}
