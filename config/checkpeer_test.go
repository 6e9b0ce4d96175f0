package config_test

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/herald-vip/herald/api/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A peer from elsewhere obeys the rules of those in the file.
func TestCheckPeer(t *testing.T) {
	c := mustParse(t, base)
	for _, tt := range []struct {
		name   string
		change func(*v1alpha1.Peer)
		want   string
	}{
		{name: "fine", change: func(*v1alpha1.Peer) {}},
		{name: "iBGP", change: func(p *v1alpha1.Peer) { p.ASN = 64999; p.LocalPref = new(uint32(200)) }},
		{name: "the ASN of the file is another", change: func(p *v1alpha1.Peer) { p.ASN = 64512; p.LocalPref = new(uint32(200)) },
			want: "localPref: only iBGP peers receive it: remove it"},
		{name: "not in real time", change: func(p *v1alpha1.Peer) {
			p.BFD = &v1alpha1.BFD{Interval: metav1.Duration{Duration: 10 * time.Millisecond}, Multiplier: 3}
		},
			want: "bfd.interval: below 50ms a busy node looks dead: set realtime: true, or a longer interval"},
		{name: "a VIP", change: func(p *v1alpha1.Peer) {
			p.Address = netip.MustParseAddr("10.99.0.10")
			p.Multihop, p.TTLSecurity = 2, 2
		},
			want: "address: 10.99.0.10 is a VIP of this speaker, want the address of a router; ttlSecurity: multihop and ttlSecurity exclude each other: keep one"},
		{name: "beyond its limits", change: func(p *v1alpha1.Peer) { p.HoldTime.Duration, p.Prepend = time.Second, 200 },
			want: "holdTime: want 3s to 65535s, got 1s; prepend: want 0 to 10, got 200"},
		{name: "both names", change: func(p *v1alpha1.Peer) { p.Interface = "eth0" }, want: "has both address and interface: keep one"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := v1alpha1.Peer{Address: netip.MustParseAddr("10.0.1.253"), ASN: 64500, Port: 179, HoldTime: metav1.Duration{Duration: 3 * time.Second}}
			tt.change(&p)
			got := ""
			if err := c.CheckPeer(64999, &p); err != nil {
				got = err.Error()
			}
			if got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			if tt.name == "fine" && !slices.Equal(p.Families, []v1alpha1.Family{v1alpha1.IPv4}) {
				t.Errorf("families %v, want those of its address", p.Families)
			}
		})
	}
	if len(c.BGP.Peers) != 1 || c.BGP.ASN != 64512 {
		t.Errorf("the configuration itself has changed: %+v", c.BGP)
	}
}
