//go:build e2e

package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/herald-vip/herald/testenv/services"
)

// TestConformancePage checks that docs/conformance-services.md names no test that does
// not exist, and leaves none out.
func TestConformancePage(t *testing.T) {
	page, err := os.ReadFile("../../docs/conformance-services.md")
	must(t, err)
	files, err := filepath.Glob("loadbalancer_*_test.go")
	must(t, err)
	var tests []string
	declared := regexp.MustCompile(`(?m)^func (TestLoadBalancer\w*)\(|^\tt\.Run\("([^"]+)", b\.test`)
	for _, file := range files {
		source, err := os.ReadFile(file)
		must(t, err)
		for _, name := range declared.FindAllSubmatch(source, -1) {
			tests = append(tests, string(name[1])+string(name[2]))
		}
	}
	for _, protocol := range []string{"TCP", "UDP", "SCTP"} {
		tests = append(tests, "type and ports change, "+protocol)
	}
	others := []string{ // that are no tests
		"VIP", "Proxy", "requireEndpoints", "services/status", "spec.externalIPs", "sudo make e2e", "herald status",
		"manifests/kustomize/services", "type and ports change", services.Excluded,
	}
	named := make(map[string]bool)
	for _, word := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(string(page), -1) {
		named[word[1]] = true
		if !slices.Contains(tests, word[1]) && !slices.Contains(others, word[1]) {
			t.Errorf("there is no test %q", word[1])
		}
	}
	for _, name := range tests {
		if !named[name] {
			t.Errorf("the page does not name %q", name)
		}
	}
}
