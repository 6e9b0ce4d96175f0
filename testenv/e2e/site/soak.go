//go:build e2e

package site

import (
	"strings"
	"testing"

	"github.com/herald-vip/herald/testenv/soak"
)

// Soak is a short `make soak`, with the race detector in the speakers. It fails the
// test for each violation.
func Soak(t *testing.T, o soak.Options) *soak.Report {
	t.Helper()
	o.Herald, o.Testenv, o.Dir = Part(t, "HERALD_RACE"), Part(t, "TESTENV"), t.TempDir()
	report, err := soak.Run(t.Context(), Log(t), o)
	Must(t, err)
	var text strings.Builder
	Must(t, report.WriteText(&text))
	t.Log(text.String())
	if len(report.Violations) > 0 {
		t.Errorf("%d violations, see above", len(report.Violations))
	}
	return report
}
