package config

import (
	"net/netip"
	"reflect"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// field is a field of a struct as the file spells it.
type field struct {
	name  string
	index []int // for reflect.Value.FieldByIndex
	kind  reflect.Type
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
				fields = append(fields, field{inner.name, slices.Concat(f.Index, inner.index), inner.kind})
			}
		default:
			fields = append(fields, field{name, f.Index, f.Type})
		}
	}
	return fields
}

func names(fields []field) []string {
	all := make([]string, len(fields))
	for i, f := range fields {
		all[i] = f.name
	}
	return all
}

// fits reports whether n may be a value of f by its shape: a list, a mapping, or neither of the two. What an
// alias stands for is not looked at.
func (f field) fits(n ast.Node) bool {
	t := f.kind
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	isAddress := t == reflect.TypeFor[netip.Addr]() || t == reflect.TypeFor[netip.AddrPort]()
	isMapping := t.Kind() == reflect.Map || t.Kind() == reflect.Struct && !isAddress
	switch n.Type() {
	case ast.MappingType:
		return isMapping
	case ast.SequenceType:
		return t.Kind() == reflect.Slice
	case ast.AliasType, ast.AnchorType, ast.NullType:
		return true
	}
	return !isMapping && t.Kind() != reflect.Slice
}

// isSection reports whether n is a list or a mapping.
func isSection(n ast.Node) bool { return n.Type() == ast.MappingType || n.Type() == ast.SequenceType }
