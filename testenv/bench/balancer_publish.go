package bench

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// Publish writes the results into a folder, named by the day of the run: DAY.json and
// DAY.md. If page is not empty, it is a Markdown file in which what is between the lines
// [BeginResults] and [EndResults] is replaced by the tables.
func (r *BalancerResults) Publish(dir, page string) error {
	return publish(dir, r.Began, map[string]func(io.Writer) error{".json": r.WriteJSON, ".md": r.WriteTable}, page, r.fillPage)
}

// fillPage puts the results into the page; files are the path of the run's files
// without a suffix.
func (r *BalancerResults) fillPage(page, files string) (string, error) {
	before, after, err := around(page)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString(before)
	m := r.Machine
	fmt.Fprintf(&b, "Run of %s, %s long, on %d cores of %s with %.0f GiB of memory, Linux %s; Herald %s, HAProxy %s. [All values](%s.json).\n\n",
		r.Began.Format("2006-01-02 15:04 MST"), r.Took.Round(time.Second), m.Cores, m.CPU, float64(m.Memory)/(1<<30), m.Kernel,
		r.Versions["Herald"], r.Versions["HAProxy"], files)
	if err := r.WriteTable(&b); err != nil {
		return "", err
	}
	b.WriteString(after)
	return b.String(), nil
}
