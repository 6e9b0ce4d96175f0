package config_test

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/herald-vip/herald/api/v1alpha1"
)

func TestBGPMistakes(t *testing.T) {
	checkMistakes(t, []mistake{
		{"bgp:\n  asn: 64512\n  peers:\n  - address: 10.0.1.254\n    asn: 64500\n", "", "7:13: vips[0].announce: bgp needs a bgp section: add one"},
		{"bgp:\n  asn: 64512\n  peers:\n  - address: 10.0.1.254\n    asn: 64500\n", "bgp: 5\n", "12:6: bgp: want fields (name: value), got the number 5"},
		{"bgp:\n", "bpg:\n", "12:1: bpg: unknown field, did you mean bgp?"},
		{"bgp:\n  asn: 64512\n  peers:\n  - address: 10.0.1.254\n    asn: 64500\n", "bgp: {}\n", "12:6: bgp.asn: give a number from 1 to 4294967294\n12:6: bgp.peers: at least one is needed"},
		{"  - address: 10.0.1.254\n    asn: 64500\n", "  []\n", "15:3: bgp.peers: at least one is needed"},
		{"asn: 64512", "asn: 0", "13:8: bgp.asn: give a number from 1 to 4294967294"},
		{"asn: 64512", "asn: 23456", "13:8: bgp.asn: 23456 is reserved: give the number of an autonomous system"},
		{"asn: 64512", "asn: 65535", "13:8: bgp.asn: 65535 is reserved: give the number of an autonomous system"},
		{"asn: 64512", "asn: 4294967295", "13:8: bgp.asn: 4294967295 is reserved: give the number of an autonomous system"},
		{"asn: 64512", "asn: 4294967296", "13:8: bgp.asn: want a number from 0 to 4294967295, got 4294967296"},
		{"asn: 64512", "asn: -1", "13:8: bgp.asn: want a number from 0 to 4294967295, got -1"},
		{"asn: 64512", "asn: 1.10", "13:8: bgp.asn: want a whole number, got the number 1.10"},
		{"asn: 64512", `asn: "64512"`, `13:8: bgp.asn: want a whole number, got the text "64512"`},
		{"  asn: 64512\n", "  asn: 64512\n  routerID: \"fd00::1\"\n", "14:13: bgp.routerID: want an IPv4 address other than 0.0.0.0, got fd00::1"},
		{"  asn: 64512\n", "  asn: 64512\n  routerID: 0.0.0.0\n", "14:13: bgp.routerID: want an IPv4 address other than 0.0.0.0, got 0.0.0.0"},
		{"  asn: 64512\n", "  asn: 64512\n  connectRetry: 1s\n", "14:17: bgp.connectRetry: want 2s to 60s, got 1s"},
		{"  asn: 64512\n", "  asn: 64512\n  connectRetry: 61s\n", "14:17: bgp.connectRetry: want 2s to 60s, got 1m1s"},
		{"  asn: 64512\n", "  asn: 64512\n  connectRetry: 2500ms\n", "14:17: bgp.connectRetry: want whole seconds, got 2.5s"},
		{"  asn: 64512\n", "  asn: 64512\n  listen: {port: 0, addresses: [224.0.0.1, 10.0.0.1, 10.0.0.1]}\n", "14:18: bgp.listen.port: want 1 to 65535, got 0\n14:33: bgp.listen.addresses[0]: want an address of this host, got 224.0.0.1\n14:54: bgp.listen.addresses[2]: 10.0.0.1 is listed twice"},
		{"  asn: 64512\n", "  asn: 64512\n  listen: {port: 65536}\n", "14:18: bgp.listen.port: want a number from 0 to 65535, got 65536"},
		{"  asn: 64512\n", "  asn: 64512\n  localPref: 1\n", "14:14: bgp.localPref: only iBGP peers receive it: remove it"},
		{"  asn: 64512\n", "  asn: 64512\n  prepend: -1\n", "14:12: bgp.prepend: want 0 to 10, got -1"},
		{"  asn: 64512\n", "  asn: 64512\n  med: -1\n", "14:8: bgp.med: want a number from 0 to 4294967295, got -1"},
		{"  asn: 64512\n", "  asn: 64512\n  communities: [64512, \"1:2:3\", \"65536:1\", \"x:1\", no-exprot, \"1:2\", \"1:2\"]\n", `14:17: bgp.communities[0]: want text, got the number 64512: put it in quotes
14:24: bgp.communities[1]: want a community such as 65000:100 or no-export, got "1:2:3"
14:33: bgp.communities[2]: want a community such as 65000:100 or no-export, got "65536:1"
14:44: bgp.communities[3]: want a community such as 65000:100 or no-export, got "x:1"
14:51: bgp.communities[4]: want a community such as 65000:100 or no-export, got "no-exprot"
14:69: bgp.communities[6]: 1:2 is listed twice`},
		{"  asn: 64512\n", "  asn: 64512\n  largeCommunities: [\"1:2\", \"1:2:4294967296\", \"1:2:3\", \"1:2:3\"]\n", "14:22: bgp.largeCommunities[0]: want a large community such as 64512:1:2, got \"1:2\"\n14:29: bgp.largeCommunities[1]: want a large community such as 64512:1:2, got \"1:2:4294967296\"\n14:56: bgp.largeCommunities[3]: 1:2:3 is listed twice"},
	})
}

func TestPeersMistakes(t *testing.T) {
	checkMistakes(t, []mistake{
		{"asn: 64500", "port: 179", "15:5: bgp.peers[0].asn: give a number from 1 to 4294967294"},
		{"asn: 64500", "asn: 0", "16:10: bgp.peers[0].asn: give a number from 1 to 4294967294"},
		{"asn: 64500", "asn: 23456", "16:10: bgp.peers[0].asn: 23456 is reserved: give the number of an autonomous system"},
		{"asn: 64500", "asn: 4294967295", "16:10: bgp.peers[0].asn: want a number from 1 to 4294967294, or external, got the number 4294967295"},
		{"asn: 64500", "asn: internal", `16:10: bgp.peers[0].asn: want a number from 1 to 4294967294, or external, got the text "internal"`},
		{"asn: 64500", `asn: "64500"`, `16:10: bgp.peers[0].asn: want a number from 1 to 4294967294, or external, got the text "64500"`},
		{"asn: 64500", "asn: 010", "16:10: bgp.peers[0].asn: want a number from 1 to 4294967294, or external, got the number 010"},
		{"asn: 64500", "asn: [64500]", "16:10: bgp.peers[0].asn: want a number from 1 to 4294967294, or external, got a list"},
		{"asn: 64500", "asn: external\n    localPref: 1", "17:16: bgp.peers[0].localPref: only iBGP peers receive it: remove it"},
		{"address: 10.0.1.254", "interface: eth0\n    address: 10.0.1.254", "15:5: bgp.peers[0]: has both address and interface: keep one"},
		{"address: 10.0.1.254", "port: 179", "15:5: bgp.peers[0].address: missing: give the peer's address, its interface if unnumbered, or defaultGateway"},
		{"address: 10.0.1.254", "address: 10.0.1.254\n    defaultGateway: ipv4", "16:21: bgp.peers[0].defaultGateway: excludes address and interface: keep one"},
		{"address: 10.0.1.254", "interface: eth0\n    defaultGateway: ipv4", "16:21: bgp.peers[0].defaultGateway: excludes address and interface: keep one"},
		{"address: 10.0.1.254", "defaultGateway: true", "15:21: bgp.peers[0].defaultGateway: want text, got true: put it in quotes"},
		{"address: 10.0.1.254", "defaultGateway: ipv5\n    families: [ipv4]", `15:21: bgp.peers[0].defaultGateway: want ipv4 or ipv6, got "ipv5"`},
		{"address: 10.0.1.254", "defaultGateway: ipv6", "6:15: vips[0].addresses[0]: no peer carries ipv4 routes: add ipv4 to the families of one"},
		{"address: 10.0.1.254", "defaultGateway: ipv4\n    localAddress: \"fd00::1\"", "16:19: bgp.peers[0].localAddress: want an ipv4 address like the gateway's, got fd00::1"},
		{"asn: 64500", "asn: 64500\n  - {defaultGateway: ipv4, asn: 64501}\n  - {defaultGateway: ipv4, asn: 64501}", "18:5: bgp.peers[2]: default-ipv4 is bgp.peers[1] already"},
		{"address: 10.0.1.254", "address: 224.0.0.1", "15:14: bgp.peers[0].address: want the unicast address of a router, got 224.0.0.1"},
		{"address: 10.0.1.254", `address: "::"`, "6:15: vips[0].addresses[0]: no peer carries ipv4 routes: add ipv4 to the families of one\n15:14: bgp.peers[0].address: want the unicast address of a router, got ::"},
		{"address: 10.0.1.254", "address: 255.255.255.255", "15:14: bgp.peers[0].address: want the unicast address of a router, got 255.255.255.255"},
		{"address: 10.0.1.254", "address: 10.0.1.0/24", "15:14: bgp.peers[0].address: want one address, got the network 10.0.1.0/24"},
		{"address: 10.0.1.254", "address: \"fe80::1\"\n    families: [ipv4]", "15:14: bgp.peers[0].address: a link-local address needs a zone: write fe80::1%eth0 with the link's name"},
		{"address: 10.0.1.254", `address: "fd00::1%eth0"`, "15:14: bgp.peers[0].address: only a link-local address has a zone: remove %eth0"},
		{"address: 10.0.1.254", "address: 10.99.0.10", "15:14: bgp.peers[0].address: 10.99.0.10 is a VIP of this speaker, want the address of a router"},
		{"address: 10.0.1.254", "interface: a-name-too-long1", `15:16: bgp.peers[0].interface: want the name of a link, at most 15 characters, got "a-name-too-long1"`},
		{"asn: 64500", "asn: 64500\n  - {address: 10.0.1.254, asn: 64501}", "17:5: bgp.peers[1]: 10.0.1.254 is bgp.peers[0] already"},
		{"asn: 64500", "asn: 64500\n  - {interface: eth1, asn: 64501}\n  - {interface: eth1, asn: 64501}", "18:5: bgp.peers[2]: eth1 is bgp.peers[1] already"},
		{"asn: 64500", "asn: 64500\n    port: 0", "17:11: bgp.peers[0].port: want 1 to 65535, got 0"},
		{"asn: 64500", "asn: 64500\n    localAddress: \"fd00::1\"", "17:19: bgp.peers[0].localAddress: want an ipv4 address like the peer's, got fd00::1"},
		{"asn: 64500", "asn: 64500\n    localAddress: 0.0.0.0", "17:19: bgp.peers[0].localAddress: want an address of this host, got 0.0.0.0"},
		{"address: 10.0.1.254", "interface: eth1\n    localAddress: 10.0.0.1", "16:19: bgp.peers[0].localAddress: an unnumbered session uses the link-local address: remove it"},
		{"asn: 64500", "asn: 64500\n    passwordFile: secret", "17:19: bgp.peers[0].passwordFile: want the absolute path of a file"},
		{"asn: 64500", "asn: 64500\n    password: secret", "17:5: bgp.peers[0].password: unknown field, did you mean passwordFile?"},
		{"asn: 64500", "asn: 64500\n    holdTime: 2s", "17:15: bgp.peers[0].holdTime: want 3s to 65535s, got 2s"},
		{"asn: 64500", "asn: 64500\n    holdTime: 3500ms", "17:15: bgp.peers[0].holdTime: want whole seconds, got 3.5s"},
		{"asn: 64500", "asn: 64500\n    holdTime: 65536s", "17:15: bgp.peers[0].holdTime: want 3s to 65535s, got 18h12m16s"},
		{"asn: 64500", "asn: 64500\n    holdTime: 90", "17:15: bgp.peers[0].holdTime: want a duration such as 200ms, got the number 90"},
		{"asn: 64500", "asn: 64500\n    multihop: 256", "17:15: bgp.peers[0].multihop: want a number from 0 to 255, got 256"},
		{"asn: 64500", "asn: 64512\n    multihop: 2", "17:15: bgp.peers[0].multihop: an iBGP session is not limited to one hop: remove it"},
		{"asn: 64500", "asn: 64500\n    multihop: 2\n    ttlSecurity: 1", "18:18: bgp.peers[0].ttlSecurity: multihop and ttlSecurity exclude each other: keep one"},
		{"asn: 64500", "asn: 64500\n    ttlSecurity: 255", "17:18: bgp.peers[0].ttlSecurity: want 0 to 254, got 255"},
		{"address: 10.0.1.254", "interface: eth1\n    multihop: 2\n    ttlSecurity: 1", "16:15: bgp.peers[0].multihop: an unnumbered peer is always on the link: remove it\n17:18: bgp.peers[0].ttlSecurity: an unnumbered peer is always on the link: remove it"},
		{"asn: 64500", "asn: 64500\n    families: []", "17:15: bgp.peers[0].families: list ipv4, ipv6 or both"},
		{"asn: 64500", "asn: 64500\n    families: [ipv6]", "6:15: vips[0].addresses[0]: no peer carries ipv4 routes: add ipv4 to the families of one"},
		{"asn: 64500", "asn: 64500\n    families: [ipv4, ipv5, ipv4]", "17:22: bgp.peers[0].families[1]: want ipv4 or ipv6, got \"ipv5\"\n17:28: bgp.peers[0].families[2]: ipv4 is listed twice"},
		{"asn: 64500", "asn: 64500\n    nextHop4: \"fd00::1\"\n    nextHop6: 10.0.0.1", "17:15: bgp.peers[0].nextHop4: want an ipv4 address of this host, got fd00::1\n18:15: bgp.peers[0].nextHop6: want an ipv6 address of this host, got 10.0.0.1"},
		{"asn: 64500", "asn: 64500\n    nextHop4: 224.0.0.1", "17:15: bgp.peers[0].nextHop4: want an ipv4 address of this host, got 224.0.0.1"},
		{"asn: 64500", "asn: 64500\n    nextHop6: \"fd00::1\"", "17:15: bgp.peers[0].nextHop6: the session carries no ipv6 routes: add ipv6 to families or remove it"},
		{"asn: 64500", "asn: 64500\n    families: [ipv4, ipv6]\n    nextHop6: \"fe80::1%eth0\"", "18:15: bgp.peers[0].nextHop6: want an ipv6 address of this host, got fe80::1%eth0"},
		{"asn: 64500", "asn: 64500\n    localPref: 1", "17:16: bgp.peers[0].localPref: only iBGP peers receive it: remove it"},
		{"asn: 64500", "asn: 64500\n    prepend: 11\n    communities: [x]", "17:14: bgp.peers[0].prepend: want 0 to 10, got 11\n18:19: bgp.peers[0].communities[0]: want a community such as 65000:100 or no-export, got \"x\""},
		{"asn: 64500", "asn: 64500\n    bfd: {interval: 9ms, multiplier: 1}", "17:21: bgp.peers[0].bfd.interval: want 10ms to 10s, got 9ms\n17:21: bgp.peers[0].bfd.interval: below 50ms a busy node looks dead: set realtime: true, or a longer interval\n17:38: bgp.peers[0].bfd.multiplier: want 2 to 50, got 1"},
		{"asn: 64500", "asn: 64500\n    bfd: {interval: 11s, multiplier: 51}", "17:21: bgp.peers[0].bfd.interval: want 10ms to 10s, got 11s\n17:38: bgp.peers[0].bfd.multiplier: want 2 to 50, got 51"},
		{"address: 10.0.1.254", "interface: eth1\n    bfd: {multihop: true}", "16:21: bgp.peers[0].bfd.multihop: a peer with a link-local address is always on the link: remove it"},
		{"asn: 64500", "asn: 64500\n    ttlSecurity: 2\n    bfd: {multihop: false}", "18:21: bgp.peers[0].bfd.multihop: the peer may be several hops away: remove it"},
		{"asn: 64500", "asn: 64500\n    bfd: {interval: 66.6667ms}", "17:21: bgp.peers[0].bfd.interval: want whole microseconds, got 66.6667ms"},
		{"asn: 64500", "asn: 64500\n    bfd: {intervall: 50ms}", "17:11: bgp.peers[0].bfd.intervall: unknown field, did you mean interval?"},
		{"asn: 64500", "asn: 64500\n    bfd: {multiplier: 256}", "17:23: bgp.peers[0].bfd.multiplier: want a number from 0 to 255, got 256"},
		{"asn: 64500", "asn: 64500\n    largeCommunities: [\"4294967295:1:2\"]", "17:24: bgp.peers[0].largeCommunities[0]: the number 4294967295 is reserved, got \"4294967295:1:2\""},
		{
			"- name: web\n  addresses: [10.99.0.10]", "- name: web\n  addresses: [\"fd00:99::10\"]\n  peers: [10.0.1.254]",
			"6:15: vips[0].addresses[0]: no peer of the VIP carries ipv6 routes: add ipv6 to the families of one",
		},
		// A VIP is not reported as uncarried while the families of a session are unclear.
		{"address: 10.0.1.254", "address: \"fd00::1\"\n    families: ipv4", `16:15: bgp.peers[0].families: want a list, got the text "ipv4"`},
		{"address: 10.0.1.254", "address: \"fd00::1\"\n    families: [4]", "16:16: bgp.peers[0].families[0]: want text, got the number 4: put it in quotes"},
		{"  - address: 10.0.1.254\n    asn: 64500\n", "    []\n  localPref: 1\n", "15:5: bgp.peers: at least one is needed"},
		// Without an ASN, the fields that depend on it are not validated.
		{
			"  asn: 64512\n  peers:\n  - address: 10.0.1.254\n    asn: 64500", "  localPref: 1\n  peers:\n  - address: 10.0.1.254\n    multihop: 2\n    localPref: 1",
			"13:3: bgp.asn: give a number from 1 to 4294967294\n15:5: bgp.peers[0].asn: give a number from 1 to 4294967294",
		},
	})
}

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
