package bench

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// WriteTable writes the tables, for people, in Markdown: what is wanted of Herald, and
// everything that was measured.
func (r *ServiceResults) WriteTable(w io.Writer) error {
	var b strings.Builder
	if targets := r.Targets(); len(targets) > 0 {
		b.WriteString("### What is wanted of Herald\n\n")
		rows := [][]string{{"measure", "Services", "wanted", "measured", "met"}}
		for _, t := range targets {
			met := "yes"
			if !t.Met {
				met = "**no**"
			}
			rows = append(rows, []string{string(t.Measure), number(t.Services), t.Wanted, t.Measured, met})
		}
		align(&b, rows)
		b.WriteString("\n")
	}
	b.WriteString("### All figures\n\nMedians, and in parentheses the range, of the trials; of memory the largest process.\n\n")
	announcers := r.announcers()
	rows := [][]string{append([]string{"measure", "Services"}, announcers...)}
	var done []Measurement
	for _, m := range r.Measurements {
		same := func(o Measurement) bool { return o.Measure == m.Measure && o.Services == m.Services }
		if slices.ContainsFunc(done, same) {
			continue
		}
		done = append(done, m)
		row := []string{string(m.Measure), number(m.Services)}
		for _, a := range announcers {
			text := "–"
			if f, ok := r.find(a, m.Measure, m.Services); ok {
				text = f.text()
			}
			row = append(row, text)
		}
		rows = append(rows, row)
	}
	align(&b, rows)
	_, err := io.WriteString(w, b.String())
	return err
}

func number(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(n)
}

// announcers are those measured, in the order of their first measurement.
func (r *ServiceResults) announcers() (list []string) {
	for _, m := range r.Measurements {
		if !slices.Contains(list, m.Announcer) {
			list = append(list, m.Announcer)
		}
	}
	return list
}

// Publish writes the results into a folder, named by the day of the run: DAY.json and
// DAY.md. If page is not empty, it is a Markdown file in which what is between the lines
// [BeginResults] and [EndResults] is replaced by the tables.
func (r *ServiceResults) Publish(dir, page string) error {
	return publish(dir, r.Began, map[string]func(io.Writer) error{".json": r.WriteJSON, ".md": r.WriteTable}, page, r.fillPage)
}

// fillPage puts the results into the page; files are the path of the run's files
// without a suffix.
func (r *ServiceResults) fillPage(page, files string) (string, error) {
	return r.fill(page, "[All values]("+files+".json)", r.WriteTable, "Herald", "MetalLB", "Kubernetes", "FRR")
}
