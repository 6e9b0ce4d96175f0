package clab

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/token"
)

// errMagic is the error for a value with one of containerlab's own variables.
var errMagic = errors.New("the __clab...__ variables are not supported; write the value out")

// magic is the prefix of containerlab's own variables.
const magic = "__clab"

// wrong returns an error about the value of a key.
func wrong(key, value string, err error) error {
	return fmt.Errorf("%s: %q: %w", key, value, err)
}

// position is a place in a file, both counted from 1; column 0 is unknown.
type position struct{ line, column int }

// mistake is an error at a place in the file.
type mistake struct {
	position
	text string
}

func (m *mistake) Error() string { return m.text }

func mistakef(p position, format string, args ...any) error {
	return &mistake{p, fmt.Sprintf(format, args...)}
}

func positionOf(t *token.Token) position {
	if t == nil || t.Position == nil {
		return position{}
	}
	return position{t.Position.Line, t.Position.Column}
}

// locate prefixes an error's text with file, line and column.
func locate(path string, err error) error {
	var at position
	text := err.Error()
	if m, ok := errors.AsType[*mistake](err); ok {
		at = m.position
	} else if y, ok := errors.AsType[yaml.Error](err); ok {
		at, text = positionOf(y.GetToken()), y.GetMessage()
	}
	switch {
	case at.line == 0:
		return fmt.Errorf("%s: %s", path, text)
	case at.column == 0:
		return fmt.Errorf("%s:%d: %s", path, at.line, text)
	}
	return fmt.Errorf("%s:%d:%d: %s", path, at.line, at.column, text)
}

// refuseTemplate reports the first Go template action of a file: containerlab would
// execute it, this package does not.
func refuseTemplate(data []byte) error {
	i := bytes.Index(data, []byte("{{"))
	if i < 0 {
		return nil
	}
	line := 1 + bytes.Count(data[:i], []byte("\n"))
	return mistakef(position{line: line}, "templates ({{ }}) are not supported; write the file out")
}
