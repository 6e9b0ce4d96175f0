package clab

import (
	"errors"
	"strings"
)

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
