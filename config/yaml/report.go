package yaml

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Error is one mistake in a file.
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

// Errors are all the mistakes of one file, in the order of their positions.
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

// Report collects the mistakes of one file. The decoder notes where each field is and
// which had mistakes, so that a validator needs to know only the path of what it validates.
type Report struct {
	file      string
	positions map[Path]Position // of the value of each field that is in the file
	unread    map[Path]bool     // fields without a value, because of a mistake
	errs      Errors
}

// NewReport makes the report of a file.
func NewReport(file string) *Report {
	return &Report{file: file, positions: map[Path]Position{}, unread: map[Path]bool{}}
}

// errorAt reports a mistake that has to do with field p and is at pos.
func (r *Report) errorAt(pos Position, p Path, format string, args ...any) {
	r.errs = append(r.errs, &Error{
		File:    r.file,
		Line:    max(pos.Line, 1),
		Column:  max(pos.Column, 1),
		Field:   string(p),
		Message: fmt.Sprintf(format, args...),
	})
}

// Errorf reports a mistake in the value of field p, or its absence; unless it could not be read, which has been reported.
func (r *Report) Errorf(p Path, format string, args ...any) {
	if r.WasRead(p) {
		r.errorAt(r.position(p), p, format, args...)
	}
}

// WasRead is false if a mistake kept p, or what contains it, from being decoded.
func (r *Report) WasRead(p Path) bool {
	for ; p != ""; p = p.Parent() {
		if r.unread[p] {
			return false
		}
	}
	return !r.unread[p]
}

// Given reports whether the file has a value for p.
func (r *Report) Given(p Path) bool { return r.positions[p] != Position{} }

// position is where p is, or the innermost of its parents if it is absent.
func (r *Report) position(p Path) Position {
	for ; p != ""; p = p.Parent() {
		if pos, ok := r.positions[p]; ok {
			return pos
		}
	}
	return r.positions[p]
}

// Err is of type [Errors] and has everything reported, sorted; nil if that is nothing.
func (r *Report) Err() error {
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
