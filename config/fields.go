package config

import (
	"reflect"
	"slices"
	"strings"
)

// field is a field of a struct as the file spells it.
type field struct {
	name  string
	index []int // for reflect.Value.FieldByIndex
}

// fieldsOf lists the fields of struct type t in order, those of inlined structs among them.
func fieldsOf(t reflect.Type) []field {
	var fields []field
	for f := range t.Fields() {
		name, option, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		switch {
		case name == "-":
		case option == "inline":
			for _, inner := range fieldsOf(f.Type) {
				fields = append(fields, field{inner.name, slices.Concat(f.Index, inner.index)})
			}
		default:
			fields = append(fields, field{name, f.Index})
		}
	}
	return fields
}
