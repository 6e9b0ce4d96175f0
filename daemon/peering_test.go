package daemon

import (
	"context"
	"log/slog"
	"net/netip"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/bgp"
	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/netutil/route"
	"github.com/herald-vip/herald/service"
	"github.com/herald-vip/herald/service/announce"
	"github.com/herald-vip/herald/service/peering"
	"github.com/herald-vip/herald/speaker"
	"github.com/herald-vip/herald/testenv/must"
	"github.com/herald-vip/herald/testenv/wait"
)

// pair is a BGP server with a router at 127.0.0.2 as its peer.
func pair(t *testing.T) *bgp.Server {
	t.Helper()
	start := func(c bgp.Config) *bgp.Server {
		s := bgp.New(slog.New(slog.DiscardHandler), bgp.Options{})
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			_ = s.Close(ctx, "test is over") // its peer may have gone before
		})
		c.ConnectRetry = 2 * time.Second
		must.Do(t, s.Apply(t.Context(), c))
		return s
	}
	const port = 11796
	here, there := netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("127.0.0.2")
	peer := func(addr, local netip.Addr, asn v1alpha1.ASN, port uint16) []v1alpha1.Peer {
		return []v1alpha1.Peer{{Address: addr, LocalAddress: local, ASN: asn, Port: port, HoldTime: metav1.Duration{Duration: 9 * time.Second}, Families: []v1alpha1.Family{v1alpha1.IPv4}}}
	}
	start(bgp.Config{ASN: 64500, RouterID: there, ListenPort: port, ListenAddresses: []netip.Addr{there}, Peers: peer(here, there, 64512, port+1)})
	return start(bgp.Config{ASN: 64512, RouterID: here, Peers: peer(there, here, 64500, port)})
}

// A Service's address that becomes a VIP on a flat layer 2 has no route any more.
func TestNoRouteToAFlatVIP(t *testing.T) {
	s := pair(t)
	advertised := func() []netip.Prefix { return s.Sessions()[0].Advertised }
	const class = "herald.dev/vip"
	a := announce.New(announce.Options{Log: slog.New(slog.DiscardHandler), Routes: s},
		announce.Config{Node: "n1", Scope: service.Scope{Class: class, Default: true}, Peers: map[string][]string{"127.0.0.2": {"127.0.0.2"}}})
	a.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}})
	a.SetPool(&v1alpha1.AddressPool{
		ObjectMeta: metav1.ObjectMeta{Name: "p"},
		Spec:       v1alpha1.AddressPoolSpec{Addresses: []v1alpha1.AddressRange{"10.4.0.0/24"}, BGP: &v1alpha1.PoolBGP{}},
	})
	svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer}}
	svc.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "10.4.0.9"}}
	a.SetService(svc)
	a.Synced()
	wait.Until(t, "the Service is announced", func() bool { return len(advertised()) > 0 })

	d := &Daemon{bgp: s, services: &services{announcer: a}}
	d.speaker = speaker.New(slog.New(slog.DiscardHandler), s, route.New(), nil, speaker.FlatParts{}, nil, nil)
	d.peering = peering.New(d.log, s, peering.Options{})
	must.Do(t, d.peering.Apply(t.Context(), peering.Set{Names: map[string]string{"127.0.0.2": "127.0.0.2"}}))
	c := &config.Config{NodeName: "n1", Services: &config.Services{LoadBalancerClass: class, DefaultClass: true}}
	if err := d.announceBy(c); err != nil || len(advertised()) != 1 {
		t.Fatalf("%v is announced before (%v)", advertised(), err)
	}
	c.VIPs = []config.VIP{{Name: "apiserver", Announce: config.AnnounceARP, Addresses: []netip.Addr{netip.MustParseAddr("10.4.0.9")}}}
	if err := d.announceBy(c); err != nil || len(advertised()) != 0 {
		t.Errorf("%v is announced of a VIP on a flat layer 2 (%v)", advertised(), err)
	}
}
