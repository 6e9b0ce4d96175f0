package page

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	docs = "../../../docs"
	runs = docs + "/benchmarks"
)

// TestPage checks that the page of benchmarks and its charts match the runs.
func TestPage(t *testing.T) {
	text := read(t, docs+"/benchmarks.md")
	filled, charts, err := fill(text, runs)
	if err != nil {
		t.Fatal(err)
	}
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
	for path, least := range map[string]int{"README.md": 12, "docs/comparison.md": 25, "docs/benchmarks.md": 20} {
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

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestCheck checks that wrong figures are detected.
func TestCheck(t *testing.T) {
	dir := t.TempDir()
	run := "herald: 1\n\nBenchmarkFault/x=a 1 1400 ms/gone\nBenchmarkFault/x=a 1 1500 ms/gone\nBenchmarkFault/x=a 1 1900 ms/gone\nBenchmarkFault/x=b 1 0 failed\n"
	if err := os.WriteFile(filepath.Join(dir, "r.txt"), []byte(run), 0o600); err != nil {
		t.Fatal(err)
	}
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
