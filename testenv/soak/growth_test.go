package soak

import (
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/herald-vip/herald/testenv/must"
)

func TestParse(t *testing.T) {
	const page = `# HELP go_goroutines Number of goroutines that currently exist.
# TYPE go_goroutines gauge
go_goroutines 64
go_memstats_next_gc_bytes 8.388608e+06
herald_vip_announced{address="10.99.0.10",vip="control-plane"} 1
process_open_fds 25
process_resident_memory_bytes 5.24288e+07
`
	got := must.Get[map[string]float64](t)(parse(strings.NewReader(page)))
	want := map[string]float64{"go_goroutines": 64, "process_open_fds": 25, "process_resident_memory_bytes": 50 << 20, "go_memstats_next_gc_bytes": 8 << 20}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for want, broken := range map[string]string{
		"metric process_open_fds: not exported": strings.ReplaceAll(page, "process_open_fds", "process_fds"),
		"metric go_goroutines: strconv":         strings.ReplaceAll(page, "go_goroutines 64", "go_goroutines many"),
	} {
		if _, err := parse(strings.NewReader(broken)); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("error %v, want %s", err, want)
		}
	}
}

func TestCheckGrowth(t *testing.T) {
	steady := map[string]float64{"go_goroutines": 60, "process_open_fds": 20, "process_resident_memory_bytes": 50 << 20, "go_memstats_next_gc_bytes": 8 << 20}
	// history returns the samples of one process; one metric takes the values in turn.
	history := func(metric string, values ...float64) (list []Sample) {
		for _, v := range values {
			s := Sample{Master: "m1", PID: 7, Figures: maps.Clone(steady)}
			s.Figures[metric] = v
			list = append(list, s)
		}
		return list
	}
	const goroutines, descriptors, heap = "go_goroutines", "process_open_fds", "go_memstats_next_gc_bytes"
	for name, c := range map[string]struct {
		samples []Sample
		want    string
	}{
		"steady":               {history(goroutines, 60, 61, 60, 59, 60, 62, 60, 61), ""},
		"an outlier":           {history(goroutines, 60, 90, 60, 60, 60, 60, 60, 60, 60, 60, 90, 60), ""},
		"goroutines leak":      {history(goroutines, 60, 62, 64, 66, 68, 70, 72, 74), "goroutines grew from 62 to 74"},
		"descriptors leak":     {history(descriptors, 20, 20, 25, 26), "descriptors grew from 20 to 26"},
		"the heap grows a bit": {history(heap, 8<<20, 8<<20, 10<<20, 12<<20), ""},
		"the heap grows":       {history(heap, 8<<20, 10<<20, 14<<20, 16<<20), "heap grew from 8388608 to 16777216"},
		"too few samples":      {history(goroutines, 60, 70, 80), ""},
		"shrinks":              {history(goroutines, 90, 80, 70, 60), ""},
	} {
		t.Run(name, func(t *testing.T) {
			found := CheckGrowth(c.samples)
			if c.want == "" && len(found) > 0 || c.want != "" && (len(found) != 1 || !strings.Contains(found[0].Reason, c.want)) {
				t.Errorf("found %v, want %q", found, c.want)
			}
		})
	}

	// A restarted process begins a series of its own.
	again := history(goroutines, 90, 90, 90, 90)
	for i := range again {
		again[i].PID = 8
	}
	if found := CheckGrowth(append(history(goroutines, 60, 60, 60, 60), again...)); len(found) > 0 {
		t.Errorf("found %v for a restarted process", found)
	}
}
