package yaml

import (
	"reflect"
	"slices"
	"strings"
)

// Defaulter is a type with defaults of its own. They are set before a file's
// values are, so that an explicit zero is not mistaken for an absent field.
type Defaulter interface{ SetDefaults() }

// SetDefaults sets those of struct v if its type has any.
func SetDefaults(v reflect.Value) {
	if d, ok := v.Addr().Interface().(Defaulter); ok {
		d.SetDefaults()
	}
}

// Field is a field of a struct as the file spells it.
type Field struct {
	Name  string
	Index []int // for reflect.Value.FieldByIndex
}

// FieldsOf lists the fields of struct type t in order, those of inlined structs among them,
// named by their tag of that key.
func FieldsOf(t reflect.Type, key string) []Field {
	var fields []Field
	for f := range t.Fields() {
		name, option, _ := strings.Cut(f.Tag.Get(key), ",")
		switch {
		case name == "-" || !f.IsExported():
		case option == "inline":
			for _, inner := range FieldsOf(f.Type, key) {
				fields = append(fields, Field{inner.Name, slices.Concat(f.Index, inner.Index)})
			}
		default:
			fields = append(fields, Field{name, f.Index})
		}
	}
	return fields
}
