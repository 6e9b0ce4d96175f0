package migrate_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/migrate"
	"github.com/herald-vip/herald/migrate/metallb"
	"github.com/herald-vip/herald/service/peering"
	"github.com/herald-vip/herald/service/pool"
	"github.com/herald-vip/herald/testenv/must"
)

// manifest is a result, decoded strictly as Kubernetes does.
type manifest struct {
	file  string
	pools []v1alpha1.AddressPool
	peers []v1alpha1.BGPPeer
}

func readManifest(t *testing.T, text []byte) manifest {
	t.Helper()
	var m manifest
	for _, document := range bytes.Split(text, []byte("\n---\n")) {
		var plain map[string]any
		if err := yaml.Unmarshal(document, &plain); err != nil {
			t.Fatalf("%v\n%s", err, document)
		}
		object, err := json.Marshal(plain)
		must.Do(t, err)
		strict := json.NewDecoder(bytes.NewReader(object))
		strict.DisallowUnknownFields()
		switch plain["kind"] {
		case "ConfigMap":
			var c struct {
				APIVersion, Kind string
				Metadata         struct{ Name, Namespace string }
				Data             map[string]string
			}
			err = strict.Decode(&c)
			m.file = c.Data["herald.yaml"]
		case "AddressPool":
			var p v1alpha1.AddressPool
			err = strict.Decode(&p)
			m.pools = append(m.pools, p)
		case "BGPPeer":
			var p v1alpha1.BGPPeer
			err = strict.Decode(&p)
			m.peers = append(m.peers, p)
		default:
			t.Errorf("an object of kind %v", plain["kind"])
		}
		if err != nil {
			t.Errorf("%v in\n%s", err, document)
		}
	}
	return m
}

// checkHonestResources checks the result of any input: Kubernetes can read it, and a note names each mistake
// that Herald would find.
func checkHonestResources(t *testing.T, r *migrate.Result) {
	t.Helper()
	checkSaid(t, r)
	if r.Config == nil {
		return
	}
	m := readManifest(t, r.Config)
	if m.file == "" {
		t.Errorf("no file for the speakers:\n%s", r.Config)
	}
	if !r.Complete() {
		return
	}
	if _, err := config.Parse("", []byte(m.file), config.Hostname("node")); err != nil {
		t.Errorf("complete, but refused: %v\n%s", err, m.file)
	}
	var pools []pool.Pool
	for _, p := range m.pools {
		var ranges []pool.Range
		for _, s := range p.Spec.Addresses {
			r, err := pool.ParseRange(string(s))
			if err != nil || r.String() != string(s) {
				t.Errorf("pool %s has %s, which is %v, %v", p.Name, s, r, err)
			}
			ranges = append(ranges, r)
		}
		pools = append(pools, pool.Pool{Name: p.Name, Ranges: ranges})
	}
	if err := pool.New().Replace(pools); err != nil {
		t.Errorf("complete, but refused: %v", err)
	}
	for i := range m.peers {
		p := &m.peers[i]
		p.Spec.NodeSelectors = nil // select this node
		node := peering.New(nil, nil, peering.Options{RouterID: func(string, ...netip.Addr) (netip.Addr, error) { return netip.IPv4Unspecified(), nil }})
		set, err := node.Plan(&config.Config{Realtime: true}, peering.Resources{
			Peers: []*v1alpha1.BGPPeer{p}, Password: func(v1alpha1.SecretReference) (string, error) { return "p", nil },
		})
		if err != nil || len(set.LeftOut) > 0 {
			t.Errorf("complete, but refused: %v, %v\n%s", err, set.LeftOut, r.Config)
		}
	}
}

// A pool and its advertisement may be in different files, in any order.
func TestMetalLBFiles(t *testing.T) {
	data := must.Get[[]byte](t)(os.ReadFile("metallb/testdata/bgp.yaml"))
	documents := strings.Split(string(data), "\n---\n")
	var files []migrate.File
	for i, d := range documents {
		files = append(files, migrate.File{Name: fmt.Sprintf("%d.yaml", i), Data: []byte(d)})
	}
	whole := fromMetalLB.text(t, string(data), migrate.Options{})
	for range documents {
		files = append(files[1:], files[0])
		r, err := metallb.Convert(files, migrate.Options{})
		must.Do(t, err)
		want, got := readManifest(t, whole.Config), readManifest(t, r.Config)
		byName := func(m manifest) map[string]any {
			all := map[string]any{"file": m.file}
			for _, p := range m.pools {
				all["pool "+p.Name] = p
			}
			for _, p := range m.peers {
				all["peer "+p.Name] = p
			}
			return all
		}
		if diff := cmp.Diff(byName(want), byName(got), cmpopts.EquateComparable(netip.Addr{})); diff != "" {
			t.Errorf("(-one file +%s first):\n%s", files[0].Name, diff)
		}
		if len(r.Notes) != len(whole.Notes) {
			t.Errorf("%d notes, want %d as of one file:\n%s", len(r.Notes), len(whole.Notes), lines(r.Notes))
		}
	}
	if _, err := metallb.Convert([]migrate.File{{Name: "good", Data: data}, {Name: "bad", Data: []byte("a: b: c")}}, migrate.Options{}); err == nil || !strings.HasPrefix(err.Error(), "bad: line 1: not valid YAML") {
		t.Errorf("a bad file among good ones: %v", err)
	}
}

const lbClassPool = `kind: IPAddressPool
metadata: {name: p}
spec: {addresses: [10.1.0.0/24]}
---
kind: BGPAdvertisement
---
kind: Service
metadata: {name: s, namespace: n, annotations: {metallb.io/address-pool: p}}
spec: {type: LoadBalancer, loadBalancerClass: metallb}
`

// The class of --lb-class becomes Herald's, and Services of other classes are left alone.
func TestMetalLBClass(t *testing.T) {
	r := fromMetalLB.text(t, lbClassPool, migrate.Options{Class: "metallb"})
	m := readManifest(t, r.Config)
	c, err := config.Parse("", []byte(m.file), config.Hostname("node"))
	must.Do(t, err)
	if c.Services.LoadBalancerClass != "metallb" || c.Services.DefaultClass {
		t.Errorf("the class is %q, and Services without one %t", c.Services.LoadBalancerClass, c.Services.DefaultClass)
	}
	if want := []string{"kubectl -n n annotate --overwrite service s herald.dev/pool=p"}; !slices.Equal(r.Commands, want) {
		t.Errorf("the commands are %q, want %q", r.Commands, want)
	}
	r = fromMetalLB.text(t, lbClassPool, migrate.Options{})
	if len(r.Commands) > 0 || !strings.Contains(lines(r.Notes), `"metallb" differs from --lb-class`) {
		t.Errorf("without the flag: %q\n%s", r.Commands, lines(r.Notes))
	}
}

// With members and key as options, nothing is left to the user on a flat layer 2.
func TestMetalLBMembers(t *testing.T) {
	const input = "kind: IPAddressPool\nmetadata: {name: p}\nspec: {addresses: [10.1.0.0/24]}\n---\nkind: L2Advertisement\n"
	r := fromMetalLB.text(t, input, migrate.Options{})
	if r.Complete() || !strings.Contains(lines(r.Notes), "election.members: to do: fill in") {
		t.Errorf("without members:\n%s", lines(r.Notes))
	}
	r = fromMetalLB.text(t, input, migrate.Options{Members: members("m1=10.3.0.1:7946"), KeyFile: "/etc/herald/key", Namespace: "vips"})
	if !r.Complete() || !strings.Contains(string(r.Config), "namespace: vips") {
		t.Errorf("with members and a key:\n%s%s", r.Config, lines(r.Notes))
	}
	checkHonestResources(t, r)
}

// Two advertisements of a pool are merged if they differ in one respect.
func TestMetalLBMerge(t *testing.T) {
	const a, b = "{nodeSelectors: [{matchLabels: {r: a}}]}", "{nodeSelectors: [{matchLabels: {r: b}}]}"
	for _, test := range []struct{ name, first, second, want string }{
		{"the same", a, a, "{nodeSelectors: [{matchLabels: {r: a}}]}"},
		{"nodes", a, b, "{nodeSelectors: [{matchLabels: {r: a}}, {matchLabels: {r: b}}]}"},
		{"all nodes", a, "{}", "{}"},
		{"peers", "{peers: [x]}", "{peers: [y, x]}", "{peers: [x, y]}"},
		{"all peers", "{peers: [x]}", "{}", "{}"},
		{"communities", `{communities: ["1:1"]}`, `{communities: ["1:2", "large:1:2:3"]}`, `{communities: ["1:1", "1:2"], largeCommunities: ["1:2:3"]}`},
		{"lengths", "{aggregationLength: 24}", "{}", ""},
		{"preference", "{localPref: 1}", "{localPref: 2}", ""},
		{"nodes and peers", "{peers: [x], nodeSelectors: [{matchLabels: {r: a}}]}", "{peers: [y]}", ""},
		{"nodes and communities", a, `{communities: ["1:1"]}`, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			input := "kind: IPAddressPool\nmetadata: {name: p}\nspec: {addresses: [10.1.0.0/24]}\n"
			for _, spec := range []string{test.first, test.second} {
				input += "---\nkind: BGPAdvertisement\nspec: " + spec + "\n"
			}
			for _, name := range []string{"x", "y"} {
				input += "---\nkind: BGPPeer\nmetadata: {name: " + name + "}\nspec: {myASN: 1, peerASN: 2, peerAddress: 10.0.0.1, holdTime: 3s}\n"
			}
			r := fromMetalLB.text(t, input, migrate.Options{})
			if refused := strings.Contains(lines(r.Notes), "this advertisement is not carried over"); refused != (test.want == "") || refused == r.Complete() {
				t.Fatalf("the notes are\n%s", lines(r.Notes))
			}
			if test.want == "" {
				return
			}
			var want v1alpha1.PoolBGP
			must.Do(t, yaml.UnmarshalWithOptions([]byte(test.want), &want, yaml.UseJSONUnmarshaler()))
			if diff := cmp.Diff(want, *readManifest(t, r.Config).pools[0].Spec.BGP); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// The numbers of objects and notes are limited.
func TestObjectsAreBounded(t *testing.T) {
	r := fromMetalLB.text(t, strings.Repeat("kind: IPAddressPool\n---\n", 4000), migrate.Options{})
	if n := len(readManifest(t, r.Config).pools); n != 1000 || len(r.Notes) > migrate.MaxNotes+1 || r.Complete() {
		t.Errorf("%d pools, %d notes", n, len(r.Notes))
	}
}

func FuzzMetalLB(f *testing.F) {
	fromMetalLB.fuzz(f, "spec: &a {spec: *a}",
		"kind: IPAddressPool\nspec: {addresses: [1.2.3.4/0, ::/0, 1-2, 10.0.0.9-10.0.0.1]}",
		"kind: ConfigMap\ndata: {config: \"peers: [{my-asn: x}]\\naddress-pools: [[]]\"}",
		"kind: BGPPeer\nspec: {peerAddress: fe80::1, myASN: 4294967295, bfdProfile: x, holdTime: -1s}")
}
