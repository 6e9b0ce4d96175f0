package bench

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// WriteTable writes a table for each router, for people, in Markdown: it reads
// well on a terminal too.
func (r *Results) WriteTable(w io.Writer) error {
	var b strings.Builder
	for i, router := range r.Routers() {
		if i > 0 {
			b.WriteString("\n")
		}
		r.writeRouter(&b, router)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (r *Results) writeRouter(b *strings.Builder, router string) {
	layer2 := router == NoRouter
	header := []string{"fault", "speaker", "trials", "failed of", "outage, ms", "route gone, ms", "÷ floor", "router told, ms", "back, ms"}
	floor := r.Floor(router)
	median, known := floor.Median()
	switch {
	case layer2:
		header = []string{"fault", "speaker", "trials", "failed of", "outage, ms", "taken over, ms", "outage after it, ms", "two holders"}
		b.WriteString("### Flat layer 2\n\n")
	case known:
		fmt.Fprintf(b, "### %s router, floor %s ms\n\n", router, floor.String())
		fmt.Fprintf(b, "The floor is from %d plain withdrawals.\n\n", floor.Len())
	default:
		fmt.Fprintf(b, "### %s router, floor unknown\n\n", router)
	}
	b.WriteString(r.starvation(router))
	rows := [][]string{header}
	fault := ""
	for _, s := range r.Summaries() {
		if s.Router != router {
			continue
		}
		row := []string{"", s.Speaker, fmt.Sprint(s.Trials), fmt.Sprintf("%d of %d", s.Failed, s.Attempts), s.endless(s.Outage)}
		if s.Fault != fault {
			fault = s.Fault
			row[0] = fault
		}
		if layer2 {
			row = append(row, s.endless(s.Taken), s.After.String(), s.splits())
		} else {
			row = append(row, s.endless(s.Gone), ratio(s.Gone, median), s.Told.String(), s.Back.String())
		}
		rows = append(rows, row)
	}
	align(b, rows)
	if layer2 {
		writeTargets(b, r.Targets(), "the longer of *outage* and *taken over*")
	} else {
		writeTargets(b, r.BridgeTargets(router), "the *outage*, which is to be below the router's own time")
	}
}

// starvation says how far the measuring itself can be trusted.
func (r *Results) starvation(router string) string {
	starved, all := 0, 0
	var late time.Duration
	for _, t := range r.Trials {
		if t.Router == router {
			starved += t.Starved
			all += t.Attempts + t.Starved
			late = max(late, t.Late)
		}
	}
	text := fmt.Sprintf("The prober was late by %s ms at most", ms(late))
	if starved > 0 {
		text += fmt.Sprintf(", and so starved that %d of %d attempts say nothing", starved, all)
	}
	return text + ".\n\n"
}

// endless shows a sample of which some took longer than was waited.
func (s Summary) endless(d Sample) string {
	if d.Never == 0 {
		return d.String()
	}
	never := fmt.Sprintf("never within %g s", s.Limit.Seconds())
	if len(d.Values) == 0 {
		return never
	}
	return fmt.Sprintf("%s; %d × %s", Sample{Values: d.Values}, d.Never, never)
}

// splits says in how many trials there were two holders, and for how long at
// most, as far as the observer's questions tell.
func (s Summary) splits() string {
	switch {
	case s.Splits == 0:
		return "never"
	case s.Split < asking:
		return fmt.Sprintf("%d×, < %d ms", s.Splits, asking.Milliseconds())
	}
	return fmt.Sprintf("%d×, ≤ %s ms", s.Splits, ms(s.Split))
}

// brief says the most important of a summary in one line.
func (s Summary) brief() string {
	text := fmt.Sprintf("%d of %d failed, outage %s ms", s.Failed, s.Attempts, s.endless(s.Outage))
	if s.Router == NoRouter {
		return text + fmt.Sprintf(", taken over %s ms, outage after it %s ms, two holders %s", s.endless(s.Taken), s.After, s.splits())
	}
	text += fmt.Sprintf(", route gone %s ms", s.endless(s.Gone))
	if s.Back.Len() > 0 {
		text += fmt.Sprintf(", back %s ms", s.Back)
	}
	return text
}

// ratio is the median as a multiple of the floor.
func ratio(d Sample, floor time.Duration) string {
	median, ok := d.Median()
	if !ok || floor <= 0 {
		return "–"
	}
	return fmt.Sprintf("%.1f", float64(median)/float64(floor))
}

// String shows "median (min–max)" in milliseconds; an en dash if there is
// nothing to show.
func (s Sample) String() string {
	median, ok := s.Median()
	if !ok {
		if s.Len() > 0 {
			return "never"
		}
		return "–"
	}
	low, _ := s.Min()
	text := fmt.Sprintf("%s (%s–", ms(median), ms(low))
	if high, ok := s.Max(); ok {
		return text + ms(high) + ")"
	}
	return text + "never)"
}

// ms shows milliseconds with as many digits as make sense.
func ms(d time.Duration) string {
	v := float64(d) / float64(time.Millisecond)
	switch {
	case d == 0:
		return "0"
	case v < 10:
		return fmt.Sprintf("%.1f", v)
	default:
		return fmt.Sprintf("%.0f", v)
	}
}

// align writes rows as a Markdown table, the first as its header, with columns
// of even width.
func align(b *strings.Builder, rows [][]string) {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], len([]rune(cell)))
		}
	}
	for n, row := range rows {
		for i, cell := range row {
			fmt.Fprintf(b, "| %s%s ", cell, strings.Repeat(" ", widths[i]-len([]rune(cell))))
		}
		b.WriteString("|\n")
		if n > 0 {
			continue
		}
		for i, width := range widths {
			mark := ":"
			if i > 1 {
				mark = "-"
			}
			fmt.Fprintf(b, "|%s%s", mark, strings.Repeat("-", width))
			if i > 1 {
				b.WriteString(":")
			} else {
				b.WriteString("-")
			}
		}
		b.WriteString("|\n")
	}
}
