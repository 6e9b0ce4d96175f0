//go:build e2e

package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/google/go-cmp/cmp"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/config"
)

// definitions are where the API server keeps the CRDs.
const definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

// collection is where it keeps the objects of one.
func collection(resource string) string {
	return "/apis/" + v1alpha1.Group + "/" + v1alpha1.Version + "/" + resource
}

// crdAPI is an API server that knows the CRDs.
type crdAPI struct {
	*api
	// sentences are the messages of all their rules.
	sentences []string
}

// TestCRDs shows a kube-apiserver the CRDs, and then objects, good and bad.
func TestCRDs(t *testing.T) {
	a := &crdAPI{newAPI(t), sentences(t)}
	a.define(t)
	t.Run("pools", a.testPools)
	t.Run("peers", a.testPeers)
	t.Run("every rule", a.testEveryRule)
	t.Run("full pool", a.testFullPool)
	t.Run("unknown field", a.testUnknownField)
	t.Run("example", a.testExample)
	t.Run("defaults", a.testDefaults)
	t.Run("status", a.testStatus)
	t.Run("other router", a.testOtherRouter)
	t.Run("columns", a.testColumns)
}

// crdFiles are the files of the CRDs.
func crdFiles(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("../../manifests/crds/*.yaml")
	must(t, err)
	if len(files) != 2 {
		t.Fatalf("the CRDs are %q, want two", files)
	}
	return files
}

// define creates the CRDs, and waits until the server takes objects of them.
func (a *crdAPI) define(t *testing.T) {
	t.Helper()
	for _, file := range crdFiles(t) {
		definition, err := os.ReadFile(file)
		must(t, err)
		status, answer, err := a.do(a.admin, http.MethodPost, definitions+"?fieldValidation=Strict", definition)
		must(t, err)
		if status != http.StatusCreated {
			t.Fatalf("%s: %d %s", file, status, answer)
		}
	}
	for _, resource := range []string{"addresspools", "bgppeers"} {
		eventually(t, soon, func() error {
			status, answer, err := a.do(a.admin, http.MethodGet, collection(resource), nil)
			if err == nil && status != http.StatusOK {
				err = fmt.Errorf("%s: %d %s", resource, status, answer)
			}
			return err
		})
	}
}

// object is one of a kind, with this spec.
func object(kind, spec string) []byte {
	return fmt.Appendf(nil, "{apiVersion: herald.dev/v1alpha1, kind: %s, metadata: {name: a}, spec: %s}", kind, spec)
}

// sentences are the messages of all rules of the CRDs.
func sentences(t *testing.T) []string {
	t.Helper()
	var found []string
	var walk func(node any)
	walk = func(node any) {
		switch node := node.(type) {
		case map[string]any:
			for name, child := range node {
				if sentence, ok := child.(string); ok && name == "message" && node["rule"] != nil {
					found = append(found, sentence)
				}
				walk(child)
			}
		case []any:
			for _, child := range node {
				walk(child)
			}
		}
	}
	for _, file := range crdFiles(t) {
		data, err := os.ReadFile(file)
		must(t, err)
		var definition any
		must(t, yaml.Unmarshal(data, &definition))
		walk(definition)
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// refusal is what the server answers about a bad object.
type refusal struct {
	Message string
	Details struct {
		Causes []struct{ Field, Message string }
	}
}

// mistakes are what the server says is wrong with an object, each as its field
// and the sentence about it; none if it takes the object.
func (a *crdAPI) mistakes(t *testing.T, resource string, object []byte) []string {
	t.Helper()
	status, answer := a.create(t, collection(resource), object)
	if status == http.StatusCreated {
		return nil
	}
	return a.mistakesIn(t, answer)
}

func (a *crdAPI) mistakesIn(t *testing.T, answer string) []string {
	t.Helper()
	var r refusal
	must(t, json.Unmarshal([]byte(answer), &r))
	if len(r.Details.Causes) == 0 {
		return []string{r.Message}
	}
	var mistakes []string
	for _, cause := range r.Details.Causes {
		if strings.Contains(cause.Message, "some validation rules were not checked") {
			continue // the type of a field is wrong, which is reported, too
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

// testPools has the server judge each of poolCases.
func (a *crdAPI) testPools(t *testing.T) {
	for _, test := range poolCases() {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, a.mistakes(t, "addresspools", object("AddressPool", test.spec))); diff != "" {
				t.Errorf("%s (-want +got):\n%s", test.spec, diff)
			}
		})
	}
}

// testPeers has the server judge each of peerCases, and package config the same peer
// in a file: what one takes, the other does.
func (a *crdAPI) testPeers(t *testing.T) {
	const file = `apiVersion: herald.dev/v1alpha1
kind: Speaker
nodeName: m1
realtime: true
vips: [{name: v, addresses: [10.99.0.10], announce: bgp, checks: [h]}]
checks: [{name: h, tcp: {address: "127.0.0.1:1"}}]
bgp: {asn: 64512, peers: [{address: 10.0.1.253, asn: 64501}, %s]}
`
	for _, test := range peerCases() {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, a.mistakes(t, "bgppeers", object("BGPPeer", test.spec))); diff != "" {
				t.Errorf("%s (-want +got):\n%s", test.spec, diff)
			}
			if test.notInFile {
				return
			}
			spec := strings.Replace(test.spec, ", localASN: 64512", "", 1)
			if _, err := config.Parse("herald.yaml", fmt.Appendf(nil, file, spec)); (err == nil) != (test.want == nil) {
				t.Errorf("in a file, %s: %v", spec, err)
			}
		})
	}
}

// testEveryRule checks that each rule of the CRDs refuses something above.
func (a *crdAPI) testEveryRule(t *testing.T) {
	wanted := []string{sameRouter}
	for _, test := range slices.Concat(poolCases(), peerCases()) {
		wanted = append(wanted, test.want...)
	}
	for _, sentence := range a.sentences {
		if !slices.ContainsFunc(wanted, func(mistake string) bool { return strings.HasSuffix(mistake, ": "+sentence) }) {
			t.Errorf("nothing is refused with %q", sentence)
		}
	}
}

// testFullPool shows that the dearest pool there may be stays within the server's budget.
func (a *crdAPI) testFullPool(t *testing.T) {
	var ranges []string
	for i := range 50 {
		ranges = append(ranges, fmt.Sprintf(`"fd00:1111:2222:3333:4444:5555:6666:%x-fd00:1111:2222:3333:4444:5555:6666:%x"`, 0x1000+16*i, 0x100f+16*i))
	}
	full := func() []byte {
		return object("AddressPool", fmt.Sprintf("{addresses: [%s], bgp: {}}", strings.Join(ranges, ", ")))
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

// testUnknownField shows that a typo is refused by name.
func (a *crdAPI) testUnknownField(t *testing.T) {
	for _, test := range []struct{ resource, kind, spec, field string }{
		{"addresspools", "AddressPool", "{addresses: [10.1.0.0/24], autoAsign: true}", "spec.autoAsign"},
		{"addresspools", "AddressPool", "{addresses: [10.1.0.0/24], bgp: {aggregationLengthIPv6: 64}}", "spec.bgp.aggregationLengthIPv6"},
		{"bgppeers", "BGPPeer", "{address: 10.0.1.254, asn: 64500, password: secret}", "spec.password"},
	} {
		status, answer := a.create(t, collection(test.resource), object(test.kind, test.spec))
		if status != http.StatusBadRequest || !strings.Contains(answer, `unknown field \"`+test.field+`\"`) {
			t.Errorf("%s: %d %s", test.spec, status, answer)
		}
	}
}

// testExample has the server judge the example of docs/services-api.md.
func (a *crdAPI) testExample(t *testing.T) {
	example, err := os.ReadFile("../../api/v1alpha1/example.yaml")
	must(t, err)
	for _, object := range bytes.Split(example, []byte("\n---\n")) {
		resource := "addresspools"
		if bytes.Contains(object, []byte("kind: BGPPeer")) {
			resource = "bgppeers"
		}
		if got := a.mistakes(t, resource, object); got != nil {
			t.Errorf("%q\n%s", got, object)
		}
	}
}
