package services

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/testenv/must"
)

// sameRouter is the refusal of a change of a peer's router.
const sameRouter = "spec: address, interface and defaultGateway cannot change: create a BGPPeer for the other router, then delete this one"

// sentences returns the messages of all rules of the CRDs.
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
	files, err := filepath.Glob("../../../manifests/crds/*.yaml")
	if err != nil || len(files) != 7 {
		t.Fatalf("the CRDs are %q, want seven: %v", files, err)
	}
	for _, file := range files {
		data := must.Get[[]byte](t)(os.ReadFile(file))
		var definition any
		must.Do(t, yaml.Unmarshal(data, &definition))
		walk(definition)
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// TestEveryRule checks that each rule of the CRDs refuses an object in the cases that
// TestCRDs submits to a kube-apiserver.
func TestEveryRule(t *testing.T) {
	wanted := []string{sameRouter, badTenantName, badNodesName}
	for _, test := range slices.Concat(poolCases(), peerCases(), tenantCases()) {
		wanted = append(wanted, test.want...)
	}
	for _, sentence := range sentences(t) {
		if !slices.ContainsFunc(wanted, func(mistake string) bool { return strings.HasSuffix(mistake, ": "+sentence) }) {
			t.Errorf("no case is refused with %q", sentence)
		}
	}
}

// TestPeersInAFile checks the peers of peerCases in a file with package config: it
// accepts the same ones as the kube-apiserver.
func TestPeersInAFile(t *testing.T) {
	const file = `apiVersion: herald.dev/v1alpha1
kind: Speaker
nodeName: m1
realtime: true
vips: [{name: v, addresses: [10.99.0.10], announce: bgp, checks: [h]}]
checks: [{name: h, tcp: {address: "127.0.0.1:1"}}]
bgp: {asn: 64512, peers: [{address: 10.0.1.253, asn: 64501}, %s]}
`
	for _, test := range peerCases() {
		if test.notInFile {
			continue
		}
		spec := strings.Replace(test.spec, ", localASN: 64512", "", 1)
		if _, err := config.Parse("herald.yaml", fmt.Appendf(nil, file, spec)); (err == nil) != (test.want == nil) {
			t.Errorf("%s, %s: %v", test.name, spec, err)
		}
	}
}
