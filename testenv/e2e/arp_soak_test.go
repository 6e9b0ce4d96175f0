//go:build e2e

package e2e

import (
	"cmp"
	"log/slog"
	"os"
	"strings"
	"testing"

	"github.com/herald-vip/herald/testenv/soak"
)

// TestARPSoak lets speakers built with the race detector live through two
// hundred random faults on one segment, several at a time, with an observer
// that wants never to see two holders.
func TestARPSoak(t *testing.T) {
	report, err := soak.RunFlat(t.Context(), slog.New(slog.NewTextHandler(t.Output(), nil)), soak.FlatOptions{
		Topology: "../topologies/flat.clab.yml",
		Herald:   cmp.Or(os.Getenv("HERALD_RACE"), "../../bin/race/herald"),
		Testenv:  parts["TESTENV"],
		Dir:      t.TempDir(),
		Seed:     2,
		Faults:   200,
	})
	must(t, err)
	var text strings.Builder
	must(t, report.WriteText(&text))
	t.Log(text.String())
	if len(report.Violations) > 0 {
		t.Errorf("%d violations, see above", len(report.Violations))
	}
	if len(report.Trace.Incidents) < 200 || report.Holders < 50 {
		t.Errorf("%d faults, after which the holder changed %d times: too few to tell anything", len(report.Trace.Incidents), report.Holders)
	}
	if report.Looks["announced"] < 200 || report.Looks["withdrawn"] < 200 {
		t.Errorf("kernels were compared with what their speakers say %v times only", report.Looks)
	}
}
