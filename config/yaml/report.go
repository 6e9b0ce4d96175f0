package yaml

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
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

// Errors are all the mistakes of one file, or of those that belong together, in the order of their files and positions.
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
	origins   map[Path]origin   // of what comes from other files
	errs      Errors
}

// origin is where a field is in the file that it comes from.
type origin struct {
	file string
	path Path
}

// NewReport makes the report of a file.
func NewReport(file string) *Report {
	return &Report{file: file, positions: map[Path]Position{}, unread: map[Path]bool{}, origins: map[Path]origin{}}
}

// Append adds the report of another file, whose lists now follow those of this one; at says at which index each of them begins.
func (r *Report) Append(other *Report, at map[Path]int) {
	r.errs = append(r.errs, other.errs...)
	for p, pos := range other.positions {
		if moved, ok := r.move(p, other.file, at); ok {
			r.positions[moved] = pos
		}
	}
	for p := range other.unread {
		moved, _ := r.move(p, other.file, at)
		r.unread[moved] = true
	}
}

// move is what a field of a file has become here, if it is in an item of a list.
func (r *Report) move(p Path, file string, at map[Path]int) (Path, bool) {
	list, inner, _ := strings.Cut(string(p), "[")
	index, field, item := strings.Cut(inner, "]")
	first, ok := at[Path(list)]
	i, err := strconv.Atoi(index)
	if !item || !ok || err != nil {
		return p, false
	}
	moved := Path(list).Item(first + i)
	r.origins[moved] = origin{file, Path(list).Item(i)}
	return moved + Path(field), true
}

// origin is the file that p is in, and its path there.
func (r *Report) origin(p Path) origin {
	for q := p; q != ""; q = q.Parent() {
		if o, ok := r.origins[q]; ok {
			return origin{o.file, o.path + p[len(q):]}
		}
	}
	return origin{r.file, p}
}

// Name is how an error at field from calls field p: with its file, if that is another one.
func (r *Report) Name(p, from Path) string {
	o := r.origin(p)
	if o.file != r.origin(from).file {
		return string(o.path) + " of " + o.file
	}
	return string(o.path)
}

// errorAt reports a mistake that has to do with field p and is at pos.
func (r *Report) errorAt(pos Position, p Path, format string, args ...any) {
	at := r.origin(p)
	r.errs = append(r.errs, &Error{
		File:    at.file,
		Line:    max(pos.Line, 1),
		Column:  max(pos.Column, 1),
		Field:   string(at.path),
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
			cmp.Compare(a.File, b.File),
			cmp.Compare(a.Line, b.Line),
			cmp.Compare(a.Column, b.Column),
			cmp.Compare(a.Field, b.Field),
		)
	})
	return r.errs
}
