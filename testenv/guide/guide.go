// Package guide reads the commands and files in a document, so that tests use the same
// as its readers.
package guide

import (
	"regexp"
	"strings"
)

var parts = regexp.MustCompile("(?ms)^(#+ [^\n]+)$|^( *)```(\\w*)\n(.*?)^ *```$")

// Blocks returns the code blocks of a document in a language, in order, without the
// indentation of a list. It returns the blocks between a heading, without its number,
// and the next heading of any level; without a heading, all blocks.
func Blocks(document, heading, language string) (out []string) {
	below := ""
	for _, m := range parts.FindAllStringSubmatch(document, -1) {
		switch {
		case m[1] != "":
			below = strings.TrimLeft(m[1], "#0123456789. ")
		case m[3] == language && (heading == "" || heading == below):
			out = append(out, regexp.MustCompile("(?m)^"+m[2]).ReplaceAllString(m[4], ""))
		}
	}
	return out
}
