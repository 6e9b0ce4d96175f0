//go:build e2e

package e2e

import (
	"cmp"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/herald-vip/herald/testenv/soak"
)

// TestSoak is `make soak` in short: speakers built with the race detector live
// through two rounds of faults and two planned changes, and what the kernels
// of routers and masters showed meanwhile is judged.
func TestSoak(t *testing.T) {
	limits := soak.DefaultLimits()
	limits.Slack = 2 * time.Second // it may run beside other tests
	report, err := soak.Run(t.Context(), slog.New(slog.NewTextHandler(t.Output(), nil)), soak.Options{
		Topology: "../topologies/bgp.clab.yml",
		Herald:   cmp.Or(os.Getenv("HERALD_RACE"), "../../bin/race/herald"),
		Testenv:  parts["TESTENV"],
		Dir:      t.TempDir(),
		Seed:     1249, // 20 kinds of faults, and much to judge
		Storm:    25 * time.Second,
		Time:     60 * time.Second, // and the second round to its end
		Limits:   limits,
		BFD:      300 * time.Millisecond, // not so fast that a busy machine loses sessions for nothing
	})
	must(t, err)
	var text strings.Builder
	must(t, report.WriteText(&text))
	t.Log(text.String())
	if len(report.Violations) > 0 {
		t.Errorf("%d violations, see above", len(report.Violations))
	}
	if report.Judged < 30 {
		t.Errorf("only %d times a route or an address was to be gone: too few to tell anything", report.Judged)
	}
}
