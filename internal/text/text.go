// Package text makes foreign text safe to show: on one line, short, and without control sequences for a terminal.
package text

import (
	"cmp"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"text/tabwriter"
	"unicode"
)

// OneLine returns s on one line, with a dot for each character that cannot be printed.
func OneLine(s string) string {
	return strings.Join(strings.Fields(strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) || unicode.IsSpace(r) {
			return r
		}
		return '.'
	}, strings.ToValidUTF8(s, "."))), " ")
}

// Short returns [OneLine] of at most limit characters of s.
func Short(s string, limit int) string { return Cut(OneLine(s), limit) }

// Cut returns at most limit characters of s, the last an ellipsis if it is longer.
func Cut(s string, limit int) string {
	if runes := []rune(s); len(runes) > limit {
		return string(runes[:limit-1]) + "…"
	}
	return s
}

// Table writes aligned columns. Call Flush at the end.
type Table struct{ *tabwriter.Writer }

// NewTable returns a table that writes to w.
func NewTable(w io.Writer) Table { return Table{tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)} }

// Row writes a row. Each cell is on one line; an empty one is a dash.
func (t Table) Row(cells ...string) {
	for i, c := range cells {
		cells[i] = cmp.Or(OneLine(c), "-")
	}
	fmt.Fprintln(t, strings.Join(cells, "\t"))
}

// Addresses returns a single address, or the number of several.
func Addresses(addrs []netip.Addr) string {
	if len(addrs) == 1 {
		return addrs[0].String()
	}
	return fmt.Sprintf("%d addresses", len(addrs))
}
