package yaml

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Writer writes structs for people to read: fields in their order, lists of scalars on one line, with comments.
type Writer struct {
	strings.Builder
	// Tag is the key of the struct tags that name the fields, such as yaml.
	Tag string
	// Omit reports whether to leave out a field with this value and this default.
	Omit func(value, usual reflect.Value) bool
	// Comments are the comments before a field or item.
	Comments map[Path][]string
	// Holes are comments in place of an omitted field.
	Holes map[Path][]string
	// Depth is the indentation of the lines, in steps of two spaces.
	Depth int

	item bool // the next line begins an item of a list
}

// Struct writes the fields of v, a struct at path p.
func (w *Writer) Struct(p Path, v any) { w.fields(p, reflect.Indirect(reflect.ValueOf(v))) }

func (w *Writer) fields(p Path, v reflect.Value) {
	defaults := reflect.New(v.Type()).Elem()
	setDefaults(defaults, "")
	for _, f := range FieldsOf(v.Type(), w.Tag) {
		path, value := p.Field(f.Name), v.FieldByIndex(f.Index)
		if !w.Omit(value, defaults.FieldByIndex(f.Index)) {
			w.entry(path, f.Name, value)
		} else if hole := w.Holes[path]; hole != nil {
			w.Remark(hole...)
		}
	}
}

// entry writes a field of a struct or mapping.
func (w *Writer) entry(p Path, key string, v reflect.Value) {
	for v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface {
		v = v.Elem()
	}
	w.Remark(w.Comments[p]...)
	if text, ok := inline(v); ok {
		w.Line(key + ": " + text)
		return
	}
	mark := w.Len()
	w.Line(key + ":")
	begun := w.Len()
	switch v.Kind() {
	case reflect.Slice:
		for i := range v.Len() {
			w.Remark(w.Comments[p.Item(i)]...)
			w.item = true
			w.Depth++
			w.fields(p.Item(i), v.Index(i))
			w.Depth--
			if w.item { // nothing was written
				w.item = false
				w.Line("- {}")
			}
		}
		return
	case reflect.Map:
		w.Depth++
		for _, name := range slices.SortedFunc(slices.Values(v.MapKeys()), func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) }) {
			w.entry(p.Field(name.String()), scalar(name.String()), v.MapIndex(name))
		}
		w.Depth--
	default:
		w.Depth++
		w.fields(p, v)
		w.Depth--
	}
	if w.Len() == begun {
		begin := w.String()[:mark]
		w.Reset()
		w.WriteString(begin)
		w.Line(key + ": {}")
	}
}

// Remark writes comments.
func (w *Writer) Remark(lines ...string) {
	for _, line := range lines {
		w.WriteString(strings.Repeat("  ", w.Depth) + "# " + line + "\n")
	}
}

// Line writes one line.
func (w *Writer) Line(s string) {
	indent := strings.Repeat("  ", w.Depth)
	if w.item {
		indent, w.item = indent[2:]+"- ", false
	}
	w.WriteString(indent + s + "\n")
}

// inline returns v on one line; false unless it is a scalar or a list of scalars.
func inline(v reflect.Value) (string, bool) {
	v = unwrapped(v)
	switch v := v.Interface().(type) {
	case time.Duration:
		return v.String(), true
	case json.Marshaler: // a number or a word
		text, err := v.MarshalJSON()
		return string(text), err == nil
	case fmt.Stringer: // an address, with or without a port
		return scalar(v.String()), true
	}
	switch v.Kind() {
	case reflect.String:
		return scalar(v.String()), true
	case reflect.Struct, reflect.Map:
		return "", false
	case reflect.Slice:
		texts := make([]string, v.Len())
		for i := range texts {
			text, ok := inline(v.Index(i))
			if !ok {
				return "", false
			}
			texts[i] = text
		}
		return "[" + strings.Join(texts, ", ") + "]", true
	}
	return fmt.Sprint(v.Interface()), true
}

// scalar returns s as YAML text, in quotes unless it can only be read as text.
func scalar(s string) string {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	plain := s != "" && strings.ContainsAny(s[:1], letters+"/")
	if addr, err := netip.ParseAddr(s); err == nil {
		plain = addr.Is4()
	}
	switch strings.ToLower(s) {
	case "true", "false", "yes", "no", "on", "off", "y", "n", "null", "nan", "inf":
		plain = false
	}
	if plain && strings.Trim(s, letters+"0123456789-._/:") == "" && !strings.HasSuffix(s, ":") {
		return s
	}
	return strconv.Quote(s)
}
