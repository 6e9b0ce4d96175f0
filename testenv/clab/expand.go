package clab

import (
	"cmp"
	"errors"
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

// words splits a command into its arguments as containerlab does: by the quoting rules
// of a POSIX shell, except that a backslash between double quotes always escapes.
// Nothing is expanded; a # at the start of a word begins a comment.
func words(command string) ([]string, error) {
	var (
		list   []string
		word   strings.Builder
		inWord bool
		quote  rune // the open quote, or 0
	)
	runes := []rune(command)
	for i := 0; i < len(runes); i++ {
		r := runes[i]
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case r == '\\' && quote != '\'':
			if i++; i == len(runes) {
				return nil, errors.New("the command ends in a backslash")
			}
			word.WriteRune(runes[i])
			inWord = true
		case quote != 0:
			word.WriteRune(r)
		case r == '\'' || r == '"':
			quote, inWord = r, true
		case strings.ContainsRune(" \t\r\n", r):
			if inWord {
				list = append(list, word.String())
			}
			word.Reset()
			inWord = false
		case r == '#' && !inWord:
			for i+1 < len(runes) && runes[i+1] != '\n' {
				i++
			}
		default:
			word.WriteRune(r)
			inWord = true
		}
	}
	if quote != 0 {
		return nil, errors.New("the command has an unclosed " + string(quote))
	}
	if inWord {
		list = append(list, word.String())
	}
	return list, nil
}
