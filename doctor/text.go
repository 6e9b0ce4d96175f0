package doctor

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/herald-vip/herald/internal/text"
)

// WriteText writes r as text: blockers and warnings with reason and cure, then the fine findings, then
// a line of counts. It replaces control characters in foreign text, such as names in certificates.
func (r Report) WriteText(w io.Writer) error {
	tw := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintf(tw, "herald %s examines %s with %s\n\n", r.Version, r.Node, r.Config)
	for _, f := range r.Findings {
		label := string(f.Severity)
		switch f.Severity {
		case OK:
			continue
		case Blocker:
			label = strings.ToUpper(label)
		}
		fmt.Fprintf(tw, "%s  %s %s: %s\n", label, f.Topic, text.OneLine(f.Subject), text.OneLine(f.Seen))
		fmt.Fprintf(tw, "  why    %s\n", wrap(f.Why))
		fmt.Fprintf(tw, "  do     %s\n\n", wrap(f.Cure))
	}
	for _, f := range r.Findings {
		if f.Severity == OK {
			fmt.Fprintf(tw, "fine\t%s\t%s\t%s\n", f.Topic, text.OneLine(f.Subject), text.OneLine(f.Seen))
		}
	}
	if r.Fine > 0 {
		fmt.Fprintln(tw)
	}
	fmt.Fprintf(tw, "%s, %s, %d fine\n", count(r.Blockers, "blocker"), count(r.Warnings, "warning"), r.Fine)
	return tw.Flush()
}

// wrap breaks s into indented lines for a terminal of 100 columns.
func wrap(s string) string {
	const width, indent = 91, "\n         "
	var out strings.Builder
	column := 0
	for i, word := range strings.Fields(text.OneLine(s)) {
		n := len([]rune(word))
		switch {
		case i == 0:
		case column+1+n > width:
			out.WriteString(indent)
			column = 0
		default:
			out.WriteByte(' ')
			column++
		}
		out.WriteString(word)
		column += n
	}
	return out.String()
}

// count formats a number of things, in the plural unless n is 1.
func count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
