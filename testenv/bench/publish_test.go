package bench

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// published are the results of any benchmark.
type published interface {
	WriteJSON(io.Writer) error
	Publish(dir, page string) error
	fillPage(page, files string) (string, error)
}

// comesBack wants results to come back from JSON as they were, and nothing else to pass for them.
func comesBack[R published](t *testing.T, results R, read func(io.Reader) (R, error), others ...string) {
	t.Helper()
	var b bytes.Buffer
	if err := results.WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	got, err := read(&b)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(results, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, other := range others {
		if _, err := read(strings.NewReader(other)); err == nil {
			t.Errorf("%q passes for results", other)
		}
	}
}

// publishes wants a page's text around the results to stay, and the run to be told of in it.
func publishes(t *testing.T, results published, run string) {
	t.Helper()
	dir := t.TempDir()
	page := filepath.Join(dir, "page.md")
	if err := os.WriteFile(page, []byte("before\n"+BeginResults+"\nold\n"+EndResults+"\nafter\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := results.Publish(filepath.Join(dir, "benchmarks"), page); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	text := string(got)
	if !strings.HasPrefix(text, "before\n"+BeginResults) || !strings.HasSuffix(text, EndResults+"\nafter\n") || strings.Contains(text, "old") {
		t.Errorf("the page is\n%s", text)
	}
	if !strings.Contains(text, run) {
		t.Errorf("the run is not told of in\n%s", text)
	}
}

// pageTells wants the page of a benchmark to say what the file of its last run does.
func pageTells[R published](t *testing.T, benchmark string, read func(io.Reader) (R, error)) {
	t.Helper()
	path := "../../docs/benchmarks-" + benchmark + ".md"
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	runs, err := filepath.Glob("../../docs/benchmarks/" + benchmark + "/*.json")
	if err != nil || len(runs) == 0 {
		t.Fatalf("no runs: %v", err)
	}
	run := runs[len(runs)-1]
	f, err := os.Open(run)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	results, err := read(f)
	if err != nil {
		t.Fatal(err)
	}
	day := strings.TrimSuffix(filepath.Base(run), ".json")
	want, err := results.fillPage(string(page), "benchmarks/"+benchmark+"/"+day)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(page)); diff != "" {
		t.Errorf("write it anew: bin/herald-testenv bench-%[1]s --from docs/benchmarks/%[1]s/%[2]s.json --out docs/benchmarks/%[1]s --page docs/benchmarks-%[1]s.md (-want +got):\n%[3]s", benchmark, day, diff)
	}
}
