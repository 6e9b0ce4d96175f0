package proxy_test

import (
	"net"
	"net/netip"
	"testing"

	"go.uber.org/goleak"

	"github.com/herald-vip/herald/balancer"
	"github.com/herald-vip/herald/balancer/proxy"
	"github.com/herald-vip/herald/testenv/plane"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newPlane returns a Plane that is closed, with all of its connections, when the test ends.
func newPlane(t *testing.T, o proxy.Options) *proxy.Plane {
	t.Helper()
	p := proxy.New(o)
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func apply(t *testing.T, p *proxy.Plane, services ...balancer.Service) {
	t.Helper()
	if err := p.Apply(services); err != nil {
		t.Fatal(err)
	}
}

// free returns an address of this host where nobody listens.
func free(t *testing.T, ip string) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(ip, "0"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().(*net.TCPAddr).AddrPort()
}

func TestPlane(t *testing.T) {
	for _, ip := range []string{"127.0.0.1", "::1"} {
		t.Run(ip, func(t *testing.T) {
			plane.Test(t, newPlane(t, proxy.Options{Seed: "node"}), plane.Site{
				Listen:   func(a netip.AddrPort) (net.Listener, error) { return net.Listen("tcp", a.String()) },
				Dial:     func(a netip.AddrPort) (net.Conn, error) { return net.Dial("tcp", a.String()) },
				At:       free(t, ip),
				Backends: []netip.AddrPort{free(t, ip), free(t, ip), free(t, ip)},
			})
		})
	}
}
