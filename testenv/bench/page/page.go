// Package page writes the benchmarks' tables and charts from the files of their runs,
// between marks in documents, and checks single figures.
package page

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/herald-vip/herald/testenv/bench/record"
	"github.com/herald-vip/herald/testenv/step"
)

// results matches the text between two marks. The first names the file of a run, in
// the folder benchmarks, and, if the run has routers, the router to show.
var results = regexp.MustCompile(`(?s)(<!-- results: (\S+)(?: ([^>\n]+?))? -->\n).*?(<!-- end of results -->)`)

// Write rewrites DOCS/benchmarks.md and its charts.
func Write(docs string) error {
	path := filepath.Join(docs, "benchmarks.md")
	return step.Run(func() {
		filled, charts := fill(string(step.Get(os.ReadFile(path))), filepath.Join(docs, "benchmarks"))
		for name, chart := range charts {
			step.Do(os.WriteFile(filepath.Join(docs, "benchmarks", name), chart, 0o644))
		}
		step.Do(os.WriteFile(path, []byte(filled), 0o644))
	})
}

// fill puts the results of runs in a folder between the marks of a page, and returns
// the charts of the page by file name.
func fill(page, folder string) (filled string, charts map[string][]byte) {
	charts = make(map[string][]byte)
	filled = results.ReplaceAllStringFunc(page, func(section string) string {
		parts := results.FindStringSubmatch(section)
		text := ""
		step.Named(parts[2], func() { text = show(folder, parts[2], parts[3], charts) })
		return parts[1] + "\n" + text + "\n" + parts[4]
	})
	return filled, charts
}

// show returns a page's text about a run.
func show(folder, file, router string, charts map[string][]byte) string {
	run := step.Get(record.Read(filepath.Join(folder, file)))
	var settings []string
	for _, s := range run.Settings {
		settings = append(settings, s.Key+" "+s.Value)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "[%s](benchmarks/%[1]s): %s.\n%s\n", file, strings.Join(settings, "; "), discarded(run))
	if router == "" {
		compare(&b, run, "announcer", "measure", "services")
		return b.String()
	}
	name := strings.TrimSuffix(file, ".txt") + "-" + strings.ReplaceAll(router, " ", "-") + ".svg"
	charts[name] = step.Get(chart(run, router))
	fmt.Fprintf(&b, "![each trial of each fault, and medians](benchmarks/%s)\n\n", name)
	faults(&b, run, router)
	return b.String()
}

// discarded counts the trials that prove nothing, by reason.
func discarded(run *record.Run) string {
	var counts []string
	for _, reason := range distinct(run.Results, func(r record.Result) string { return r.Get(record.Inconclusive) }) {
		n := len(run.Sample(record.Inconclusive, func(r record.Result) bool { return r.Get(record.Inconclusive) == reason }))
		counts = append(counts, fmt.Sprintf("%d × %s", n, reason))
	}
	if len(counts) == 0 {
		return ""
	}
	return "Trials discarded as inconclusive: " + strings.Join(counts, ", ") + ".\n"
}

// distinct returns the distinct values of the results, in the order of their first occurrence.
func distinct(results []record.Result, value func(record.Result) string) (list []string) {
	for _, r := range results {
		if v := value(r); v != "" && !slices.Contains(list, v) {
			list = append(list, v)
		}
	}
	return list
}

// faults writes a table with a line for each fault and speaker, as one router saw them.
func faults(b *strings.Builder, run *record.Run, router string) {
	units := []string{"outage", "gone", "told", "back"}
	header := []string{"fault", "speaker", "trials", "failed of", "outage, ms", "route gone, ms", "router told, ms", "back, ms"}
	shown := func(r record.Result) bool { return r.Get("router") == router && !r.Discarded() }
	flat := len(run.Sample("holders", shown)) > 0
	if flat {
		units, header = []string{"outage", "taken", "after"}, []string{"fault", "speaker", "trials", "failed of", "outage, ms", "taken over, ms", "outage after it, ms", "two holders"}
	}
	rows := [][]string{header}
	fault := ""
	for _, g := range groups(run, router) {
		row := []string{"", g.speaker, fmt.Sprint(len(run.Sample("failed", g.contains))),
			fmt.Sprintf("%.0f of %.0f", run.Sample("failed", g.contains).Sum(), run.Sample("connections", g.contains).Sum())}
		if g.fault != fault {
			fault, row[0] = g.fault, g.fault
		}
		for _, unit := range units {
			row = append(row, text(run.Sample("ms/"+unit, g.contains)))
		}
		if flat {
			row = append(row, twoHolders(run.Sample("ms/split", g.contains), run.Sample("holders", g.contains)))
		}
		rows = append(rows, row)
	}
	if floor := run.Sample("ms/floor", shown); len(floor) > 0 {
		fmt.Fprintf(b, "The floor, the router's own time: %s ms, of %d plain withdrawals.", text(floor), len(floor))
	}
	if late := run.Sample("ms/late", shown); len(late) > 0 {
		fmt.Fprintf(b, " The prober was late by %s ms at most, and %.0f attempts of a starved one are left out.\n\n", figure(slices.Max(late)), run.Sample("starved", shown).Sum())
	}
	align(b, rows)
}

func twoHolders(split, holders record.Sample) string {
	n := len(slices.DeleteFunc(slices.Clone(holders), func(h float64) bool { return h <= 1 }))
	if n == 0 {
		return "never"
	}
	return fmt.Sprintf("%d×, ≤ %s ms", n, figure(slices.Max(split)))
}

// group holds the trials of one fault on one speaker, as one router saw them: all of the same
// name.
type group struct{ name, fault, speaker string }

func (g group) contains(r record.Result) bool { return r.Name == g.name }

// groups returns a router's groups, fault by fault, in the order of their first trials.
func groups(run *record.Run, router string) (list []group) {
	var faults []string
	for _, r := range run.Results {
		g := group{r.Name, r.Get("fault"), r.Get("speaker")}
		if r.Get("router") != router || r.Discarded() || slices.Contains(list, g) {
			continue
		}
		list, faults = append(list, g), append(faults, g.fault)
	}
	slices.SortStableFunc(list, func(a, b group) int { return slices.Index(faults, a.fault) - slices.Index(faults, b.fault) })
	return list
}

// compare writes a table with a column for each value of one key, and a line for each combination of the values of the
// other keys that all columns have.
func compare(b *strings.Builder, run *record.Run, column string, keys ...string) {
	results := slices.DeleteFunc(slices.Clone(run.Results), record.Result.Discarded)
	line := func(r record.Result) string {
		var values []string
		for _, k := range keys {
			values = append(values, r.Get(k))
		}
		return strings.Join(values, "\x00")
	}
	cells := make(map[[2]string][]record.Result)
	for _, r := range results {
		at := [2]string{line(r), r.Get(column)}
		cells[at] = append(cells[at], r)
	}
	columns := distinct(results, func(r record.Result) string { return r.Get(column) })
	rows := [][]string{slices.Concat(keys, columns)}
	for _, line := range distinct(results, line) {
		row := strings.Split(line, "\x00")
		for _, c := range columns {
			if list := cells[[2]string{line, c}]; len(list) > 0 {
				row = append(row, cell(list))
			}
		}
		if len(row) == len(keys)+len(columns) {
			rows = append(rows, row)
		}
	}
	align(b, rows)
}

// cell shows results: failures out of all, or the median with its unit.
func cell(list []record.Result) string {
	run := record.Run{Results: list}
	if failed := run.Sample("failed", nil); len(failed) > 0 {
		return fmt.Sprintf("%.0f of %.0f", failed.Sum(), run.Sample("connections", nil).Sum())
	}
	unit := list[0].Values[0].Unit
	return text(run.Sample(unit, nil)) + " " + unit
}

// text shows a sample: its median and, of several values, the range.
func text(s record.Sample) string {
	switch len(s) {
	case 0:
		return "–"
	case 1:
		return figure(s[0])
	}
	return fmt.Sprintf("%s (%s–%s)", figure(s.Median()), figure(slices.Min(s)), figure(slices.Max(s)))
}

// figure shows a value with a sensible number of digits.
func figure(v float64) string {
	switch {
	case math.IsInf(v, 1):
		return "never"
	case v == 0:
		return "0"
	case v < 1:
		return fmt.Sprintf("%.2f", v)
	case v < 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.0f", v)
}

// align writes rows as a Markdown table, the first as its header.
func align(b *strings.Builder, rows [][]string) {
	for n, row := range rows {
		b.WriteString("| " + strings.Join(row, " | ") + " |\n")
		if n == 0 {
			b.WriteString(strings.Repeat("|---", len(row)) + "|\n")
		}
	}
}
