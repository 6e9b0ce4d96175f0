package bench

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files anew")

// golden compares with a file in testdata.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s differs; go test -run %s -update writes it anew (-want +got):\n%s", path, t.Name(), diff)
	}
}

func TestWriteTable(t *testing.T) {
	var b bytes.Buffer
	if err := example().WriteTable(&b); err != nil {
		t.Fatal(err)
	}
	golden(t, "table.md", b.Bytes())
}

// TestWriteSVG wants the chart as it was looked at once, and well-formed
// whatever the names are.
func TestWriteSVG(t *testing.T) {
	var b bytes.Buffer
	if err := example().WriteSVG(&b); err != nil {
		t.Fatal(err)
	}
	golden(t, "chart.svg", b.Bytes())

	for _, r := range []*Results{{}, example(), {Trials: []Trial{{Router: "<&>", Speaker: `"`, Fault: "]]>"}}}} {
		b.Reset()
		if err := r.WriteSVG(&b); err != nil {
			t.Fatal(err)
		}
		if s := b.String(); strings.Contains(s, "NaN") || strings.Contains(s, "Inf") {
			t.Errorf("no numbers in %s", s)
		}
		d := xml.NewDecoder(&b)
		for {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestJSON(t *testing.T) {
	comesBack(t, example(), ReadJSON, "", "[]", `{"trials": [{"speker": "x"}]}`)
}

// TestPublish wants a page's text around the results to stay, however often
// they are put in.
func TestPublish(t *testing.T) {
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	dir := "."
	page, err := filepath.Abs("benchmarks.md")
	if err != nil {
		t.Fatal(err)
	}
	text := "# Title\n\n" + BeginResults + "\nold\n" + EndResults + "\n\nThe end.\n"
	if err := os.WriteFile(page, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	var once string
	for range 2 {
		if err := example().Publish(filepath.Join(dir, "benchmarks"), page); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		if once != "" && once != string(got) {
			t.Errorf("the second time it is other:\n%s", cmp.Diff(once, string(got)))
		}
		once = string(got)
	}
	t.Chdir(here)
	golden(t, "page.md", []byte(once))
	t.Chdir(filepath.Dir(page))
	for _, file := range []string{"2026-11-21.json", "2026-11-21.md", "2026-11-21.svg"} {
		if _, err := os.Stat(filepath.Join(dir, "benchmarks", file)); err != nil {
			t.Error(err)
		}
	}
	if err := os.WriteFile(page, []byte("no marks"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := example().Publish(dir, page); err == nil || !strings.Contains(err.Error(), page) {
		t.Errorf("a page without marks: %v", err)
	}
}
