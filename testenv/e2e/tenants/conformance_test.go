//go:build e2e && conformance

package tenants

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/herald-vip/herald/testenv/e2e/site"
)

// conforming is a Tenant with the domains of gateway-api's conformance tests.
const conforming = `{nodes: {cidrs: [10.20.0.0/24, "fd00:20::/64"]}, domains: [example.com, example.net, example.org, specific.com, wildcard.io,
anotherwildcard.io, first.com, second.com, rewrite.example, matching.com, bar.com, foo.com, second-example.org], ingress: {className: traefik},
gateway: {namespace: gateways, name: shared}}`

// hurry replaces the tests' timeouts of a minute or more by 20 s, which is enough for a tenant.
const hurry = "HTTPRouteMustHaveCondition:20;GatewayStatusMustHaveListeners:20;GatewayListenersMustHaveConditions:20;RouteMustHaveParents:20;" +
	"GatewayMustHaveCondition:20;GatewayMustHaveAddress:20;HTTPRouteMustNotHaveParents:20;LatestObservedGenerationSet:20;DefaultTestTimeout:20"

// TestConformance runs gateway-api's conformance tests against a tenant, and compares
// the failures with the table in testenv/e2e/README.md.
func TestConformance(t *testing.T) {
	page := site.ReadFile(t, "../README.md")
	l := startGateway(t, map[string]string{"echo-basic": "ECHO_BASIC", "conformance": "CONFORMANCE"})
	acme := l.Tenants[0]
	site.Must(t, l.Serve(site.Context(t)))
	site.Must(t, l.Admit(site.Context(t), acme, conforming))
	site.Must(t, l.BootPods(site.Context(t)))
	site.Meanwhile(t, func(ctx context.Context) {
		if err := l.RunPods(ctx); err != nil {
			t.Error(err)
		}
	})
	apply(t, acme, asked[:strings.Index(asked, "---")])
	out, err := l.Node("conformance").Run(t.Context(), "conformance", "-test.v", "-test.run=^TestConformance$", "--gateway-class=herald",
		"--conformance-profiles=GATEWAY-HTTP", "--supported-features=Gateway,ReferenceGrant,HTTPRoute", "--allow-crds-mismatch", "--timeout-config-overrides="+hurry)
	t.Logf("%s\n%v", out, err) // a failed test makes it end with an error

	var want, got []string
	_, table, ok := strings.Cut(page, "\n| fails | because |\n")
	if !ok {
		t.Fatal("testenv/e2e/README.md has no table of failures")
	}
	table, _, _ = strings.Cut(table, "\n\n")
	for _, row := range regexp.MustCompile(`(?m)^\| (\w+) \| `).FindAllStringSubmatch(table, -1) {
		want = append(want, row[1])
	}
	results := regexp.MustCompile(`(?m)^ *--- (PASS|FAIL): TestConformance/(\w+) \(`).FindAllStringSubmatch(string(out), -1)
	for _, result := range results {
		if result[1] == "FAIL" {
			got = append(got, result[2])
		}
	}
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("testenv/e2e/README.md names other failures (-README +tests):\n%s", diff)
	}
	if counts := fmt.Sprintf("%d of %d tests pass", len(results)-len(got), len(results)); !strings.Contains(page, counts) {
		t.Errorf("testenv/e2e/README.md does not say that %s", counts)
	}
}
