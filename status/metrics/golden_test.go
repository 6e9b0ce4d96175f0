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
)

var update = flag.Bool("update", false, "write the golden file anew")

// Users' dashboards and alerts rely on the metrics' names, labels and values. The status has every member that there is;
// a test in manifests/monitoring compares types and help with docs/monitoring.md.
func TestGolden(t *testing.T) {
	text, err := os.ReadFile("../admin/testdata/status.json")
	if err != nil {
		t.Fatal(err)
	}
	var s admin.Status
	if err := json.Unmarshal(text, &s); err != nil {
		t.Fatal(err)
	}
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
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("(-want +got), -update writes it anew:\n%s", diff)
	}
}
