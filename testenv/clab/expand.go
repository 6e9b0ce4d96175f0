package clab

import (
	"cmp"
	"regexp"
	"strings"
)

// expand substitutes environment variables as containerlab does, anywhere in the file, comments
// too:
//
//	$VAR ${VAR}    the value; unchanged if unset or empty
//	${VAR:=text}   text if unset or empty
//	$$             a dollar sign
//
// Other forms are errors. A name that starts with a digit is no variable, so the $1 of
// a shell command stays.
func expand(text string, lookup func(string) (string, bool)) (string, error) {
	var out strings.Builder
	var failed error
	number, pattern := 0, variable()
	for line := range strings.Lines(text) {
		number++
		out.WriteString(pattern.ReplaceAllStringFunc(line, func(whole string) string {
			part := pattern.FindStringSubmatch(whole)
			name := part[1] + part[2]
			fallback, ok := strings.CutPrefix(part[3], ":=")
			fallback, closed := strings.CutSuffix(fallback, "}")
			if part[2] != "" && (!closed || !ok && fallback != "" || strings.Contains(fallback, "$")) && failed == nil {
				failed = mistakef(position{line: number}, "%s is not supported; want ${%s} or ${%[2]s:=text}", whole, name)
			}
			if whole == "$$" {
				return "$"
			}
			value, _ := lookup(name)
			return cmp.Or(value, fallback, whole)
		}))
	}
	return out.String(), failed
}

// variable matches $$, a name without braces, or a name in braces and the rest up to
// the closing brace.
func variable() *regexp.Regexp {
	return regexp.MustCompile(`\$(?:\$|([A-Za-z_]\w*)|\{([A-Za-z_]\w*)([^}\r\n]*\}?))`)
}
