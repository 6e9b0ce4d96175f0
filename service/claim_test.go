package service_test

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/herald-vip/herald/service"
	"github.com/herald-vip/herald/service/pool"
	"github.com/herald-vip/herald/testenv/must"
)

func TestOurs(t *testing.T) {
	const mine = "herald.dev/vip"
	for _, c := range []struct {
		name      string
		spec      corev1.ServiceSpec
		isDefault bool
		want      bool
	}{
		{"of no class, by default", corev1.ServiceSpec{Type: "LoadBalancer"}, true, true},
		{"of no class", corev1.ServiceSpec{Type: "LoadBalancer"}, false, false},
		{"of the class", corev1.ServiceSpec{Type: "LoadBalancer", LoadBalancerClass: new(mine)}, false, true},
		{"of another class", corev1.ServiceSpec{Type: "LoadBalancer", LoadBalancerClass: new("example.com/other")}, true, false},
		{"of an empty class", corev1.ServiceSpec{Type: "LoadBalancer", LoadBalancerClass: new("")}, true, false},
		{"of another type", corev1.ServiceSpec{Type: "NodePort"}, true, false},
		{"of another type, with the class", corev1.ServiceSpec{Type: "ClusterIP", LoadBalancerClass: new(mine)}, true, false},
	} {
		if got := (service.Scope{Class: mine, Default: c.isDefault}).Ours(&corev1.Service{Spec: c.spec}); got != c.want {
			t.Errorf("%s: %t", c.name, got)
		}
	}
}

// An unknown annotation with Herald's prefix is refused; other annotations are
// ignored.
func TestUnknownAnnotation(t *testing.T) {
	for name, want := range map[string]string{
		"herald.dev/address":         "there is no annotation herald.dev/address: want one of herald.dev/addresses, herald.dev/pool, herald.dev/share, herald.dev/prefer-nodes",
		"herald.dev/Pool":            "there is no annotation herald.dev/Pool: want one of herald.dev/addresses, herald.dev/pool, herald.dev/share, herald.dev/prefer-nodes",
		"herald.dev/share":           "",
		"example.herald.dev/address": "",
		"metallb.io/loadBalancerIPs": "",
		"herald.devil/annotation":    "",
		"prometheus.io/scrape":       "",
	} {
		s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{name: "x", service.AnnotationPool: "p"}}}
		_, err := service.Scope{}.ClaimOf(s)
		if got := text(err); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestClaimOf(t *testing.T) {
	v4, v6 := []corev1.IPFamily{corev1.IPv4Protocol}, []corev1.IPFamily{corev1.IPv6Protocol}
	dual := []corev1.IPFamily{corev1.IPv6Protocol, corev1.IPv4Protocol}
	addrs := func(list ...string) (out []netip.Addr) {
		for _, a := range list {
			out = append(out, netip.MustParseAddr(a))
		}
		return out
	}
	for _, c := range []struct {
		name string
		spec corev1.ServiceSpec
		// values of the annotations addresses, pool, share, prefer-nodes
		addresses, pool, share, nodes string
		want                          pool.Claim
		err                           string
	}{
		{name: "nothing asked for", spec: corev1.ServiceSpec{IPFamilies: v4, Ports: []corev1.ServicePort{{Port: 53, Protocol: "UDP"}, {Port: 53}}},
			want: pool.Claim{Families: []pool.Family{pool.IPv4}, Policy: "Cluster", Ports: []pool.Port{{Protocol: "UDP", Number: 53}, {Protocol: "TCP", Number: 53}}}},
		{name: "IPv6", spec: corev1.ServiceSpec{IPFamilies: v6}, want: pool.Claim{Families: []pool.Family{pool.IPv6}, Policy: "Cluster"}},
		{name: "dual stack", spec: corev1.ServiceSpec{IPFamilies: dual, IPFamilyPolicy: new(corev1.IPFamilyPolicyRequireDualStack)},
			want: pool.Claim{Families: []pool.Family{pool.IPv6, pool.IPv4}, Policy: "Cluster"}},
		{name: "dual stack if possible", spec: corev1.ServiceSpec{IPFamilies: dual, IPFamilyPolicy: new(corev1.IPFamilyPolicyPreferDualStack)},
			want: pool.Claim{Families: []pool.Family{pool.IPv6, pool.IPv4}, Partial: true, Policy: "Cluster"}},
		{name: "no families", want: pool.Claim{Families: []pool.Family{pool.IPv4}, Policy: "Cluster"}},
		{name: "no families, and an IPv6 address", spec: corev1.ServiceSpec{ClusterIP: "fd00:96::1"}, want: pool.Claim{Families: []pool.Family{pool.IPv6}, Policy: "Cluster"}},
		{name: "local", spec: corev1.ServiceSpec{IPFamilies: v4, ExternalTrafficPolicy: "Local", Selector: map[string]string{"tier": "x", "app": "web"}},
			want: pool.Claim{Families: []pool.Family{pool.IPv4}, Policy: "Local default app=web,tier=x"}},
		{name: "local without a selector", spec: corev1.ServiceSpec{IPFamilies: v4, ExternalTrafficPolicy: "Local"},
			want: pool.Claim{Families: []pool.Family{pool.IPv4}, Policy: "Local default/web"}},
		{name: "everything", spec: corev1.ServiceSpec{IPFamilies: dual}, addresses: " 10.0.0.1 ,fd00::1", pool: " p ", share: "a key",
			want: pool.Claim{Families: []pool.Family{pool.IPv6, pool.IPv4}, Policy: "Cluster", Pool: "p", Share: "a key", Addresses: addrs("10.0.0.1", "fd00::1")}},
		{name: "loadBalancerIP", spec: corev1.ServiceSpec{IPFamilies: v4, LoadBalancerIP: "10.0.0.1"},
			want: pool.Claim{Families: []pool.Family{pool.IPv4}, Policy: "Cluster", Addresses: addrs("10.0.0.1")}},
		{name: "both ways", spec: corev1.ServiceSpec{IPFamilies: dual, LoadBalancerIP: "10.0.0.1"}, addresses: "fd00::1,10.0.0.1,fd00::1",
			want: pool.Claim{Families: []pool.Family{pool.IPv6, pool.IPv4}, Policy: "Cluster", Addresses: addrs("fd00::1", "10.0.0.1")}},
		{name: "IPv4 in IPv6", spec: corev1.ServiceSpec{IPFamilies: v4}, addresses: "::ffff:10.0.0.1",
			want: pool.Claim{Families: []pool.Family{pool.IPv4}, Policy: "Cluster", Addresses: addrs("10.0.0.1")}},
		{name: "both ways, not the same", spec: corev1.ServiceSpec{LoadBalancerIP: "10.0.0.1"}, addresses: "10.0.0.2",
			err: "spec.loadBalancerIP asks for 10.0.0.1, but herald.dev/addresses asks for other addresses: remove one of the two"},
		{name: "no address", spec: corev1.ServiceSpec{LoadBalancerIP: "a\nb"}, err: `spec.loadBalancerIP has "a\nb": want an address such as 10.1.0.1 or fd00::1`},
		{name: "a range", addresses: "10.0.0.1-10.0.0.2", err: `herald.dev/addresses has "10.0.0.1-10.0.0.2": want an address such as 10.1.0.1 or fd00::1`},
		{name: "a comma too many", addresses: "10.0.0.1,", err: `herald.dev/addresses has "": want an address such as 10.1.0.1 or fd00::1`},
		{name: "a zone", addresses: "fe80::1%eth0", err: `herald.dev/addresses has "fe80::1%eth0": want an address such as 10.1.0.1 or fd00::1`},
		{name: "too many", addresses: "10.0.0.1,10.0.0.2,10.0.0.3", err: "herald.dev/addresses has more than two addresses: want one of each family at most"},
		{name: "a novel", addresses: strings.Repeat("é", 1000), err: `herald.dev/addresses has "` + strings.Repeat("é", 25) + `…": want an address such as 10.1.0.1 or fd00::1`},
		{name: "a long name", pool: strings.Repeat("p", 254), err: "herald.dev/pool is 254 bytes long: want the name of a pool of 253 at most"},
		{name: "a key of two lines", share: "a\nb", err: "herald.dev/share has unprintable characters: want a sharing key"},
		{name: "as many nodes as may be", nodes: strings.Repeat("n,", 64), want: pool.Claim{Families: []pool.Family{pool.IPv4}, Policy: "Cluster"}},
		{name: "too many nodes", nodes: strings.Repeat("n,", 65), err: "herald.dev/prefer-nodes names 65 nodes: want 64 at most"},
		{name: "a long key", share: strings.Repeat("k", 254), err: "herald.dev/share is 254 bytes long: want a sharing key of 253 at most"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}, Spec: c.spec}
			s.Annotations = map[string]string{
				service.AnnotationAddresses: c.addresses, service.AnnotationPool: c.pool, service.AnnotationShare: c.share, service.AnnotationPrefer: c.nodes,
			}
			got, err := service.Scope{}.ClaimOf(s)
			if c.err != "" {
				var refusal *pool.Refusal
				if !errors.As(err, &refusal) || refusal.Reason != pool.InvalidClaim || refusal.Message != c.err {
					t.Errorf("error %v, want %s", err, c.err)
				}
				return
			}
			c.want.Key = "default/web"
			if diff := cmp.Diff(c.want, got, cmpopts.EquateComparable(netip.Addr{}), cmpopts.IgnoreFields(pool.Claim{}, "SelectedBy")); diff != "" || err != nil {
				t.Errorf("error %v (-want +got):\n%s", err, diff)
			}
		})
	}
}

// TestCompatibility uses annotations of other products, which count if they are configured and Herald's is absent.
func TestCompatibility(t *testing.T) {
	type claim struct{ Address, Pool, Share string }
	all := []string{"metallb", "kube-vip", "cilium"}
	for _, c := range []struct {
		name          string
		compatibility []string
		annotations   map[string]string
		want          claim
		err           string
	}{
		{"not asked for", nil, map[string]string{"metallb.io/loadBalancerIPs": "10.0.0.1", "kube-vip.io/loadbalancerIPs": "x"}, claim{}, ""},
		{"another's", []string{"cilium"}, map[string]string{"metallb.io/loadBalancerIPs": "10.0.0.1"}, claim{}, ""},
		{"MetalLB's", []string{"metallb"}, map[string]string{
			"metallb.io/loadBalancerIPs": "10.0.0.1", "metallb.io/address-pool": "p", "metallb.io/allow-shared-ip": "k"}, claim{"10.0.0.1", "p", "k"}, ""},
		{"MetalLB's old ones", []string{"metallb"}, map[string]string{
			"metallb.universe.tf/loadBalancerIPs": "10.0.0.1", "metallb.universe.tf/address-pool": "p", "metallb.universe.tf/allow-shared-ip": "k"},
			claim{"10.0.0.1", "p", "k"}, ""},
		{"both of MetalLB's", []string{"metallb"}, map[string]string{
			"metallb.universe.tf/loadBalancerIPs": "10.0.0.2", "metallb.io/loadBalancerIPs": "10.0.0.1"}, claim{Address: "10.0.0.1"}, ""},
		{"kube-vip's", all, map[string]string{"kube-vip.io/loadbalancerIPs": "10.0.0.1"}, claim{Address: "10.0.0.1"}, ""},
		{"Cilium's", all, map[string]string{"lbipam.cilium.io/ips": "10.0.0.1", "lbipam.cilium.io/sharing-key": "k"}, claim{Address: "10.0.0.1", Share: "k"}, ""},
		{"Cilium's old ones", all, map[string]string{"io.cilium/lb-ipam-ips": "10.0.0.1", "io.cilium/lb-ipam-sharing-key": "k"}, claim{Address: "10.0.0.1", Share: "k"}, ""},
		{"the first that counts", []string{"cilium", "metallb"}, map[string]string{
			"metallb.io/loadBalancerIPs": "10.0.0.1", "lbipam.cilium.io/ips": "10.0.0.2"}, claim{Address: "10.0.0.2"}, ""},
		{"Herald's before others'", all, map[string]string{"metallb.io/loadBalancerIPs": "x", "herald.dev/addresses": "10.0.0.3"}, claim{Address: "10.0.0.3"}, ""},
		{"a mistake", all, map[string]string{"metallb.io/loadBalancerIPs": "x"}, claim{},
			`metallb.io/loadBalancerIPs has "x": want an address such as 10.1.0.1 or fd00::1`},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", Annotations: c.annotations}}
			for name := range c.annotations {
				if !service.Reads(name) {
					t.Errorf("%s is reported as ignored", name)
				}
			}
			claimed, err := service.Scope{Compatibility: c.compatibility}.ClaimOf(s)
			if text(err) != c.err {
				t.Fatalf("error %v, want %q", err, c.err)
			}
			got := claim{Pool: claimed.Pool, Share: claimed.Share}
			if len(claimed.Addresses) > 0 {
				got.Address = claimed.Addresses[0].String()
			}
			if got != c.want {
				t.Errorf("asks for %+v, want %+v", got, c.want)
			}
		})
	}
	if service.Reads("kubectl.kubernetes.io/last-applied-configuration") {
		t.Error("Reads returns true for every annotation")
	}
}

// FuzzClaimOf assigns addresses to arbitrary Services.
func FuzzClaimOf(f *testing.F) {
	f.Add("10.0.0.1", "", "", "", uint8(0))
	f.Add("", "10.0.0.1,fd00::1", "p", "k", uint8(6))
	f.Add("", "", strings.Repeat("\x01", 253), "", uint8(1))
	f.Add("fe80::1%\x00", ",", "\xff", "\n", uint8(255))
	f.Fuzz(func(t *testing.T, ip, addresses, named, share string, bits uint8) {
		s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}}
		s.Annotations = map[string]string{service.AnnotationAddresses: addresses, service.AnnotationPool: named, service.AnnotationShare: share}
		s.Spec.LoadBalancerIP = ip
		for n, family := range []corev1.IPFamily{"IPv4", "IPv6", corev1.IPFamily(share)} {
			if bits>>n&1 != 0 {
				s.Spec.IPFamilies = append(s.Spec.IPFamilies, family)
			}
		}
		if bits>>3&1 != 0 {
			s.Spec.IPFamilyPolicy = new(corev1.IPFamilyPolicyPreferDualStack)
		}
		s.Spec.Ports = []corev1.ServicePort{{Port: int32(bits), Protocol: corev1.Protocol(share)}}
		says := func(err error) {
			var refusal *pool.Refusal
			if !errors.As(err, &refusal) {
				t.Fatalf("error is not a refusal: %v", err)
			}
			text := refusal.Message
			if len(text) > 1024 || !utf8.ValidString(text) || strings.ContainsFunc(text, unicode.IsControl) {
				t.Fatalf("message unfit for an event: %q", text)
			}
		}
		c, err := service.Scope{}.ClaimOf(s)
		if err != nil {
			says(err)
			return
		}
		a := pool.New()
		r := must.Get[pool.Range](t)(pool.ParseRange("10.0.0.0/30"))
		must.Do(t, a.Replace([]pool.Pool{{Name: "p", AutoAssign: true, Ranges: []pool.Range{r}}}))
		got, err := a.Assign(c)
		if err != nil {
			says(err)
			return
		}
		for _, want := range c.Addresses {
			if !strings.Contains(fmt.Sprint(got), want.String()) {
				t.Fatalf("%v, want %v", got, c.Addresses)
			}
		}
	})
}
