// Package text makes what others wrote fit to be shown: on one line, short, and
// without what a terminal would take for a command.
package text

import (
	"strings"
	"unicode"
)

// OneLine is s on one line, with a dot for each character that cannot be printed.
func OneLine(s string) string {
	return strings.Join(strings.Fields(strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) || unicode.IsSpace(r) {
			return r
		}
		return '.'
	}, strings.ToValidUTF8(s, "."))), " ")
}

// Short is [OneLine] of at most limit characters.
func Short(s string, limit int) string { return Cut(OneLine(s), limit) }

// Cut is s, of which an ellipsis stands for what is beyond limit characters.
func Cut(s string, limit int) string {
	if runes := []rune(s); len(runes) > limit {
		return string(runes[:limit-1]) + "…"
	}
	return s
}
