package record

import (
	"bytes"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/herald-vip/herald/testenv/must"
)

// TestRoundTrip checks that a written record reads back, and that Go's tools can read it.
func TestRoundTrip(t *testing.T) {
	var b bytes.Buffer
	r := New(&b, []Setting{{"herald", "v1"}, {"machine", "2 cores of X"}})
	name := Name("Fault", "fault", "cut, 3 × 50 ms", "rate", "1,000 connections/s", "path", "")
	r.Add(name, Value{1.5, "ms/gone"}, Never("ms/back"))
	r.Discard(name, errors.New("the machine was busy"))
	must.Do(t, r.Err())
	got := must.Get[*Run](t)(Parse(strings.NewReader(b.String()), "test"))
	if diff := cmp.Diff(&r.Run, got); diff != "" {
		t.Errorf("(-written +read):\n%s\n%s", diff, b.String())
	}
	first, second := got.Results[0], got.Results[1]
	if first.Get("fault") != "cut, 3 × 50 ms" || first.Get("rate") != "1,000 connections/s" || first.Get("path") != "" || first.Discarded() {
		t.Errorf("%+v", first)
	}
	if second.Get(Inconclusive) != "the machine was busy" || !second.Discarded() {
		t.Errorf("%+v", second)
	}
	if _, err := Parse(strings.NewReader("BenchmarkX 1 much ms\n"), "test"); err == nil {
		t.Error("a malformed value is accepted")
	}
}

func TestSample(t *testing.T) {
	never := math.Inf(1)
	for _, tt := range []struct {
		in   Sample
		want float64
	}{{Sample{7}, 7}, {Sample{30, 10, 20}, 20}, {Sample{40, 10, 20, 30}, 25}, {Sample{never, 10, 20}, 20}, {Sample{never, 10, never}, never}} {
		if got := tt.in.Median(); got != tt.want {
			t.Errorf("%v: %v, want %v", tt.in, got, tt.want)
		}
	}
	if got := (Sample{}).Median(); !math.IsNaN(got) {
		t.Errorf("of nothing: %v", got)
	}
}

// TestHere checks that the settings name the machine and the programs of a run.
func TestHere(t *testing.T) {
	list := Here(t.Context(), map[string]string{"herald": "/no/such/file"})
	for _, s := range list {
		if s.Value == "" || s.Key == "herald" {
			t.Errorf("%+v", s)
		}
	}
	if len(list) < 3 {
		t.Errorf("%+v", list)
	}
}

// TestMissing checks that results of the earlier run that lack in the new one are
// found, except discarded ones.
func TestMissing(t *testing.T) {
	key := func(r Result) string { return r.Get("measure") }
	kept := &Run{Results: []Result{{Name: "A/measure=a"}, {Name: "A/measure=b"}, {Name: "A/measure=b"}, {Name: "A/measure=c", Values: []Value{{1, Inconclusive}}}, {Name: "A"}}}
	now := &Run{Results: []Result{{Name: "A/measure=a"}, {Name: "A/measure=b", Values: []Value{{1, Inconclusive}}}}}
	if got := now.Missing(kept, key); len(got) != 1 || got[0] != "b" {
		t.Errorf("missing are %q, want b", got)
	}
}
