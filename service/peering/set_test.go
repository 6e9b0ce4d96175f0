package peering

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/bgp"
	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/testenv/must"
)

// router returns a BGPPeer that was created so many hours after the start of 2026.
func router(name string, hours int, change func(*v1alpha1.Peer)) *v1alpha1.BGPPeer {
	r := &v1alpha1.BGPPeer{ObjectMeta: metav1.ObjectMeta{
		Name: name, CreationTimestamp: metav1.NewTime(time.Date(2026, 1, 1, hours, 0, 0, 0, time.UTC)),
	}}
	r.Spec.ASN = 64500
	change(&r.Spec)
	return r
}

// parse parses an address; "" means no address.
func parse(s string) (addr netip.Addr) {
	if s != "" {
		addr = netip.MustParseAddr(s)
	}
	return addr
}

func at(address string) func(*v1alpha1.Peer) {
	return func(s *v1alpha1.Peer) { s.Address = parse(address) }
}

// locked makes a router with a password in a Secret.
func locked(secret string) func(*v1alpha1.Peer) {
	return func(s *v1alpha1.Peer) {
		s.Address, s.PasswordSecretRef = parse("10.0.1.254"), &v1alpha1.SecretReference{Name: secret}
	}
}

func TestSet(t *testing.T) {
	fast := func(s *v1alpha1.Peer) {
		s.Address, s.BFD = parse("10.0.1.254"), &v1alpha1.BFD{Interval: metav1.Duration{Duration: 10 * time.Millisecond}}
	}
	selecting := func(address string, selectors ...v1alpha1.LabelSelector) func(*v1alpha1.Peer) {
		return func(s *v1alpha1.Peer) { s.Address, s.NodeSelectors = parse(address), selectors }
	}
	in := func(zone string) v1alpha1.LabelSelector {
		return v1alpha1.LabelSelector{MatchLabels: map[string]string{"zone": zone}}
	}
	own := func(n v1alpha1.ASN) func(*v1alpha1.Peer) {
		return func(s *v1alpha1.Peer) { s.Address, s.LocalASN = parse("10.0.1.254"), n }
	}
	from := func(own v1alpha1.NodeValue) func(*v1alpha1.Peer) {
		return func(s *v1alpha1.Peer) {
			s.Address, s.ASN, s.LocalASNFrom = parse("10.0.1.254"), v1alpha1.External, &own
		}
	}
	node := Resources{
		Labels:      labels.Set{"zone": "a", "asn": "4200000001"},
		Annotations: map[string]string{"herald.dev/tor-asn": "64501", "herald.dev/reserved": "65535"},
		Password:    passwordOf,
	}
	list := func(peers ...*v1alpha1.BGPPeer) []*v1alpha1.BGPPeer { return peers }
	for _, tt := range []struct {
		name      string
		file      []string // peers of the file
		noFile    bool     // the file has no bgp section
		realtime  bool
		resources []*v1alpha1.BGPPeer
		running   []string // resources that are in force, with the password "old"
		want      string   // peers, after the names that pools use
		leftOut   string
	}{
		{name: "only the file", file: []string{"10.0.1.1"}, want: "10.0.1.1: 10.0.1.1"},
		{name: "both", file: []string{"10.0.1.1"}, resources: list(router("rack", 0, at("fd00:0::1"))), want: "10.0.1.1: 10.0.1.1; rack: fd00::1"},
		{name: "unnumbered", resources: list(router("up", 0, func(s *v1alpha1.Peer) { s.Interface = "eth2" })), want: "up: eth2"},
		{name: "nodes are selected", resources: list(router("here", 0, selecting("10.0.1.1", in("b"), in("a"))), router("elsewhere", 0, selecting("10.0.1.2", in("b")))),
			want: "here: 10.0.1.1"},
		{name: "an invalid selector", resources: list(router("bad", 0, selecting("10.0.1.1", v1alpha1.LabelSelector{MatchLabels: map[string]string{"/": ""}})), router("good", 0, at("10.0.1.2"))),
			want: "good: 10.0.1.2", leftOut: `bad: nodeSelectors: key: Invalid value: "/": prefix part must be non-empty; name part must be non-empty; name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')`},
		{name: "the router is in the file", file: []string{"10.0.1.1"}, resources: list(router("rack", 0, at("10.0.1.1"))), want: "10.0.1.1 and rack: 10.0.1.1",
			leftOut: "rack: the file of this node has a peer 10.0.1.1, which takes precedence"},
		{name: "the name is in the file", file: []string{"10.0.1.1"}, resources: list(router("10.0.1.1", 0, at("10.0.1.2"))), want: "10.0.1.1: 10.0.1.1",
			leftOut: "10.0.1.1: the file of this node has a peer of this name: a pool could mean either, so give it another name"},
		{name: "two resources for one router", resources: list(router("a-new", 2, at("10.0.1.1")), router("z-old", 1, at("10.0.1.1"))), want: "z-old: 10.0.1.1",
			leftOut: "a-new: the older BGPPeer z-old is for the same router"},
		{name: "a Secret that has not been read", resources: list(router("rack", 0, locked("unread"))), leftOut: "rack: the Secret has not been read yet (unread)"},
		{name: "no ASN", noFile: true, resources: list(router("rack", 0, at("10.0.1.1"))),
			leftOut: "rack: it has no localASN, and this node's file has no bgp.asn: add one of them"},
		{name: "its own ASN", noFile: true, resources: list(router("rack", 0, own(64999))), want: "rack: 10.0.1.254 local 64999"},
		{name: "another ASN than the file", resources: list(router("rack", 0, own(64999))), want: "rack: 10.0.1.254 local 64999"},
		{name: "its ASNs on this node", noFile: true, resources: list(router("rack", 0, func(s *v1alpha1.Peer) {
			s.Address, s.ASN = parse("10.0.1.254"), 0
			s.ASNFrom, s.LocalASNFrom = &v1alpha1.NodeValue{Annotation: "herald.dev/tor-asn"}, &v1alpha1.NodeValue{Label: "asn"}
		})), want: "rack: 10.0.1.254 AS 64501 local 4200000001"},
		{name: "any ASN", resources: list(router("rack", 0, from(v1alpha1.NodeValue{Label: "asn"}))), want: "rack: 10.0.1.254 AS external local 4200000001"},
		{name: "no such label", resources: list(router("rack", 0, from(v1alpha1.NodeValue{Label: "example.com/asn"}))),
			leftOut: "rack: localASNFrom: the Node has no label example.com/asn: add it"},
		{name: "no such annotation", resources: list(router("rack", 0, from(v1alpha1.NodeValue{Annotation: "herald.dev/asn"}))),
			leftOut: "rack: localASNFrom: the Node has no annotation herald.dev/asn: add it"},
		{name: "a label that is not an ASN", resources: list(router("rack", 0, from(v1alpha1.NodeValue{Label: "zone"}))),
			leftOut: `rack: localASNFrom: the Node's label zone: give a number from 1 to 4294967294, got "a"`},
		{name: "a reserved ASN while the session is up", resources: list(router("rack", 0, from(v1alpha1.NodeValue{Annotation: "herald.dev/reserved"}))), running: []string{"rack"},
			want: "rack: 10.0.1.254 password old", leftOut: "rack: localASNFrom: the Node's annotation herald.dev/reserved: 65535 is reserved: give the number of an autonomous system; until then the session stays unchanged"},
		{name: "BFD that needs real time", resources: list(router("rack", 0, fast), router("other", 1, at("10.0.1.2"))), want: "other: 10.0.1.2",
			leftOut: "rack: bfd.interval: below 50ms a busy node looks dead: set realtime: true, or a longer interval"},
		{name: "BFD in real time", realtime: true, resources: list(router("rack", 0, fast)), want: "rack: 10.0.1.254 bfd 10ms"},
		{name: "password", resources: list(router("rack", 0, locked("there"))), want: "rack: 10.0.1.254 password new"},
		{name: "no Secret", resources: list(router("rack", 0, locked("missing"))), leftOut: "rack: there is no Secret missing"},
		{name: "the Secret is gone while the session is up", resources: list(router("rack", 0, locked("missing"))), running: []string{"rack"},
			want: "rack: 10.0.1.254 password old", leftOut: "rack: there is no Secret missing; until then the session stays unchanged"},
		{name: "recreated for another router", resources: list(router("rack", 0, func(s *v1alpha1.Peer) {
			locked("missing")(s)
			s.Address = parse("10.0.1.253")
		})), running: []string{"rack"}, leftOut: "rack: there is no Secret missing"},
		{name: "deleted", running: []string{"rack"}},
		{name: "a VIP of the file", resources: list(router("rack", 0, at("10.99.0.10"))),
			leftOut: "rack: address: 10.99.0.10 is a VIP of this speaker, want the address of a router"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := &config.Config{Realtime: tt.realtime, VIPs: []config.VIP{{Addresses: []netip.Addr{netip.MustParseAddr("10.99.0.10")}}}}
			var file bgp.Config
			if !tt.noFile {
				file.ASN = 64512
			}
			for _, address := range tt.file {
				file.Peers = append(file.Peers, v1alpha1.Peer{Address: netip.MustParseAddr(address), ASN: 64500})
			}
			running := make(map[string]v1alpha1.Peer)
			for _, name := range tt.running {
				running[name] = v1alpha1.Peer{Address: netip.MustParseAddr("10.0.1.254"), ASN: 64500, Password: "old"}
			}
			node.Peers = tt.resources
			got := newSet(c, file, node, running)
			var peers, leftOut []string
			unused := maps.Clone(got.Names)
			for _, p := range got.BGP.Peers {
				var names []string
				for _, name := range slices.Sorted(maps.Keys(got.Names)) {
					if got.Names[name] == p.Name() {
						names = append(names, name)
						delete(unused, name)
					}
				}
				peers = append(peers, strings.Join(names, " and ")+": "+inShort(p))
			}
			for _, l := range got.LeftOut {
				leftOut = append(leftOut, l.Peer+": "+l.Reason)
				if l.unread {
					leftOut = append(leftOut, "(unread)")
				}
			}
			if got := strings.Join(peers, "; "); got != tt.want || len(unused) > 0 {
				t.Errorf("peers %q, want %q; names of no peer: %v", got, tt.want, unused)
			}
			if got := strings.Join(leftOut, " "); got != tt.leftOut {
				t.Errorf("left out %q, want %q", got, tt.leftOut)
			}
			for name, p := range got.resources {
				if got.Names[name] != p.Name() {
					t.Errorf("BGPPeer %s is the peer %s, but Names has %s", name, p.Name(), got.Names[name])
				}
			}
			if want := len(tt.file) + len(got.resources); len(peers) != want || len(file.Peers) != len(tt.file) {
				t.Errorf("%d peers, want %d; %d peers in the file", len(peers), want, len(file.Peers))
			}
		})
	}
}

// passwordOf knows only the Secret there.
func passwordOf(ref v1alpha1.SecretReference) (string, error) {
	switch ref.Name {
	case "there":
		return "new", nil
	case "unread":
		return "", fmt.Errorf("the Secret %w", errUnread)
	}
	return "", errors.New("there is no Secret " + ref.Name)
}

func inShort(p v1alpha1.Peer) string {
	out := p.Name()
	if p.ASN != 64500 {
		out += fmt.Sprintf(" AS %s", p.ASN)
	}
	if p.LocalASN != 0 {
		out += fmt.Sprintf(" local %d", p.LocalASN)
	}
	if p.Password != "" {
		out += " password " + p.Password
	}
	if p.BFD != nil {
		out += " bfd " + p.BFD.Interval.Duration.String()
	}
	return out
}

// All fields of a BGPPeer reach the session.
func TestResourceBecomesPeer(t *testing.T) {
	r := router("rack", 0, func(s *v1alpha1.Peer) {
		*s = v1alpha1.Peer{
			Address: parse("10.0.1.254"), ASN: 64512, Port: 1179, LocalAddress: parse("10.0.1.1"), HoldTime: metav1.Duration{Duration: 9 * time.Second},
			TTLSecurity: 2, BFD: &v1alpha1.BFD{Interval: metav1.Duration{Duration: 100 * time.Millisecond}, Multiplier: 5},
			Families: []v1alpha1.Family{v1alpha1.IPv4, v1alpha1.IPv6}, NextHop4: parse("10.0.1.2"), NextHop6: parse("fd00::2"),
			Attributes: v1alpha1.Attributes{
				Communities: []v1alpha1.Community{0xffffff01}, LargeCommunities: []v1alpha1.LargeCommunity{{Global: 1, Local1: 2, Local2: 3}},
				MED: new(uint32(4294967295)), LocalPref: new(uint32(7)), Prepend: 2,
			},
		}
	})
	want := *r.Spec.DeepCopy()
	want.BFD.Multihop = new(true) // because of TTLSecurity
	got := must.Get[v1alpha1.Peer](t)(resourcePeer(&config.Config{}, 64512, r, Resources{}))
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	least, err := resourcePeer(&config.Config{}, 64512, router("least", 0, at("10.0.1.254")), Resources{})
	if err != nil || least.Port != 179 || least.HoldTime.Duration != 3*time.Second || !slices.Equal(least.Families, []v1alpha1.Family{v1alpha1.IPv4}) || least.LocalASN != 0 {
		t.Errorf("a peer with required fields only: %+v, %v", least, err)
	}
}
