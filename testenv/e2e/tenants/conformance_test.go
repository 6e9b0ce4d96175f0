//go:build e2e && conformance

package tenants

import (
	"context"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/herald-vip/herald/testenv/e2e/site"
)

// conforming is a Tenant with the domains that gateway-api's conformance tests ask for.
const conforming = `{nodes: {cidrs: [10.20.0.0/24, "fd00:20::/64"]}, domains: [example.com, example.net, example.org, specific.com, wildcard.io,
anotherwildcard.io, first.com, second.com, rewrite.example, matching.com, bar.com, foo.com, second-example.org], ingress: {className: traefik},
gateway: {namespace: gateways, name: shared}}`

// hurry has the tests wait 20 s for what they wait a minute or more: a tenant that is slower than that fails.
const hurry = "HTTPRouteMustHaveCondition:20;GatewayStatusMustHaveListeners:20;GatewayListenersMustHaveConditions:20;RouteMustHaveParents:20;" +
	"GatewayMustHaveCondition:20;GatewayMustHaveAddress:20;HTTPRouteMustNotHaveParents:20;LatestObservedGenerationSet:20;DefaultTestTimeout:20"

// TestConformance runs gateway-api's conformance tests against a tenant, and wants docs/tenants-conformance.md to say which pass.
func TestConformance(t *testing.T) {
	page, err := os.ReadFile("../../../docs/tenants-conformance.md")
	site.Must(t, err)
	l := startGateway(t, map[string]string{"echo-basic": "ECHO_BASIC", "conformance": "CONFORMANCE"})
	acme := l.Tenants[0]
	site.Must(t, l.Serve(soon(t)))
	site.Must(t, l.Admit(soon(t), acme, conforming))
	site.Must(t, l.BootPods(soon(t)))
	site.Meanwhile(t, func(ctx context.Context) {
		if err := l.RunPods(ctx); err != nil {
			t.Error(err)
		}
	})
	apply(t, acme, asked[:strings.Index(asked, "---")])
	out, err := l.Node("conformance").Run(t.Context(), "conformance", "-test.v", "-test.run=^TestConformance$", "--gateway-class=herald",
		"--conformance-profiles=GATEWAY-HTTP", "--supported-features=Gateway,ReferenceGrant,HTTPRoute", "--allow-crds-mismatch", "--timeout-config-overrides="+hurry)
	t.Logf("%s\n%v", out, err) // it ends with an error where one test fails

	want, got := make(map[string]string), make(map[string]string)
	for _, row := range regexp.MustCompile(`(?m)^\| (\w+) \| (yes|no) \|`).FindAllStringSubmatch(string(page), -1) {
		want[row[1]] = row[2]
	}
	for _, line := range regexp.MustCompile(`(?m)^ *--- (PASS|FAIL): TestConformance/(\w+) \(`).FindAllStringSubmatch(string(out), -1) {
		got[line[2]] = map[string]string{"PASS": "yes", "FAIL": "no"}[line[1]]
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("docs/tenants-conformance.md does not say what passes (- it, + what does):\n%s", diff)
	}
}
