package facts

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"maps"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/balancer"
	"github.com/herald-vip/herald/bgp"
	"github.com/herald-vip/herald/bgp/bfd"
	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/election/electorate"
	"github.com/herald-vip/herald/election/lease"
	"github.com/herald-vip/herald/netutil/link"
	"github.com/herald-vip/herald/netutil/ruleset"
	"github.com/herald-vip/herald/status/admin"
	"github.com/herald-vip/herald/testenv/must"
	"github.com/herald-vip/herald/testenv/netns"
	"github.com/herald-vip/herald/testenv/nettest"
)

func TestWithMembers(t *testing.T) {
	at := netip.MustParseAddrPort
	named := &config.Config{NodeName: "m1", Election: &electorate.Settings{Members: map[string]netip.AddrPort{"m1": at("10.0.0.1:7946"), "m2": at("10.0.0.2:7946")}}}
	joins := &config.Config{NodeName: "m1", Election: &electorate.Settings{
		Join: []netip.AddrPort{at("10.0.0.1:7946"), at("10.0.0.2:7946")}}}
	running := &admin.Status{Election: &admin.Election{Members: []lease.Member{
		{Name: "m1", Address: at("10.0.0.1:7946"), Self: true, Voter: true}, {Name: "m3", Address: at("10.0.0.3:7946"), Voter: true}, {Name: "w1"}}}}
	for name, test := range map[string]struct {
		c       *config.Config
		running *admin.Status
		want    []string
	}{
		"no election":         {&config.Config{}, running, nil},
		"named":               {named, running, []string{"m2"}},
		"joins":               {joins, nil, []string{"10.0.0.2:7946"}},
		"joins, no election":  {joins, &admin.Status{}, []string{"10.0.0.2:7946"}},
		"joins, and is there": {joins, running, []string{"m3"}},
	} {
		f := &Facts{Running: test.running}
		f.Host.Addresses = []link.Address{{Link: "eth0", Prefix: netip.MustParsePrefix("10.0.0.1/24")}}
		if got := Others(f.withMembers(test.c)); !slices.Equal(got, test.want) {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
	if joins.Election.Members != nil {
		t.Error("the configuration that was given has changed")
	}
}

func FuzzParseCertificate(f *testing.F) {
	public, key, err := ed25519.GenerateKey(nil)
	must.Do(f, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1)}
	der, err := x509.CreateCertificate(nil, template, template, public, key)
	must.Do(f, err)
	good := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	if parseCertificate(good) == nil {
		f.Error("a certificate is not recognised")
	}
	f.Add(good)
	f.Add([]byte("-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if cert := parseCertificate(b); cert != nil && len(cert.Raw) == 0 {
			t.Errorf("%q has an empty certificate", b)
		}
	})
}

// Peers by default gateway are asked at each gateway; a running Herald reports each gateway.
func TestAskGateways(t *testing.T) {
	h := nettest.NewHost(t)
	h.AddVeth("there0", "there1")
	h.Route("::/0", "there0", "fe80::1") // on a link of this test only
	c := parsed(t, routedFile)
	c.BGP.Peers = []v1alpha1.Peer{{DefaultGateway: v1alpha1.IPv4, ASN: v1alpha1.External, Port: 179}, {DefaultGateway: v1alpha1.IPv6, ASN: 64500, Port: 179}}
	for _, tt := range []struct {
		name    string
		running *admin.Status
		want    map[string]string
	}{
		{name: "without Herald", want: map[string]string{
			"default-ipv4": "no default route of the main routing table has a gateway",
			"default-ipv6": "cannot connect to fe80::1%there0: dial tcp [fe80::1%there0]:179: connect: invalid argument",
		}},
		{name: "running Herald", running: &admin.Status{Peers: []bgp.Session{
			{Name: "10.0.1.253", Gateway: "default-ipv4", State: bgp.Established},
			{Name: "10.0.1.254", Gateway: "default-ipv4", State: "idle", Reason: "no answer yet"},
			{Name: "fe80::1%eth0", Gateway: "default-ipv6", State: bgp.Established},
		}}, want: map[string]string{"default-ipv4": "no answer yet", "default-ipv6": ""}},
		{name: "BFD is down", running: &admin.Status{Peers: []bgp.Session{
			{Name: "10.0.1.254", State: bgp.Established, Reason: "routes wait for BFD", BFD: &bfd.Status{State: bfd.Down, Reason: "no packet"}},
		}}, want: map[string]string{"10.0.1.254": "BFD is down: no packet"}},
	} {
		var got map[string]string
		h.In(func() { got = (&Facts{Running: tt.running}).askPeers(t.Context(), c) })
		if !maps.Equal(got, tt.want) {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

// Tenants are listed only with a services section and access to the API server.
func TestAskTenants(t *testing.T) {
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		if r.URL.Path != "/apis/herald.dev/v1alpha1/tenants" {
			t.Errorf("asked for %s", r.URL.Path)
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"kind": "TenantList", "apiVersion": "herald.dev/v1alpha1", "items": [{"metadata": {"name": "acme"}}]}`)
	}))
	t.Cleanup(server.Close)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	err := os.WriteFile(kubeconfig, fmt.Appendf(nil, `{apiVersion: v1, kind: Config, clusters: [{name: a, cluster: {server: %q}}], contexts: [{name: a, context: {cluster: a}}], current-context: a}`, server.URL), 0o600)
	must.Do(t, err)
	t.Setenv("KUBERNETES_SERVICE_HOST", "") // not in a pod
	for _, test := range []struct {
		name     string
		services *config.Services
		want     int
		fails    bool
	}{
		{name: "no Services"},
		{name: "no pod", services: &config.Services{}},
		{name: "a kubeconfig", services: &config.Services{Kubeconfig: kubeconfig}, want: 1},
		{name: "missing kubeconfig", services: &config.Services{Kubeconfig: kubeconfig + "x"}, fails: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			asked = 0
			got, err := askTenants(t.Context(), &config.Config{NodeName: "m1", Services: test.services})
			if len(got) != test.want || asked != test.want || (err != nil) != test.fails {
				t.Errorf("asked %d times: %v, %v", asked, got, err)
			}
		})
	}
}

// told converts the balancers of a running Herald.
func TestTold(t *testing.T) {
	if got := told(admin.Balancer{Status: balancer.Status{Name: "kubernetes", Error: "no nftables"}, Type: "internal"}); got.Err == nil || got.Err.Error() != "no nftables" {
		t.Errorf("a balancer in trouble: %+v", got)
	}
	m1, m2 := netip.MustParseAddrPort("10.0.1.1:6443"), netip.MustParseAddrPort("10.0.1.2:6443")
	got := told(admin.Balancer{Type: "internal", Status: balancer.Status{Name: "kubernetes", Backends: []balancer.BackendStatus{
		{Backend: balancer.Backend{Name: "m1", Addr: m1, State: "serving", Reason: "it says so"}},
		{Backend: balancer.Backend{Name: "m2", Addr: m2, State: "draining", Reason: "it says so"}},
	}}})
	want := Backends{Backends: []Backend{
		{Name: "m1", Address: m1, Serves: true, Reason: "serving: it says so"},
		{Name: "m2", Address: m2, Reason: "draining: it says so"},
	}}
	if diff := cmp.Diff(want, got, compare()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Filters are read only if the kernel forwards connections.
func TestLookAtFilters(t *testing.T) {
	ns, _ := netns.New(t)
	err := netns.In(ns, func() error {
		rules := "add table inet firewall; add chain inet firewall forward { type filter hook forward priority 0; policy drop; }"
		if out, err := exec.Command("nft", rules).CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
		want := []ruleset.ChainID{{Family: "inet", Table: "firewall", Name: "forward"}}
		for _, bridge := range []bool{true, false} {
			c := parsed(t, flatFile)
			*c.VIPs[0].Bridge = bridge
			f := &Facts{}
			f.lookAtFilters(c)
			if !bridge {
				want = nil
			}
			if diff := cmp.Diff(want, f.ForwardDrops); diff != "" {
				t.Errorf("bridge %t (-want +got):\n%s", bridge, diff)
			}
		}
		return nil
	})
	must.Do(t, err)
}

// The configurations that the findings are tested with, too.
const routedFile, flatFile = "../testdata/routed.yaml", "../testdata/flat.yaml"

var vip = netip.MustParseAddr("10.0.1.100") // of flatFile

func parsed(t testing.TB, file string) *config.Config {
	t.Helper()
	data := must.Get[[]byte](t)(os.ReadFile(file))
	c, err := config.Parse("herald.yaml", data)
	must.Do(t, err)
	return c
}

// host has one address.
func host(addr string) link.Survey {
	return link.Survey{Addresses: []link.Address{{Link: "lo", Prefix: netip.MustParsePrefix(addr)}}}
}
