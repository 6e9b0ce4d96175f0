package metrics_test

import (
	"encoding/json"
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/herald-vip/herald/status/admin"
	"github.com/herald-vip/herald/status/metrics"
	"github.com/herald-vip/herald/testenv/must"
)

var update = flag.Bool("update", false, "write the golden file anew")

// Users' dashboards and alerts rely on the metrics' names, labels and values. The status has every member that there is;
// a test in manifests/monitoring compares types and help with docs/monitoring.md.
func TestGolden(t *testing.T) {
	text := must.Get[[]byte](t)(os.ReadFile("../admin/testdata/status.json"))
	var s admin.Status
	must.Do(t, json.Unmarshal(text, &s))
	_, body := get(t, metrics.NewHandler(func() admin.Status { return s }, nil, nil), "/metrics")
	var lines []string
	for line := range strings.Lines(body) {
		if strings.HasPrefix(line, "herald_") {
			lines = append(lines, line)
		}
	}
	got := strings.Join(lines, "")
	const file = "testdata/metrics.txt"
	if *update {
		must.Do(t, os.WriteFile(file, []byte(got), 0o644))
	}
	want := must.Get[[]byte](t)(os.ReadFile(file))
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("(-want +got), -update writes it anew:\n%s", diff)
	}
}
