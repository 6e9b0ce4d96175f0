// Package guide reads the commands and files that a document tells people to use, so that tests use the same.
package guide

import (
	"regexp"
	"strings"
)

var parts = regexp.MustCompile("(?ms)^(#+ [^\n]+)$|^( *)```(\\w*)\n(.*?)^ *```$")

// Blocks are the code blocks of a document in a language, in order, without the indentation of a list: those below
// a heading, whatever its number, up to the next one of any level, or without one all.
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
