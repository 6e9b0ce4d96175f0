package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Error is one mistake in a configuration file.
type Error struct {
	// File is the name under which the file was read.
	File string
	// Line and Column are where the mistake is, counted from 1; columns are characters.
	Line, Column int
	// Field is the path of the field, such as vips[0].checks; empty if the file as a whole is wrong.
	Field string
	// Message says what is wrong and what to do.
	Message string
}

// Error formats e as file:line:column: field: message.
func (e *Error) Error() string {
	if e.Field == "" {
		return fmt.Sprintf("%s:%d:%d: %s", e.File, e.Line, e.Column, e.Message)
	}
	return fmt.Sprintf("%s:%d:%d: %s: %s", e.File, e.Line, e.Column, e.Field, e.Message)
}

// Errors are all the mistakes of one configuration file, in the order of their positions.
type Errors []*Error

// Error is one line per mistake.
func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i, err := range e {
		lines[i] = err.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap gives the single mistakes to [errors.As].
func (e Errors) Unwrap() []error {
	errs := make([]error, len(e))
	for i, err := range e {
		errs[i] = err
	}
	return errs
}

// position is a place in a file, counted from 1.
type position struct{ line, column int }

// report collects the mistakes of one file. The decoder fills positions and
// unread, so that whoever judges a decoded value needs to know only its path.
type report struct {
	file      string
	positions map[path]position // of the value of each field that is in the file
	unread    map[path]bool     // fields without a value, because of a mistake
	errs      Errors
}

func newReport(file string) *report {
	return &report{file: file, positions: map[path]position{}, unread: map[path]bool{}}
}

// errorAt reports a mistake that has to do with field p and is at pos.
func (r *report) errorAt(pos position, p path, format string, args ...any) {
	r.errs = append(r.errs, &Error{
		File:    r.file,
		Line:    max(pos.line, 1),
		Column:  max(pos.column, 1),
		Field:   string(p),
		Message: fmt.Sprintf(format, args...),
	})
}

// errorf reports a mistake in the value of field p, or its absence; unless it could not be read, which has been reported.
func (r *report) errorf(p path, format string, args ...any) {
	if r.wasRead(p) {
		r.errorAt(r.position(p), p, format, args...)
	}
}

// wasRead is false if a mistake kept p, or what contains it, from being decoded.
func (r *report) wasRead(p path) bool {
	for ; p != ""; p = p.parent() {
		if r.unread[p] {
			return false
		}
	}
	return !r.unread[p]
}

// position is where p is, or the innermost of its parents if it is absent.
func (r *report) position(p path) position {
	for ; p != ""; p = p.parent() {
		if pos, ok := r.positions[p]; ok {
			return pos
		}
	}
	return r.positions[p]
}

// err is everything reported, sorted; nil if that is nothing.
func (r *report) err() error {
	if len(r.errs) == 0 {
		return nil
	}
	slices.SortStableFunc(r.errs, func(a, b *Error) int {
		return cmp.Or(
			cmp.Compare(a.Line, b.Line),
			cmp.Compare(a.Column, b.Column),
			cmp.Compare(a.Field, b.Field),
		)
	})
	return r.errs
}
