package clab

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// expand fills in environment variables as containerlab does, anywhere in the
// file, comments too:
//
//	$VAR ${VAR}            the value; left as it stands if unset or empty
//	${VAR:-text} ${VAR:=text}   text if unset or empty
//	${VAR-text}  ${VAR=text}    text if unset
//	${VAR+text}  ${VAR:+text}   text if set, else nothing
//	$$                     a dollar sign
//
// The text may itself be one $VAR. A name that starts with a digit is no
// variable, so the $1 of a shell command stays.
func expand(text string, lookup func(string) (string, bool)) (string, error) {
	var out strings.Builder
	for i := 0; i < len(text); {
		dollar := strings.IndexByte(text[i:], '$')
		if dollar < 0 {
			out.WriteString(text[i:])
			break
		}
		out.WriteString(text[i : i+dollar])
		i += dollar
		rest := text[i+1:]
		switch {
		case strings.HasPrefix(rest, "$"):
			out.WriteByte('$')
			i += 2
		case strings.HasPrefix(rest, "{") && variable(rest[1:]) != "":
			end := strings.IndexAny(rest, "}\r\n")
			if end < 0 || rest[end] != '}' {
				line := 1 + strings.Count(text[:i], "\n")
				return "", mistakef(position{line: line}, "${%s is never closed with }", variable(rest[1:]))
			}
			out.WriteString(substitute(rest[1:end], lookup))
			i += 1 + end + 1
		default:
			name := variable(rest)
			out.WriteString(value(name, lookup))
			i += 1 + len(name)
		}
	}
	return out.String(), nil
}

// variable returns the variable name that text starts with, empty if none.
func variable(text string) string {
	end := strings.IndexFunc(text, func(r rune) bool {
		return r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r)
	})
	if end < 0 {
		end = len(text)
	}
	if first, _ := utf8.DecodeRuneInString(text); unicode.IsDigit(first) || text[:end] == "_" {
		return ""
	}
	return text[:end]
}

// value is what a bare $NAME stands for; without a value it stands for itself.
func value(name string, lookup func(string) (string, bool)) string {
	if v, _ := lookup(name); v != "" && name != "" {
		return v
	}
	return "$" + name
}

// substitute evaluates the inside of ${...}.
func substitute(expr string, lookup func(string) (string, bool)) string {
	name := variable(expr)
	op, text := expr[len(name):], ""
	for _, o := range []string{":-", ":=", ":+", "-", "=", "+"} {
		if rest, ok := strings.CutPrefix(op, o); ok {
			op, text = o, rest
			break
		}
	}
	if rest, ok := strings.CutPrefix(text, "$"); ok && rest != "" && variable(rest) == rest {
		text = value(rest, lookup)
	}
	if text == "" {
		return value(name, lookup) // containerlab sees no operator then
	}
	v, set := lookup(name)
	switch op {
	case ":-", ":=":
		if v == "" {
			return text
		}
	case "-", "=":
		if !set {
			return text
		}
	case "+", ":+":
		if set {
			return text
		}
		return ""
	}
	return value(name, lookup)
}
