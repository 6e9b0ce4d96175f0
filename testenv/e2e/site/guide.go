//go:build e2e

package site

import (
	"regexp"
	"strings"
	"testing"
)

// Blocks are the code blocks of a document in a language, in order, without the indentation of a list: those below
// a heading, whatever its number, up to the next one of any level, or without one all.
func Blocks(t *testing.T, path, heading, language string) (out []string) {
	t.Helper()
	fence := regexp.MustCompile("(?ms)^(#+ [^\n]+)$|^( *)```(\\w*)\n(.*?)^ *```$")
	below := ""
	for _, m := range fence.FindAllStringSubmatch(ReadFile(t, path), -1) {
		switch {
		case m[1] != "":
			below = strings.TrimLeft(m[1], "#0123456789. ")
		case m[3] == language && (heading == "" || heading == below):
			out = append(out, regexp.MustCompile("(?m)^"+m[2]).ReplaceAllString(m[4], ""))
		}
	}
	return out
}
