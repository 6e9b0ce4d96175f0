package router_test

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/herald-vip/herald/testenv/router"
)

const fullConfig = `frr version 8.4.4
frr defaults datacenter
hostname r1
log syslog informational
service integrated-vtysh-config
no_such: "comments start with ! or #"
!
# another comment
ip forwarding
router bgp 64500
 bgp router-id 10.0.0.254
 bgp log-neighbor-changes
 no bgp default ipv4-unicast
 bgp bestpath as-path multipath-relax
 neighbor 10.0.1.1 remote-as 64512
 neighbor 10.0.1.1 description master m1
 neighbor 10.0.1.1 password sesame
 neighbor 10.0.1.1 timers 1 3
 neighbor 10.0.1.1 timers connect 1
 neighbor 10.0.1.1 bfd profile fast
 neighbor 10.0.1.1 passive
 neighbor 10.0.1.2 remote-as 64512
 neighbor 10.0.1.2 ebgp-multihop 4
 neighbor 10.0.1.3 remote-as 64513
 neighbor 10.0.1.3 ttl-security hops 1
 neighbor 10.0.1.3 timers 30 10
 neighbor fe80::1%eth0 remote-as 64512
 !
 address-family ipv4 unicast
  neighbor 10.0.1.1 activate
  neighbor 10.0.1.1 prefix-list VIPS in
  neighbor 10.0.1.1 prefix-list NONE out
  neighbor 10.0.1.2 activate
  neighbor 10.0.1.2 route-map IN in
  neighbor 10.0.1.3 activate
  maximum-paths 8
 exit-address-family
 !
 address-family ipv6 unicast
  neighbor 10.0.1.1 activate
  neighbor 10.0.1.1 route-map IN in
  neighbor fe80::1%eth0 activate
  maximum-paths 16
 exit-address-family
exit
!
ip prefix-list VIPS seq 10 permit 10.99.0.0/24 ge 32
ip prefix-list VIPS seq 5 deny 10.99.0.66/32
ip prefix-list VIPS permit 10.98.0.0/16 ge 24 le 28
ipv6 prefix-list VIPS permit fd00:99::/64 ge 128
route-map IN deny 10
 match ip address prefix-list BAD
exit
route-map IN permit 20
 match ipv6 address prefix-list VIPS
route-map IN permit 30
 match ip address prefix-list VIPS
exit
ip prefix-list BAD permit 10.99.0.13/32
bfd
 profile fast
  detect-multiplier 3
  transmit-interval 50
  receive-interval 50
 exit
 peer 10.0.1.1
 exit
exit
line vty
end
`

func parse(t *testing.T, text string) *router.Config {
	t.Helper()
	cfg, err := router.ParseConfig("frr.conf", strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func TestParseConfig(t *testing.T) {
	cfg := parse(t, strings.Replace(fullConfig, "no_such:", "!", 1))
	want := &router.Config{
		ASN:            64500,
		RouterID:       addr("10.0.0.254"),
		MultipathRelax: true,
		MaximumPaths4:  8,
		MaximumPaths6:  16,
		Neighbors: []*router.Neighbor{
			{Address: addr("10.0.1.1"), ASN: 64512, Password: "sesame", Keepalive: time.Second, Hold: 3 * time.Second},
			{Address: addr("10.0.1.2"), ASN: 64512, Keepalive: 3 * time.Second, Hold: 9 * time.Second, Multihop: 4},
			{Address: addr("10.0.1.3"), ASN: 64513, Keepalive: 3 * time.Second, Hold: 10 * time.Second, TTLSecurity: 1},
			{Address: addr("fe80::1%eth0"), ASN: 64512, Keepalive: 3 * time.Second, Hold: 9 * time.Second},
		},
	}
	if diff := cmp.Diff(want, cfg, compareNetip, cmpopts.IgnoreTypes(&router.Policy{})); diff != "" {
		t.Errorf("config (-want +got):\n%s", diff)
	}

	accepts := []struct {
		neighbor int
		prefix   string
		want     bool
	}{
		{0, "10.99.0.10/32", true},
		{0, "10.99.0.66/32", false}, // seq 5, though written later
		{0, "10.99.0.0/24", false},  // shorter than ge
		{0, "10.99.1.1/32", false},
		{0, "10.98.1.0/24", true},
		{0, "10.98.1.0/28", true},
		{0, "10.98.1.0/29", false},
		{0, "10.98.0.0/16", false},
		{0, "10.99.0.13/32", true}, // only the route-map refuses it
		{0, "fd00:99::10/128", true},
		{0, "fd00:98::10/128", false},
		{1, "10.99.0.10/32", true},
		{1, "10.99.0.13/32", false},
		{1, "10.97.0.1/32", false},
		{2, "10.99.0.10/32", false}, // no policy (RFC 8212)
	}
	for _, a := range accepts {
		prefix := netip.MustParsePrefix(a.prefix)
		policy := cfg.Neighbors[a.neighbor].IPv4
		if prefix.Addr().Is6() {
			policy = cfg.Neighbors[a.neighbor].IPv6
		}
		if got := policy.Accepts(prefix); got != a.want {
			t.Errorf("neighbor %v, %v: accepted %v, want %v", cfg.Neighbors[a.neighbor].Address, prefix, got, a.want)
		}
	}
	for i, want := range []struct{ v4, v6 bool }{{true, true}, {true, false}, {true, false}, {false, true}} {
		n := cfg.Neighbors[i]
		if got4, got6 := n.IPv4 != nil, n.IPv6 != nil; got4 != want.v4 || got6 != want.v6 {
			t.Errorf("neighbor %v: active for IPv4 %v and IPv6 %v, want %v and %v", n.Address, got4, got6, want.v4, want.v6)
		}
	}
	if !cfg.Neighbors[2].IPv4.AcceptsNothing() || cfg.Neighbors[0].IPv4.AcceptsNothing() {
		t.Error("AcceptsNothing is not as the policies are")
	}
}

// The router stands in for FRR in the topology that the demo shows.
func TestParseConfigOfTopology(t *testing.T) {
	files, err := filepath.Glob("../topologies/bgp/*.conf")
	if err != nil || len(files) == 0 {
		t.Fatalf("no frr.conf in the bgp topology: %v", err)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		cfg, err := router.ParseConfig(name, strings.NewReader(string(text)))
		if err != nil {
			t.Error(err)
			continue
		}
		for _, n := range cfg.Neighbors {
			policy, vip := n.IPv4, vip4
			if policy == nil {
				policy, vip = n.IPv6, vip6
			}
			if policy == nil || !policy.Accepts(netip.MustParsePrefix(vip)) {
				t.Errorf("%s: neighbor %v may not announce %s", name, n.Address, vip)
			}
		}
	}
}

func TestParseConfigDefaults(t *testing.T) {
	const start = "router bgp 64500\n bgp router-id 10.0.0.254\n neighbor 10.0.1.1 remote-as "
	vip := netip.MustParsePrefix("10.99.0.10/32")

	n := parse(t, start+"64512\n").Neighbors[0]
	if n.Keepalive != time.Minute || n.Hold != 3*time.Minute {
		t.Errorf("timers %v and %v, want FRR's 1m and 3m", n.Keepalive, n.Hold)
	}
	if n.IPv4 == nil || n.IPv6 != nil {
		t.Error("want IPv4 active and IPv6 not, as in FRR")
	}
	if n.IPv4.Accepts(vip) {
		t.Error("a route is accepted from an external neighbour without a policy")
	}
	if !parse(t, start+"64500\n").Neighbors[0].IPv4.Accepts(vip) {
		t.Error("a route is not accepted from an internal neighbour without a policy")
	}
	if !parse(t, start+"64512\n no bgp ebgp-requires-policy\n").Neighbors[0].IPv4.Accepts(vip) {
		t.Error("a route is not accepted though none requires a policy")
	}
	n = parse(t, start+"64512\n timers bgp 10 20\n address-family ipv4 unicast\n  no neighbor 10.0.1.1 activate\n").Neighbors[0]
	if n.IPv4 != nil || n.Keepalive != 6*time.Second || n.Hold != 20*time.Second {
		t.Errorf("IPv4 %v, timers %v and %v, want inactive, 6s (a third) and 20s", n.IPv4, n.Keepalive, n.Hold)
	}
}

func TestParseConfigErrors(t *testing.T) {
	const start = "router bgp 64500\n bgp router-id 10.0.0.254\n"
	tests := []struct{ text, want string }{
		{"", "`router bgp ASN` is missing"},
		{"router bgp 64500\n", "`bgp router-id ADDRESS` is missing"},
		{strings.TrimSuffix(fullConfig, "end\n"), "frr.conf:6: the embedded router does not know `no_such:"},
		{"router ospf\n", "frr.conf:1: the embedded router does not know `router ospf`; use FRR"},
		{start + " network 10.0.0.0/8\n", "frr.conf:3: the embedded router does not know `network 10.0.0.0/8` below `router bgp`"},
		{start + " neighbor MASTERS peer-group\n", "frr.conf:3: the embedded router does not know"},
		{start + " neighbor eth0 remote-as 64512\n", `frr.conf:3: neighbor eth0 remote-as 64512: "eth0" is no address`},
		{start + " neighbor 10.0.1.1 remote-as external\n", "frr.conf:3: neighbor 10.0.1.1 remote-as external: "},
		{start + " neighbor 10.0.1.1 remote-as 4294967296\n", "is no number from 1 to 4294967295"},
		{start + " neighbor 10.0.1.1 timers 1 2\n", "hold time: "},
		{start + " neighbor 10.0.1.1 timers 1 3\n", "frr.conf:3: neighbor 10.0.1.1 has no remote-as"},
		{start + " neighbor 10.0.1.1 ebgp-multihop\n neighbor 10.0.1.1 ttl-security hops 1\n", "frr.conf:4: neighbor 10.0.1.1 ttl-security hops 1: ebgp-multihop and ttl-security exclude each other"},
		{start + " neighbor 10.0.1.1 password " + strings.Repeat("x", 81) + "\n", "longer than 80 bytes"},
		{start + "router bgp 64501\n", "frr.conf:3: router bgp 64501: this router is already AS 64500"},
		{"router bgp 64500\n bgp router-id fd00::1\n", `"fd00::1" is no IPv4 address`},
		{start + " neighbor 10.0.1.1 remote-as 1\n address-family ipv4 unicast\n  neighbor 10.0.1.1 prefix-list NONE in\n", "frr.conf:5: there is no prefix-list NONE"},
		{start + " neighbor 10.0.1.1 remote-as 1\n address-family ipv4 unicast\n  neighbor 10.0.1.1 route-map NONE in\n", "frr.conf:5: there is no route-map NONE"},
		{start + " address-family ipv4 unicast\n  maximum-paths 0\n", "frr.conf:4: maximum-paths 0: "},
		{start + " address-family ipv4 unicast\n neighbor 10.0.1.1 remote-as 1\n maximum-paths 8\n", "frr.conf:5: the embedded router does not know `maximum-paths 8` below `router bgp`"},
		{start + "route-map IN permit 10\n match ip address prefix-list NONE\n", "frr.conf:4: there is no prefix-list NONE"},
		{start + "route-map IN permit 10\n set local-preference 5\n", "frr.conf:4: the embedded router does not know `set local-preference 5` below `route-map`"},
		{start + "route-map IN allow 10\n", `"allow" is neither permit nor deny`},
		{"ip prefix-list A permit 10.0.0.0/33\n", `"10.0.0.0/33" is no prefix`},
		{"ip prefix-list A permit fd00::/64\n", `"fd00::/64" is no prefix of this address family`},
		{"ip prefix-list A permit 10.0.0.0/24 ge 23\n", "ge: "},
		{"ip prefix-list A permit 10.0.0.0/24 ge 32 le 28\n", "no prefix is at least 32 and at most 28 bits long"},
		{"ip prefix-list A permit 10.0.0.0/24 ge 25 ge 26\n", "unexpected \"ge\""},
		{"ip prefix-list A permit\n", `"" is no prefix`},
		{"ip prefix-list A seq x permit any\n", "seq: "},
		{"frr defaults turbo\n", `unknown profile "turbo"`},
	}
	for _, tt := range tests {
		_, err := router.ParseConfig("frr.conf", strings.NewReader(tt.text))
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q:\n got %v\nwant %s", tt.text, err, tt.want)
		}
	}
}

func TestPrefixListAny(t *testing.T) {
	cfg := parse(t, `router bgp 64500
 bgp router-id 10.0.0.254
 neighbor 10.0.1.1 remote-as 64512
 address-family ipv4 unicast
  neighbor 10.0.1.1 prefix-list ALL in
ip prefix-list ALL description all but the default route
ip prefix-list ALL deny 0.0.0.0/0
ip prefix-list ALL permit any
`)
	for prefix, want := range map[string]bool{"0.0.0.0/0": false, "10.0.0.0/8": true, "10.0.0.1/32": true} {
		if got := cfg.Neighbors[0].IPv4.Accepts(netip.MustParsePrefix(prefix)); got != want {
			t.Errorf("%s: accepted %v, want %v", prefix, got, want)
		}
	}
}

// Whatever the file, the parser neither panics nor returns what cannot work.
func FuzzParseConfig(f *testing.F) {
	f.Add(fullConfig)
	f.Add(strings.Replace(fullConfig, "no_such:", "!", 1))
	f.Add(labConfig)
	f.Add("router bgp 1\nbgp router-id 1.2.3.4\nneighbor ::1 remote-as 1\naddress-family ipv6 unicast\nneighbor ::1 activate\nexit\nexit\nexit\n")
	f.Add("bfd\nprofile a\nexit\nexit\nexit\nip prefix-list A seq 4294967294 permit any\nip prefix-list A permit any\n")
	f.Add("route-map A permit 1\nroute-map A deny 1\nmatch ipv6 address prefix-list B\n")
	f.Fuzz(func(t *testing.T, text string) {
		cfg, err := router.ParseConfig("frr.conf", strings.NewReader(text))
		if err != nil {
			if !strings.HasPrefix(err.Error(), "frr.conf:") {
				t.Fatalf("the error does not name the file: %v", err)
			}
			return
		}
		if cfg.ASN == 0 || !cfg.RouterID.Is4() {
			t.Fatalf("accepted AS %d, router ID %v", cfg.ASN, cfg.RouterID)
		}
		for _, n := range cfg.Neighbors {
			if n.ASN == 0 || !n.Address.IsValid() || n.Hold < 3*time.Second || n.Keepalive > n.Hold/3 {
				t.Fatalf("accepted neighbour %+v", n)
			}
			for _, policy := range []*router.Policy{n.IPv4, n.IPv6} {
				if policy != nil {
					policy.Accepts(netip.MustParsePrefix("10.99.0.10/32"))
					policy.Accepts(netip.MustParsePrefix("fd00:99::10/128"))
				}
			}
		}
	})
}
