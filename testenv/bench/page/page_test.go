package page

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/herald-vip/herald/testenv/must"
	"github.com/herald-vip/herald/testenv/step"
)

const (
	docs = "../../../docs"
	runs = docs + "/benchmarks"
)

// TestPage checks that the page of benchmarks and its charts match the runs.
func TestPage(t *testing.T) {
	text := read(t, docs+"/benchmarks.md")
	var filled string
	var charts map[string][]byte
	must.Do(t, step.Run(func() { filled, charts = fill(text, runs) }))
	const anew = "write it anew: bin/herald-bench page"
	if diff := cmp.Diff(text, filled); diff != "" {
		t.Errorf("%s (-page +runs):\n%s", anew, diff)
	}
	for name, chart := range charts {
		if read(t, filepath.Join(runs, name)) != string(chart) {
			t.Errorf("%s: %s", name, anew)
		}
	}
	if n := strings.Count(text, "<!-- results: "); n != 3 {
		t.Errorf("%d runs are shown, want 3", n)
	}
}

// TestFigures checks that the figures of documents match the runs that they name, and
// that each bold figure of the comparison names a run.
func TestFigures(t *testing.T) {
	for path, least := range map[string]int{"docs/comparison.md": 25, "docs/benchmarks.md": 20} {
		n, err := Check(read(t, "../../../"+path), runs)
		if err != nil || n < least {
			t.Errorf("%s: %d figures, at least %d wanted: %v", path, n, least, err)
		}
	}
	measured := regexp.MustCompile(`\*\*[0-9][^*]*\*\*[^<]`)
	_, times, ok := strings.Cut(read(t, docs+"/comparison.md"), "## How long it takes")
	if bare := measured.FindAllString(times, -1); !ok || len(bare) > 0 {
		t.Errorf("these figures do not name their run: %q", bare)
	}
}

// TestReadme checks that each figure in the table of README.md matches its run. The columns are ways to announce, the rows
// are faults.
func TestReadme(t *testing.T) {
	const routed, flat = "2026-11-25-failover.txt", "2026-11-26-flat.txt"
	columns := []struct{ title, run, speaker, unit string }{
		{"Herald, BGP", routed, "herald/router=FRR", "ms/gone"},
		{"FRR and a script every 0.2 s", routed, "FRR,_script_0.2_s/router=FRR", "ms/gone"},
		{"Herald, flat", flat, "herald,_lease_600_ms/router=layer_2", "ms/taken"},
		{"keepalived", flat, "keepalived,_tuned/router=layer_2", "ms/taken"},
	}
	faults := []struct {
		title string
		fault map[string]string // by run
	}{
		{"apiserver dies", map[string]string{routed: "apiserver_killed", flat: "apiserver_killed"}},
		{"speaker killed", map[string]string{routed: "speaker_killed", flat: "speaker_killed"}},
		{"power loss, BFD 3 × 50 ms, lease 600 ms", map[string]string{routed: "power_loss,_BFD_3_×_50_ms", flat: "power_loss"}},
	}
	header := "| fault |"
	for _, c := range columns {
		header += " " + c.title + " |"
	}
	_, table, ok := strings.Cut(read(t, "../../../README.md"), "\n"+header+"\n|---|---|---|---|---|\n")
	table, _, end := strings.Cut(table, "\n\n")
	rows := strings.Split(table, "\n")
	if !ok || !end || len(rows) != len(faults) {
		t.Fatalf("README.md has no table with %q and %d rows", header, len(faults))
	}
	for i, row := range rows {
		cells := strings.Split(strings.Trim(row, "| "), " | ")
		if len(cells) != 1+len(columns) || cells[0] != faults[i].title {
			t.Errorf("row %d is %q, want %q and %d figures", i, row, faults[i].title, len(columns))
			continue
		}
		for j, c := range columns {
			figure, _, _ := strings.Cut(cells[j+1], ",")
			if !shown.MatchString(figure) {
				t.Errorf("%s, %s: %q is no figure", cells[0], c.title, figure)
			}
			name := "Fault/fault=" + faults[i].fault[c.run] + "/speaker=" + c.speaker
			if err := check(figure, runs, c.run, name, c.unit, ""); err != nil {
				t.Errorf("%s, %s: %q: %v", cells[0], c.title, figure, err)
			}
		}
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	return string(must.Get[[]byte](t)(os.ReadFile(path)))
}

// TestCheck checks that wrong figures are detected.
func TestCheck(t *testing.T) {
	dir := t.TempDir()
	run := "herald: 1\n\nBenchmarkFault/x=a 1 1400 ms/gone\nBenchmarkFault/x=a 1 1500 ms/gone\nBenchmarkFault/x=a 1 1900 ms/gone\nBenchmarkFault/x=b 1 0 failed\n"
	must.Do(t, os.WriteFile(filepath.Join(dir, "r.txt"), []byte(run), 0o600))
	for text, good := range map[string]bool{
		"**1.5 s**<!-- r.txt Fault/x=a ms/gone -->":             true,
		"**1,500 ms**<!-- r.txt Fault/x=a ms/gone -->":          true,
		"1.9 s<!-- r.txt Fault/x=a ms/gone max -->":             true,
		"no connection lost<!-- r.txt Fault/x=b failed sum -->": true,
		"**1.6 s**<!-- r.txt Fault/x=a ms/gone -->":             false,
		"**1.5 ms**<!-- r.txt Fault/x=a ms/gone -->":            false,
		"**1.5 s**<!-- r.txt Fault/x=c ms/gone -->":             false,
		"**1.5 s**<!-- s.txt Fault/x=a ms/gone -->":             false,
		"never<!-- r.txt Fault/x=a ms/gone -->":                 false,
	} {
		if n, err := Check(text, dir); n != 1 || (err == nil) != good {
			t.Errorf("%s: %d figures, %v", text, n, err)
		}
	}
}
