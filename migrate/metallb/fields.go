package metallb

import (
	"cmp"
	"errors"
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/internal/text"
	"github.com/herald-vip/herald/migrate"
)

// fields are the fields of an object that have not been taken yet.
type fields struct {
	*object
	in   string // section of the table
	path string // prefix of their names in the table
	left []migrate.Field
}

// fields returns the fields of the spec of o.
func (o *object) fields() *fields {
	return &fields{object: o, in: o.kind, left: slices.Clone(o.body.At("spec").Fields)}
}

// within takes a field and returns its fields.
func (f *fields) within(key string) *fields {
	return f.nested(key+".", f.take(key))
}

// nested returns the fields of a taken value, or of an item of it; path is the prefix of their names.
func (f *fields) nested(path string, value *migrate.Tree) *fields {
	return &fields{object: f.object, in: f.in, path: f.path + path, left: value.Fields}
}

// take removes a field and returns its value; an empty tree if there is none.
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

// done notes the fields that were not taken.
func (f *fields) done() {
	for _, entry := range f.left {
		field := f.path + entry.Key
		switch row, known := migrate.Find(Table(), f.in, func(name string) bool { return same(field, name) }); {
		case !known:
			f.Note(entry.Line, f.about(field), "is an unknown field: not carried over")
		case !entry.Value.Empty() && !slices.Contains(row.Idle, entry.Value.Scalar):
			f.Add(entry.Line, row.ToDo, f.about(field), "%s", row.Text)
		}
	}
}

// text takes a field with text.
func (f *fields) text(key string) string { return f.take(key).Text() }

// texts takes a list of texts, each once.
func (f *fields) texts(key string) []string {
	var out []string
	for _, item := range f.take(key).Items {
		if s := item.Text(); s != "" && !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

// boolean takes a field that is true or false. It returns otherwise if it is unset or invalid.
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

// number takes a field with a number of 0 to most. It returns otherwise if it is unset or invalid.
func (f *fields) number(key string, most uint32, otherwise uint32) uint32 {
	t := f.take(key)
	if t.Scalar == "" {
		return otherwise
	}
	return f.Number(migrate.Setting{Line: t.Line, Name: f.about(f.path + key), Value: t.Scalar}, 0, most, otherwise)
}

// duration takes a field with a time such as 90s; zero if it is unset or invalid.
func (f *fields) duration(key string) (d time.Duration, line int) {
	t := f.take(key)
	if t.Scalar == "" {
		return 0, 0
	}
	d, err := time.ParseDuration(t.Scalar)
	if err != nil || d < 0 {
		f.ToDo(t.Line, f.about(f.path+key), "%s is not a time such as 90s", migrate.Quoted(t.Scalar))
		return 0, 0
	}
	return d, t.Line
}

// selectors takes a list of label selectors.
func (f *fields) selectors(key string) []v1alpha1.LabelSelector {
	var out []v1alpha1.LabelSelector
	for _, item := range f.take(key).Items {
		in := f.nested(key+"[].", item)
		var s v1alpha1.LabelSelector
		if labels := in.take("matchLabels").Strings(); len(labels) > 0 {
			s.MatchLabels = labels
		}
		for _, e := range in.take("matchExpressions").Items {
			expression := f.nested(key+"[].", e)
			s.MatchExpressions = append(s.MatchExpressions, v1alpha1.LabelRequirement{
				Key: expression.text("key"), Operator: metav1.LabelSelectorOperator(expression.text("operator")), Values: expression.texts("values"),
			})
			expression.done()
		}
		in.done()
		if _, err := s.Selector(); err != nil {
			f.ToDo(item.Line, f.about(f.path+key), "selects nothing: %s", sentence(err)) // it stays: without selectors everything is selected
		}
		out = append(out, s)
	}
	return out
}

// sentence returns the innermost error for a note; it may quote the input.
func sentence(err error) string {
	for errors.Unwrap(err) != nil {
		err = errors.Unwrap(err)
	}
	return text.OneLine(err.Error())
}
