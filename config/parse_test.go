package config_test

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/health"
	"github.com/herald-vip/herald/testenv/must"
)

var addresses = cmpopts.EquateComparable(netip.Addr{}, netip.AddrPort{}, netip.Prefix{})

func mustParse(t *testing.T, file string, opts ...config.Option) *config.Config {
	t.Helper()
	c, err := config.Parse("herald.yaml", []byte(file), opts...)
	must.Do(t, err)
	return c
}

// replace returns the base with a valid change.
func replace(t *testing.T, old, new string) string {
	t.Helper()
	if strings.Count(base, old) != 1 {
		t.Fatalf("%q is not in the base once", old)
	}
	return strings.Replace(base, old, new, 1)
}

func TestParseDefaults(t *testing.T) {
	want := &config.Config{
		APIVersion: "herald.dev/v1alpha1",
		Kind:       "Speaker",
		NodeName:   "m1",
		VIPs: []config.VIP{{
			Name:        "web",
			Addresses:   []netip.Addr{netip.MustParseAddr("10.99.0.10")},
			Announce:    config.AnnounceBGP,
			PrefixWhile: config.WhileAny,
			Interface:   "lo",
			Checks:      []string{"apiserver"},
			Linger:      time.Second,
			HoldDown:    time.Minute,
			OnFailure:   config.Withdraw,
			WhenAllFail: "withdraw",

			Priority: 100, OnConflict: config.Defend, Bridge: new(false),
		}},
		Checks: []health.Check{{
			Name: "apiserver",
			HTTP: &health.HTTP{URL: "https://127.0.0.1:6443/readyz", Status: []int{200}},
			Pace: health.Pace{Interval: 200 * time.Millisecond, Timeout: 300 * time.Millisecond, Rise: 2, Fall: 2},
		}},
		BGP: &config.BGP{
			ASN:          64512,
			ConnectRetry: 2 * time.Second,
			Peers: []v1alpha1.Peer{{
				Address:  netip.MustParseAddr("10.0.1.254"),
				ASN:      64500,
				Port:     179,
				HoldTime: metav1.Duration{Duration: 3 * time.Second},
				Families: []v1alpha1.Family{v1alpha1.IPv4},
			}},
		},
		ARP:          config.ARP{Refresh: time.Minute, Fence: config.FenceAuto},
		LoadBalancer: config.LoadBalancer{Type: config.Internal},

		Admin:   config.Admin{Socket: "/run/herald/herald.sock"},
		Metrics: config.Metrics{Listen: "127.0.0.1:9474"},
	}
	if diff := cmp.Diff(want, mustParse(t, base), addresses); diff != "" {
		t.Errorf("configuration (-want +got):\n%s", diff)
	}
}

func TestParseDefaultFamilies(t *testing.T) {
	for _, tt := range []struct {
		peer string
		want []v1alpha1.Family
	}{
		{"address: 10.0.1.254", []v1alpha1.Family{v1alpha1.IPv4}},
		{"interface: eth0", []v1alpha1.Family{v1alpha1.IPv4, v1alpha1.IPv6}},
		{"families: [ipv6, ipv4]\n    address: fd00::1", []v1alpha1.Family{v1alpha1.IPv6, v1alpha1.IPv4}},
	} {
		c := mustParse(t, replace(t, "address: 10.0.1.254", tt.peer))
		if diff := cmp.Diff(tt.want, c.BGP.Peers[0].Families); diff != "" {
			t.Errorf("families of %q (-want +got):\n%s", tt.peer, diff)
		}
	}
}

// An IPv6 VIP needs one IPv6 peer, or a session over IPv4 that carries IPv6.
func TestParseDualStack(t *testing.T) {
	for _, peer := range []string{
		"asn: 64500\n  - {address: \"fd00::1\", asn: 64500}",
		"asn: 64500\n  - {address: \"fe80::1%eth0\", asn: 64500}",
		"asn: 64500\n    families: [ipv4, ipv6]",
	} {
		file := strings.Replace(replace(t, "asn: 64500", peer), "[10.99.0.10]", `[10.99.0.10/32, "fd00:99::10/128"]`, 1)
		c := mustParse(t, file)
		want := []netip.Addr{netip.MustParseAddr("10.99.0.10"), netip.MustParseAddr("fd00:99::10")}
		if diff := cmp.Diff(want, c.VIPs[0].Addresses, addresses); diff != "" {
			t.Errorf("addresses (-want +got):\n%s", diff)
		}
	}
}

func TestParseKeepsExplicitZero(t *testing.T) {
	c := mustParse(t, replace(t, "announce: bgp", "announce: bgp\n  linger: 0s\n  med: 0")+"metrics: {listen: \"\"}\n")
	if c.VIPs[0].Linger != 0 {
		t.Errorf("linger is %s, want 0s", c.VIPs[0].Linger)
	}
	if med := c.VIPs[0].MED; med == nil || *med != 0 {
		t.Errorf("med is %v, want 0", med)
	}
	if c.Metrics.Listen != "" {
		t.Errorf("metrics.listen is %q, want none", c.Metrics.Listen)
	}
}

func TestParseLocalPrefForInternalPeer(t *testing.T) {
	c := mustParse(t, replace(t, "asn: 64500", "asn: 64512\n    localPref: 200\n  localPref: 150"))
	if *c.BGP.Peers[0].LocalPref != 200 || *c.BGP.LocalPref != 150 {
		t.Errorf("localPref is %d and %d, want 200 and 150", *c.BGP.Peers[0].LocalPref, *c.BGP.LocalPref)
	}
}

func TestParseAliases(t *testing.T) {
	file := replace(t, "checks: [apiserver]", "checks: &all [apiserver]\n- {name: two, addresses: [10.99.0.11], announce: bgp, checks: *all}")
	c := mustParse(t, file)
	if diff := cmp.Diff([]string{"apiserver"}, c.VIPs[1].Checks); diff != "" {
		t.Errorf("checks (-want +got):\n%s", diff)
	}
}

func TestParseNodeName(t *testing.T) {
	unnamed := replace(t, "nodeName: m1\n", "")
	if c := mustParse(t, unnamed, config.Hostname("Master-1.Example.org")); c.NodeName != "master-1.example.org" {
		t.Errorf("node name is %q, want the host's in lower case", c.NodeName)
	}
	if c := mustParse(t, base, config.Hostname("other")); c.NodeName != "m1" {
		t.Errorf("node name is %q, want the file's", c.NodeName)
	}
	_, err := config.Parse("herald.yaml", []byte(unnamed), config.Hostname("my_host"))
	want := `herald.yaml:1:1: nodeName: missing, and the host's name "my_host" is not valid: give one`
	if err == nil || err.Error() != want {
		t.Errorf("error is %v, want %s", err, want)
	}
}

func TestParseReportsEverythingAtOnce(t *testing.T) {
	const file = `apiVersion: v1
vips:
- name: A
  check: [x]
  addresses: [10.0.0.0/24, 10.0.0.1, nonsense]
  announce: arp
  linger: 1
1: x
checks:
- name: a
  tcp: {address: 127.0.0.1, port: 80}
  rise: 0
- {name: a, file: {}}
bgp:
  asn: 0x10
  peers:
  - asn: 64500
  - {holdTime: 5, address: 10.0.0.1}
metrics: &m
admin: *n
`
	want := []string{
		`1:1: kind: missing: write kind: Speaker`,
		`1:1: nodeName: missing, and the host has no name: give one`,
		`1:13: apiVersion: want herald.dev/v1alpha1, got "v1"`,
		`3:9: vips[0].name: want at most 63 lower-case letters and digits, with '-' and '.' between, got "A"`,
		`4:3: vips[0].check: unknown field, did you mean checks?`,
		`5:15: vips[0].addresses[0]: want one address, got the network 10.0.0.0/24`,
		`5:38: vips[0].addresses[2]: want an IP address, got the text "nonsense"`,
		`6:13: vips[0].announce: arp needs an election section: add one`,
		`7:11: vips[0].linger: want a duration such as 200ms, got the number 1`,
		`8:1: want the name of a field, got the number 1`,
		`11:18: checks[0].tcp.address: want host:port such as 127.0.0.1:5001, got "127.0.0.1"`,
		`11:29: checks[0].tcp.port: unknown field, want address`,
		`12:9: checks[0].rise: want 1 to 100, got 0`,
		`13:10: checks[1].name: a is the name of checks[0] already`,
		`13:19: checks[1].file.path: missing: give the absolute path of a file`,
		`15:8: bgp.asn: want a decimal number, got 0x10`,
		`17:5: bgp.peers[0].address: missing: give the peer's address, its interface if unnumbered, or defaultGateway`,
		`18:5: bgp.peers[1].asn: give a number from 1 to 4294967294`,
		`18:16: bgp.peers[1].holdTime: want a duration such as 200ms, got the number 5`,
		`18:28: bgp.peers[1].address: 10.0.0.1 is a VIP of this speaker, want the address of a router`,
		`19:11: metrics: has no value: give one or remove the line`,
		`20:8: admin: no anchor "n" is defined`,
	}
	_, err := config.Parse("f", []byte(file))
	var got []string
	var all config.Errors
	if !errors.As(err, &all) {
		t.Fatalf("error is a %T, want config.Errors", err)
	}
	for _, e := range all {
		got = append(got, strings.TrimPrefix(e.Error(), "f:"))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("errors (-want +got):\n%s", diff)
	}
	var first *config.Error
	if !errors.As(err, &first) || first.Field != "kind" || first.File != "f" || first.Line != 1 || first.Column != 1 {
		t.Errorf("first error is %+v", first)
	}
}

// Windows line ends, a byte order mark and letters of several bytes must not shift positions.
func TestParsePositions(t *testing.T) {
	file := "\ufeff" + replace(t, "nodeName: m1", "# größer\nnodeName: 'm1' # ünï\nadmin: {söcket: 1, socket: x}")
	for name, file := range map[string]string{"unix": file, "dos": strings.ReplaceAll(file, "\n", "\r\n")} {
		_, err := config.Parse(name, []byte(file))
		want := name + ":5:9: admin.söcket: unknown field, did you mean socket?\n" +
			name + `:5:28: admin.socket: want an absolute path of at most 107 bytes, got "x"`
		if err == nil || err.Error() != want {
			t.Errorf("error is\n%v\nwant\n%s", err, want)
		}
	}
}

func TestParseRefusesWhole(t *testing.T) {
	for name, tt := range map[string]struct{ file, want string }{
		"empty":     {"", "f:1:1: the file is empty"},
		"comment":   {"# nothing\n", "f:1:1: the file is empty"},
		"document":  {"---\n", "f:1:1: the file is empty"},
		"text":      {"herald\n", `f:1:1: want fields (name: value), got the text "herald"`},
		"list":      {"- 1\n", "f:1:1: want fields (name: value), got a list"},
		"null":      {"~\n", "f:1:1: has no value: give one or remove the line"},
		"binary":    {"a: \xff\n", "f:1:1: the file is not UTF-8 text"},
		"directive": {"%YAML 1.2\n---\na: 1\n", "f:1:1: YAML directives are not supported: remove this line"},
		"large":     {strings.Repeat("#", 1<<20+1), "f:1:1: the file is larger than 1 MiB"},
		"deep":      {"a: " + strings.Repeat("[", 1000), "f:1:68: nested too deeply"},
		"dashes":    {strings.Repeat("- ", 1000), "f:1:129: nested too deeply"},
		"tokens":    {strings.Repeat("a:\n", 75_001), "f:75001:1: the file is too long: the limit of 150000 YAML tokens (names, values, signs), enough for about 7000 VIPs, is here"},
		"bomb": {
			"bgp:\n  peers:\n  - &p {communities: &c [" + strings.Repeat(`"1:1",`, 1000) + "]}\n" + strings.Repeat("  - *p\n", 1000),
			"f:3:4208: bgp.peers[149].communities[697]: the file has more than 150000 values, those of its aliases included",
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := config.Parse("f", []byte(tt.file))
			if err == nil {
				t.Fatal("accepted")
			}
			if err.Error() != tt.want {
				t.Errorf("error is\n%v\nwant\n%s", err, tt.want)
			}
		})
	}
}

// A file of plausible size is accepted.
func TestParseManyVIPs(t *testing.T) {
	var vips strings.Builder
	for i := range 5000 {
		addr, other := netip.AddrFrom4([4]byte{10, 100, byte(i >> 8), byte(i)}), netip.AddrFrom4([4]byte{10, 200, byte(i >> 8), byte(i)})
		fmt.Fprintf(&vips, "- name: v%d\n  addresses: [%s, %s]\n  announce: bgp\n  checks: [apiserver]\n  linger: 2s\n  med: 10\n", i, addr, other)
	}
	if c := mustParse(t, replace(t, "checks:\n- name", vips.String()+"checks:\n- name")); len(c.VIPs) != 5001 {
		t.Errorf("%d VIPs, want 5001", len(c.VIPs))
	}
}

func TestYAMLRoundTrip(t *testing.T) {
	example := must.Get[[]byte](t)(os.ReadFile("example.yaml"))
	for name, file := range map[string]string{
		"base":    base,
		"example": string(example),
		"zeros":   replace(t, "announce: bgp", "announce: bgp\n  linger: 0s\n  med: 0") + "metrics: {listen: \"\"}\n",
	} {
		t.Run(name, func(t *testing.T) {
			c := mustParse(t, file)
			data := c.YAML()
			if diff := cmp.Diff(c, mustParse(t, string(data)), addresses); diff != "" {
				t.Errorf("configuration read again (-want +got):\n%s", diff)
			}
			again := mustParse(t, string(data)).YAML()
			if diff := cmp.Diff(string(data), string(again)); diff != "" {
				t.Errorf("written again (-want +got):\n%s", diff)
			}
		})
	}
}

func TestYAMLHidesPassword(t *testing.T) {
	c := mustParse(t, base)
	c.BGP.Peers[0].Password = "secret"
	data := c.YAML()
	if strings.Contains(string(data), "secret") {
		t.Errorf("shows the password:\n%s", data)
	}
}

// The example is what docs/config.md shows: it must be valid and use every field.
func TestExample(t *testing.T) {
	data := must.Get[[]byte](t)(os.ReadFile("example.yaml"))
	mustParse(t, string(data))
	var visit func(reflect.Type)
	visit = func(typ reflect.Type) {
		for typ.Kind() == reflect.Pointer || typ.Kind() == reflect.Slice || typ.Kind() == reflect.Map {
			typ = typ.Elem()
		}
		if typ.Kind() != reflect.Struct || typ == reflect.TypeFor[netip.Addr]() || typ == reflect.TypeFor[netip.Prefix]() {
			return
		}
		for f := range typ.Fields() {
			tag, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
			if tag != "-" && !strings.Contains(string(data), tag+":") {
				t.Errorf("%s.%s is not in the example", typ.Name(), tag)
			}
			visit(f.Type)
		}
	}
	visit(reflect.TypeFor[config.Config]())
}
