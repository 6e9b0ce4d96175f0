package bench

import (
	"io"
	"slices"
	"strings"
)

// WriteTable writes the tables, for people, in Markdown: what is wanted of Herald, and
// everything that was measured.
func (r *BalancerResults) WriteTable(w io.Writer) error {
	var b strings.Builder
	if targets := r.Targets(); len(targets) > 0 {
		b.WriteString("### What is wanted of Herald\n\n")
		rows := [][]string{{"measure", "path", "wanted", "measured", "met"}}
		for _, t := range targets {
			met := "yes"
			if !t.Met {
				met = "**no**"
			}
			rows = append(rows, []string{t.Measure, t.Path, t.Wanted, t.Measured, met})
		}
		align(&b, rows)
		b.WriteString("\n")
	}
	b.WriteString("### All figures\n\nMedians, and in parentheses the range, of the rounds or trials; of what went wrong the sums.\n\n")
	balancers := r.balancers()
	rows := [][]string{append([]string{"measure", "path"}, balancers...)}
	var done []BalancerFigure
	for _, f := range r.Figures {
		same := func(o BalancerFigure) bool { return o.Measure == f.Measure && o.Path == f.Path }
		if slices.ContainsFunc(done, same) {
			continue
		}
		done = append(done, f)
		row := []string{string(f.Measure), f.Path}
		for _, name := range balancers {
			text := "–"
			if g, ok := r.find(name, f.Measure, f.Path); ok {
				text = g.text()
			}
			row = append(row, text)
		}
		rows = append(rows, row)
	}
	align(&b, rows)
	_, err := io.WriteString(w, b.String())
	return err
}

// balancers are those measured, direct first.
func (r *BalancerResults) balancers() (list []string) {
	for _, name := range []string{direct, directAgain, directTracked, forwarded, viaHerald, viaHAProxy, viaHAProxySpl, viaProxy} {
		if slices.ContainsFunc(r.Figures, func(f BalancerFigure) bool { return f.Balancer == name }) {
			list = append(list, name)
		}
	}
	return list
}

// Publish writes the results into a folder, named by the day of the run: DAY.json and
// DAY.md. If page is not empty, it is a Markdown file in which what is between the lines
// [BeginResults] and [EndResults] is replaced by the tables.
func (r *BalancerResults) Publish(dir, page string) error {
	return publish(dir, r.Began, map[string]func(io.Writer) error{".json": r.WriteJSON, ".md": r.WriteTable}, page, r.fillPage)
}

// fillPage puts the results into the page; files are the path of the run's files
// without a suffix.
func (r *BalancerResults) fillPage(page, files string) (string, error) {
	return r.fill(page, "[All values]("+files+".json)", r.WriteTable, "Herald", "HAProxy")
}
