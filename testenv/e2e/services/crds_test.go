//go:build e2e

package services

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

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
