package peering

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/bgp"
	"github.com/herald-vip/herald/config"
)

func addrs(list string) []netip.Addr {
	var out []netip.Addr
	for _, s := range strings.Fields(list) {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

// A former gateway keeps its session for Linger, and becomes current again if it returns before.
func TestFollowing(t *testing.T) {
	begin := time.Now()
	var f following
	for i, step := range []struct {
		after    time.Duration // the beginning
		gateways string
		want     string
	}{
		{0, "10.0.0.1", "10.0.0.1"},
		{time.Minute, "10.0.0.1 10.0.0.2", "10.0.0.1 10.0.0.2"},
		{2 * time.Minute, "10.0.0.2", "10.0.0.2 10.0.0.1"},
		{2*time.Minute + Linger - 1, "10.0.0.2", "10.0.0.2 10.0.0.1"},
		{2*time.Minute + Linger, "10.0.0.2", "10.0.0.2"},
		{3 * time.Minute, "", "10.0.0.2"},
		{3*time.Minute + 1, "10.0.0.2", "10.0.0.2"},
		{3*time.Minute + Linger, "10.0.0.2", "10.0.0.2"},
		{4 * time.Minute, "10.0.0.3", "10.0.0.3 10.0.0.2"},
		{4*time.Minute + 1, "10.0.0.4", "10.0.0.4 10.0.0.3 10.0.0.2"},
		{4*time.Minute + Linger, "10.0.0.4", "10.0.0.4 10.0.0.3"},
		{5 * time.Minute, "", "10.0.0.4"},
		{6 * time.Minute, "", ""},
	} {
		if f = f.next(begin.Add(step.after), addrs(step.gateways)); !slices.EqualFunc(f, addrs(step.want), func(g gateway, a netip.Addr) bool { return g.addr == a }) {
			t.Errorf("step %d: sessions with %v, want %s", i, f, step.want)
		}
	}
}

func TestPlace(t *testing.T) {
	gateway := func(f v1alpha1.Family) v1alpha1.Peer { return v1alpha1.Peer{DefaultGateway: f, ASN: 64500} }
	at := func(list string) following { return following(nil).next(time.Now(), addrs(list)) }
	fixed := v1alpha1.Peer{Address: netip.MustParseAddr("10.0.0.2"), ASN: 64501}
	watched := gateway(v1alpha1.IPv6)
	watched.BFD = &v1alpha1.BFD{Multihop: new(true)}
	for _, tt := range []struct {
		name     string
		peers    []v1alpha1.Peer
		gateways map[string]following
		want     string // peers, with +multihop for multihop BFD
		vip      string // peers of a VIP on the default gateways
	}{
		{name: "none", peers: []v1alpha1.Peer{fixed}, want: "10.0.0.2", vip: "default-ipv4 default-ipv6"},
		{name: "one waits", peers: []v1alpha1.Peer{gateway(v1alpha1.IPv4), fixed}, want: "10.0.0.2 default-ipv4", vip: "default-ipv4 default-ipv6"},
		{
			name: "two of one family, one also a peer of the file", peers: []v1alpha1.Peer{gateway(v1alpha1.IPv4), fixed, gateway(v1alpha1.IPv6)},
			gateways: map[string]following{"default-ipv4": at("10.0.0.1 10.0.0.2"), "default-ipv6": at("fe80::1%eth0")},
			want:     "10.0.0.2 10.0.0.1 fe80::1%eth0", vip: "10.0.0.1 10.0.0.2 fe80::1%eth0",
		},
		{
			name: "BFD on the link and beyond", peers: []v1alpha1.Peer{watched},
			gateways: map[string]following{"default-ipv6": at("fe80::1%eth0 fd00::1")},
			want:     "fe80::1%eth0 fd00::1+multihop", vip: "default-ipv4 fd00::1 fe80::1%eth0",
		},
	} {
		s := Set{BGP: bgp.Config{Peers: tt.peers}}
		s.place(tt.gateways)
		var got []string
		for _, p := range s.BGP.Peers {
			name := p.Name()
			if p.BFD != nil && *p.BFD.Multihop {
				name += "+multihop"
			}
			got = append(got, name)
			if (p.DefaultGateway == "") != (p.Name() == fixed.Name()) {
				t.Errorf("%s: %s is the gateway %q", tt.name, p.Name(), p.DefaultGateway)
			}
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("%s: %q, want %s", tt.name, got, tt.want)
		}
		if got := s.Called([]string{"default-ipv4", "default-ipv6"}); strings.Join(got, " ") != tt.vip {
			t.Errorf("%s: the peers of the VIP are %q, want %s", tt.name, got, tt.vip)
		}
	}
	if got := (Set{}).Called(nil); got != nil {
		t.Errorf("all peers are %q, want nil", got)
	}
}

// The gateway peers of a file and of a BGPPeer follow the routing table: a new gateway gets its session before the old one
// loses its own.
func TestRenewFollowsGateways(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		table := map[v1alpha1.Family]string{v1alpha1.IPv4: "10.0.0.1"}
		var unreadable error
		p := New(slog.New(slog.NewTextHandler(t.Output(), nil)), s, Options{Gateways: func(f v1alpha1.Family) ([]netip.Addr, error) {
			return addrs(table[f]), unreadable
		}})
		file := v1alpha1.Peer{DefaultGateway: v1alpha1.IPv4, ASN: v1alpha1.External, Port: 179, HoldTime: metav1.Duration{Duration: 3 * time.Second}, Families: []v1alpha1.Family{v1alpha1.IPv4}}
		c := &config.Config{BGP: &config.BGP{ASN: 64512, RouterID: netip.MustParseAddr("10.0.0.9"), Peers: []v1alpha1.Peer{file}}}
		resources := Resources{Peers: []*v1alpha1.BGPPeer{router("six", 0, func(s *v1alpha1.Peer) { s.DefaultGateway = v1alpha1.IPv6 })}}
		renewed := func(changed bool, want string) {
			t.Helper()
			if got := p.Renew(context.Background(), c, resources); got != changed || p.Err() != nil {
				t.Errorf("renewed: %t (%v), want %t", got, p.Err(), changed)
			}
			last := s.applied[len(s.applied)-1]
			last.Peers = slices.Clone(last.Peers)
			slices.SortFunc(last.Peers, func(a, b v1alpha1.Peer) int { return cmp.Compare(a.Name(), b.Name()) })
			var names []string
			for _, peer := range last.Peers {
				names = append(names, peer.Name())
			}
			if got := strings.Join(names, " "); got != want {
				t.Errorf("peers %s, want %s", got, want)
			}
		}
		renewed(true, "10.0.0.1 default-ipv6")
		if got := p.InForce().ByName(); !slices.Equal(got["default-ipv4"], []string{"10.0.0.1"}) || !slices.Equal(got["six"], []string{"default-ipv6"}) {
			t.Errorf("names for pools: %v", got)
		}
		table[v1alpha1.IPv4], table[v1alpha1.IPv6] = "10.0.0.2 10.0.0.3", "fe80::1%eth0"
		renewed(true, "10.0.0.1 10.0.0.2 10.0.0.3 fe80::1%eth0")
		renewed(false, "10.0.0.1 10.0.0.2 10.0.0.3 fe80::1%eth0")
		time.Sleep(Linger)
		renewed(true, "10.0.0.2 10.0.0.3 fe80::1%eth0")
		unreadable = errors.New("out of memory")
		if p.Renew(context.Background(), c, resources) || !errors.Is(p.Err(), unreadable) {
			t.Errorf("the error of the routing table is %v", p.Err())
		}
		if got := len(p.InForce().BGP.Peers); got != 3 {
			t.Errorf("%d peers stay, want 3", got)
		}
	})
}
