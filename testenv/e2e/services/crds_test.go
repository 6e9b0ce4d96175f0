//go:build e2e

package services

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/testenv/e2e/site"
)

// crdAPI is an API server that knows the CRDs.
type crdAPI struct {
	*site.APIServer
	// sentences are the messages of all their rules.
	sentences []string
}

// TestCRDs submits the CRDs to a kube-apiserver, and then objects, good and bad.
func TestCRDs(t *testing.T) {
	a := &crdAPI{site.StartAPIServer(t), sentences(t)}
	t.Run("pools", func(t *testing.T) { a.testCases(t, "addresspools", "AddressPool", poolCases()) })
	t.Run("peers", func(t *testing.T) { a.testCases(t, "bgppeers", "BGPPeer", peerCases()) })
	t.Run("tenants", a.testTenants)
	t.Run("full pool", a.testFullPool)
	t.Run("unknown field", a.testUnknownField)
	t.Run("example", a.testExample)
	t.Run("defaults", a.testDefaults)
	t.Run("status", a.testStatus)
	t.Run("other router", a.testOtherRouter)
	t.Run("columns", a.testColumns)
}

// refusal is the server's answer about a bad object.
type refusal struct {
	Message string
	Details struct {
		Causes []struct{ Field, Message string }
	}
}

// mistakes returns the server's complaints about an object, each as a field and the
// sentence about it; none if it accepts the object.
func (a *crdAPI) mistakes(t *testing.T, resource string, object []byte) []string {
	t.Helper()
	status, answer := a.Judge(t, site.HeraldPath(resource), object)
	if status == http.StatusCreated {
		return nil
	}
	return a.mistakesIn(t, answer)
}

func (a *crdAPI) mistakesIn(t *testing.T, answer string) []string {
	t.Helper()
	var r refusal
	site.Must(t, json.Unmarshal([]byte(answer), &r))
	if len(r.Details.Causes) == 0 {
		return []string{r.Message}
	}
	var mistakes []string
	for _, cause := range r.Details.Causes {
		if strings.Contains(cause.Message, "some validation rules were not checked") {
			continue // a field has a wrong type, which is also reported
		}
		sentence := cause.Message
		for _, s := range a.sentences {
			if strings.HasSuffix(sentence, ": "+s) {
				sentence = s // without the value, which may be the whole object
			}
		}
		mistakes = append(mistakes, cause.Field+": "+sentence)
	}
	slices.Sort(mistakes)
	return mistakes
}

// testCases submits each of the cases to the server.
func (a *crdAPI) testCases(t *testing.T, resource, kind string, cases []crdCase) {
	for _, test := range cases {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, a.mistakes(t, resource, site.HeraldObject(kind, test.spec))); diff != "" {
				t.Errorf("%s (-want +got):\n%s", test.spec, diff)
			}
		})
	}
}

// testFullPool checks that the most expensive pool stays within the server's budget.
func (a *crdAPI) testFullPool(t *testing.T) {
	var ranges []string
	for i := range 50 {
		ranges = append(ranges, fmt.Sprintf(`"fd00:1111:2222:3333:4444:5555:6666:%x-fd00:1111:2222:3333:4444:5555:6666:%x"`, 0x1000+16*i, 0x100f+16*i))
	}
	full := func() []byte {
		return site.HeraldObject("AddressPool", fmt.Sprintf("{addresses: [%s], bgp: {}}", strings.Join(ranges, ", ")))
	}
	if got := a.mistakes(t, "addresspools", full()); got != nil {
		t.Errorf("50 ranges: %q", got)
	}
	ranges[49] = strings.Replace(ranges[49], "131", "130", 1)
	want := []string{"spec.addresses: two of the addresses overlap: want each address once"}
	if diff := cmp.Diff(want, a.mistakes(t, "addresspools", full())); diff != "" {
		t.Errorf("the last of 50 ranges overlaps (-want +got):\n%s", diff)
	}
}

// testUnknownField checks that a typo is refused by name.
func (a *crdAPI) testUnknownField(t *testing.T) {
	for _, test := range []struct{ resource, kind, spec, field string }{
		{"addresspools", "AddressPool", "{addresses: [10.1.0.0/24], autoAsign: true}", "spec.autoAsign"},
		{"addresspools", "AddressPool", "{addresses: [10.1.0.0/24], bgp: {aggregationLengthIPv6: 64}}", "spec.bgp.aggregationLengthIPv6"},
		{"bgppeers", "BGPPeer", "{address: 10.0.1.254, asn: 64500, password: secret}", "spec.password"},
	} {
		status, answer := a.Judge(t, site.HeraldPath(test.resource), site.HeraldObject(test.kind, test.spec))
		if status != http.StatusBadRequest || !strings.Contains(answer, `unknown field \"`+test.field+`\"`) {
			t.Errorf("%s: %d %s", test.spec, status, answer)
		}
	}
}

// testExample submits the example of docs/resources.md to the server.
func (a *crdAPI) testExample(t *testing.T) {
	example := site.ReadFile(t, "../../../api/v1alpha1/example.yaml")
	for object := range strings.SplitSeq(example, "\n---\n") {
		resource := "addresspools"
		if strings.Contains(object, "kind: BGPPeer") {
			resource = "bgppeers"
		}
		if got := a.mistakes(t, resource, []byte(object)); got != nil {
			t.Errorf("%q\n%s", got, object)
		}
	}
}

// testTenants submits tenants, and the names of their objects, to the server.
func (a *crdAPI) testTenants(t *testing.T) {
	a.testCases(t, "tenants", "Tenant", tenantCases())
	named := func(name, object string) []byte {
		return []byte(strings.Replace(object, "{name: a}", fmt.Sprintf("{name: %s}", name), 1))
	}
	tenant := string(site.HeraldObject("Tenant", "{nodes: {cidrs: [10.20.0.0/24]}}"))
	for name, want := range map[string][]string{strings.Repeat("a", 56): nil, strings.Repeat("a", 57): {badTenantName}, "a.b": {badTenantName}} {
		if diff := cmp.Diff(want, a.mistakes(t, "tenants", named(name, tenant))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	nodes := `{apiVersion: herald.dev/v1alpha1, kind: TenantNodes, metadata: {name: a}, nodes: [{name: n1, addresses: [10.20.0.1]}]}`
	for name, want := range map[string][]string{"nodes": nil, "others": {badNodesName}} {
		if diff := cmp.Diff(want, a.mistakes(t, "namespaces/default/tenantnodes", named(name, nodes))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// testDefaults checks the default values, as the types read them.
func (a *crdAPI) testDefaults(t *testing.T) {
	const try = "?dryRun=All&fieldValidation=Strict"
	var pool v1alpha1.AddressPool
	a.Do(t, http.MethodPost, site.HeraldPath("addresspools")+try, site.HeraldObject("AddressPool", "{addresses: [10.1.0.0/24], bgp: {}}"), &pool)
	if diff := cmp.Diff(v1alpha1.AddressPoolSpec{
		Addresses:  []v1alpha1.AddressRange{"10.1.0.0/24"},
		AutoAssign: new(true),
		BGP:        &v1alpha1.PoolBGP{AggregationLength: 32, AggregationLengthV6: 128},
	}, pool.Spec); diff != "" {
		t.Errorf("pool (-want +got):\n%s", diff)
	}
	var peer v1alpha1.BGPPeer
	a.Do(t, http.MethodPost, site.HeraldPath("bgppeers")+try, site.HeraldObject("BGPPeer", "{address: 10.0.1.254, asn: 64500, bfd: {}}"), &peer)
	if diff := cmp.Diff(v1alpha1.Peer{
		Address:  netip.MustParseAddr("10.0.1.254"),
		ASN:      64500,
		Port:     179,
		HoldTime: metav1.Duration{Duration: 3 * time.Second},
		BFD:      &v1alpha1.BFD{Interval: metav1.Duration{Duration: 50 * time.Millisecond}, Multiplier: 3},
	}, peer.Spec, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Errorf("peer (-want +got):\n%s", diff)
	}
	// A client of these types leaves unset fields to the server.
	least := v1alpha1.Peer{Address: netip.MustParseAddr("10.0.1.254"), ASN: 64500, BFD: &v1alpha1.BFD{}}
	for _, spec := range []v1alpha1.Peer{least, peer.Spec} {
		written := site.Get[[]byte](t)(json.Marshal(spec))
		if got := a.mistakes(t, "bgppeers", site.HeraldObject("BGPPeer", string(written))); got != nil {
			t.Errorf("the server refuses the object that the types write: %q\n%s", got, written)
		}
	}
}

// keep creates an object, and deletes it when the test is over.
func (a *crdAPI) keep(t *testing.T, resource string, object []byte) {
	t.Helper()
	a.Do(t, http.MethodPost, site.HeraldPath(resource)+"?fieldValidation=Strict", object, nil)
	t.Cleanup(func() { a.Do(t, http.MethodDelete, site.HeraldPath(resource)+"/a", nil, nil) })
}

// testStatus checks that a writer of the spec cannot write the status, and vice versa.
func (a *crdAPI) testStatus(t *testing.T) {
	a.keep(t, "addresspools", site.HeraldObject("AddressPool", "{addresses: [10.1.0.0/24]}"))
	path := site.HeraldPath("addresspools") + "/a"
	var pool, got, after v1alpha1.AddressPool
	a.Do(t, http.MethodGet, path, nil, &pool)
	pool.Spec.Priority = 7
	pool.Status.IPv4 = &v1alpha1.Usage{Capacity: "256", Used: 3}
	pool.Status.Usage = "3/256"

	written := site.Get[[]byte](t)(json.Marshal(pool))
	a.Do(t, http.MethodPut, path+"/status", written, &got)
	if got.Spec.Priority != 0 || got.Status.Usage != "3/256" || got.Status.IPv4 == nil || *got.Status.IPv4 != *pool.Status.IPv4 {
		t.Errorf("after the status was written: %+v", got)
	}
	if got.Generation != pool.Generation {
		t.Errorf("the status made a new generation, %d", got.Generation)
	}

	pool = got
	pool.Spec.Priority = 7
	pool.Status = v1alpha1.AddressPoolStatus{Usage: "9/256"}
	written = site.Get[[]byte](t)(json.Marshal(pool))
	a.Do(t, http.MethodPut, path, written, &after)
	if after.Spec.Priority != 7 || after.Status.Usage != "3/256" {
		t.Errorf("after the spec was written: %+v", after)
	}
}

// testOtherRouter checks that everything in a peer may change except its router.
func (a *crdAPI) testOtherRouter(t *testing.T) {
	a.keep(t, "bgppeers", site.HeraldObject("BGPPeer", "{address: 10.0.1.254, asn: 64500}"))
	path := site.HeraldPath("bgppeers") + "/a"
	var have v1alpha1.BGPPeer
	a.Do(t, http.MethodGet, path, nil, &have)
	for spec, want := range map[string][]string{
		"{address: 10.0.1.254, asn: 64501, port: 1179}": nil,
		"{address: 10.0.1.253, asn: 64500}":             {sameRouter},
		"{interface: eth1, asn: 64500}":                 {sameRouter},
		"{defaultGateway: ipv4, asn: 64500}":            {sameRouter},
	} {
		changed := fmt.Appendf(nil, "{apiVersion: herald.dev/v1alpha1, kind: BGPPeer, metadata: {name: a, resourceVersion: %q}, spec: %s}", have.ResourceVersion, spec)
		status, answer, err := a.API.Ask(t.Context(), http.MethodPut, path+"?dryRun=All", changed)
		site.Must(t, err)
		var got []string
		if status != http.StatusOK {
			got = a.mistakesIn(t, answer)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %d (-want +got):\n%s", spec, status, diff)
		}
	}
}

// testColumns checks the output of kubectl get.
func (a *crdAPI) testColumns(t *testing.T) {
	a.keep(t, "addresspools", site.HeraldObject("AddressPool", "{addresses: [10.1.0.0/24, 10.2.0.10-10.2.0.50], autoAssign: false}"))
	a.keep(t, "bgppeers", site.HeraldObject("BGPPeer", "{interface: eth1, asn: 64500, bfd: {}}"))
	for resource, want := range map[string][]string{
		"addresspools": {"Name: a", `Addresses: ["10.1.0.0/24","10.2.0.10-10.2.0.50"]`, "Auto-assign: false", "Used: <nil>", "Ready: <nil>"},
		"bgppeers":     {"Name: a", "Address: <nil>", "Interface: eth1", "ASN: 64500"},
	} {
		table := site.Get[metav1.Table](t)(a.API.Table(t.Context(), site.HeraldPath(resource)))
		if len(table.Rows) != 1 {
			t.Fatalf("%s has %d rows, want 1", resource, len(table.Rows))
		}
		var got []string
		for i, column := range table.ColumnDefinitions {
			if column.Priority == 0 && column.Name != "Age" {
				got = append(got, fmt.Sprintf("%s: %v", column.Name, table.Rows[0].Cells[i]))
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", resource, diff)
		}
	}
}
