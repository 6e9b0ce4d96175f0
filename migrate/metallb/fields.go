package metallb

import (
	"cmp"
	"errors"
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/migrate"
)

// fields are those of an object that nobody has asked for yet.
type fields struct {
	*object
	in   string // the section of table
	path string // in front of their names there
	left []migrate.Field
}

// fields are those of the spec of an object.
func (o *object) fields() *fields {
	return &fields{object: o, in: o.kind, left: slices.Clone(o.body.At("spec").Fields)}
}

// within are the fields of one of them.
func (f *fields) within(key string) *fields {
	return f.of(key+".", f.take(key))
}

// of are the fields of a value that was taken, or of an item of it; path is in front of their names.
func (f *fields) of(path string, value *migrate.Tree) *fields {
	return &fields{object: f.object, in: f.in, path: f.path + path, left: value.Fields}
}

// take is the value of a field, which is not left over then; an empty tree if there is none.
func (f *fields) take(key string) *migrate.Tree {
	value := &migrate.Tree{Line: f.line}
	f.left = slices.DeleteFunc(f.left, func(entry migrate.Field) bool {
		taken := same(entry.Key, key)
		if taken {
			value = entry.Value
			value.Line = cmp.Or(value.Line, entry.Line)
		}
		return taken
	})
	return value
}

// done notes the fields that nobody took.
func (f *fields) done() {
	for _, entry := range f.left {
		field := f.path + entry.Key
		switch row, known := migrate.Find(Table(), f.in, func(name string) bool { return same(field, name) }); {
		case !known:
			f.Note(entry.Line, f.about(field), "is no field that is known here: not carried over")
		case !entry.Value.Empty() && !slices.Contains(row.Idle, entry.Value.Scalar):
			f.Add(entry.Line, row.ToDo, f.about(field), "%s", row.Text)
		}
	}
}

// text is a field that is text.
func (f *fields) text(key string) string { return f.take(key).Text() }

// texts is a field that is a list of texts, each once.
func (f *fields) texts(key string) []string {
	var out []string
	for _, item := range f.take(key).Items {
		if s := item.Text(); s != "" && !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

// boolean is a field that is true or false; otherwise if it is neither.
func (f *fields) boolean(key string, otherwise bool) bool {
	t := f.take(key)
	if t.Scalar == "" {
		return otherwise
	}
	b, err := strconv.ParseBool(t.Scalar)
	if err != nil {
		f.ToDo(t.Line, f.about(f.path+key), "%s is neither true nor false", migrate.Quoted(t.Scalar))
		return otherwise
	}
	return b
}

// number is a field that is one of 0 to most; otherwise if it is none.
func (f *fields) number(key string, most uint32, otherwise uint32) uint32 {
	t := f.take(key)
	if t.Scalar == "" {
		return otherwise
	}
	return f.Number(migrate.Setting{Line: t.Line, Name: f.about(f.path + key), Value: t.Scalar}, 0, most, otherwise)
}

// duration is a field that is a time such as 90s; nothing if there is none.
func (f *fields) duration(key string) (d time.Duration, line int) {
	t := f.take(key)
	if t.Scalar == "" {
		return 0, 0
	}
	d, err := time.ParseDuration(t.Scalar)
	if err != nil || d < 0 {
		f.ToDo(t.Line, f.about(f.path+key), "%s is no time such as 90s", migrate.Quoted(t.Scalar))
		return 0, 0
	}
	return d, t.Line
}

// selectors is a field that is a list of label selectors.
func (f *fields) selectors(key string) []v1alpha1.LabelSelector {
	var out []v1alpha1.LabelSelector
	for _, item := range f.take(key).Items {
		in := f.of(key+"[].", item)
		var s v1alpha1.LabelSelector
		if labels := in.take("matchLabels").Strings(); len(labels) > 0 {
			s.MatchLabels = labels
		}
		for _, e := range in.take("matchExpressions").Items {
			one := f.of(key+"[].", e)
			s.MatchExpressions = append(s.MatchExpressions, v1alpha1.LabelRequirement{
				Key: one.text("key"), Operator: metav1.LabelSelectorOperator(one.text("operator")), Values: one.texts("values"),
			})
			one.done()
		}
		in.done()
		if _, err := s.Selector(); err != nil {
			f.ToDo(item.Line, f.about(f.path+key), "selects nothing: %s", sentence(err)) // and is kept: none at all would select everything
		}
		out = append(out, s)
	}
	return out
}

// sentence is the innermost of an error, which may name parts of the input, for a note.
func sentence(err error) string {
	for errors.Unwrap(err) != nil {
		err = errors.Unwrap(err)
	}
	return migrate.Printable(err.Error())
}
