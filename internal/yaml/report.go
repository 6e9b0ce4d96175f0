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
	// File is the name of the file.
	File string
	// Line and Column locate the mistake, counted from 1; columns count characters.
	Line, Column int
	// Field is the path of the field, such as vips[0].checks; empty if the mistake concerns the whole file.
	Field string
	// Message names the mistake and its remedy.
	Message string
}

// Error formats e as file:line:column: field: message.
func (e *Error) Error() string {
	if e.Field == "" {
		return fmt.Sprintf("%s:%d:%d: %s", e.File, e.Line, e.Column, e.Message)
	}
	return fmt.Sprintf("%s:%d:%d: %s: %s", e.File, e.Line, e.Column, e.Field, e.Message)
}

// Errors are all mistakes of a file and its drop-ins, in the order of files and positions.
type Errors []*Error

// Error returns one line per mistake.
func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i, err := range e {
		lines[i] = err.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap returns the single mistakes, for [errors.As].
func (e Errors) Unwrap() []error {
	errs := make([]error, len(e))
	for i, err := range e {
		errs[i] = err
	}
	return errs
}

// Report collects the mistakes of one file. The decoder records the position of each field and
// which fields had mistakes, so a validator needs only the path of a field.
type Report struct {
	file      string
	positions map[Path]Position // of the value of each field that is in the file
	unread    map[Path]bool     // fields that have no value because of a mistake
	origins   map[Path]origin   // of items from other files
	errs      Errors
}

// origin is the file that a field comes from, and its path there.
type origin struct {
	file string
	path Path
}

// NewReport returns an empty report of a file.
func NewReport(file string) *Report {
	return &Report{file: file, positions: map[Path]Position{}, unread: map[Path]bool{}, origins: map[Path]origin{}}
}

// Append adds the report of another file, after its lists have been appended to the lists of this file. For each list, at holds the
// index of the first appended item.
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

// move returns the path here of a field of an appended file; false unless the field is in an item of an appended list.
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

// origin returns the file that p comes from, and its path there.
func (r *Report) origin(p Path) origin {
	for q := p; q != ""; q = q.Parent() {
		if o, ok := r.origins[q]; ok {
			return origin{o.file, o.path + p[len(q):]}
		}
	}
	return origin{r.file, p}
}

// Name returns the name of field p in an error at field from, with its file if that differs.
func (r *Report) Name(p, from Path) string {
	o := r.origin(p)
	if o.file != r.origin(from).file {
		return string(o.path) + " of " + o.file
	}
	return string(o.path)
}

// errorAt reports a mistake at pos that concerns field p.
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

// Errorf reports a mistake in field p, or its absence. It does nothing if p could not be read, as that has been reported.
func (r *Report) Errorf(p Path, format string, args ...any) {
	if r.WasRead(p) {
		r.errorAt(r.position(p), p, format, args...)
	}
}

// WasRead returns false if p, or a field that contains it, could not be decoded because of a mistake.
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

// position returns the position of p or, if it is absent, of its innermost parent.
func (r *Report) position(p Path) Position {
	for ; p != ""; p = p.Parent() {
		if pos, ok := r.positions[p]; ok {
			return pos
		}
	}
	return r.positions[p]
}

// Err returns all mistakes, sorted, as [Errors]; nil if there are none.
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
