package yaml

import (
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// SetDefaults sets the fields that have a default tag, in the struct that into points to and
// in the structs in it. The default of a list is its only item. Defaults are set before
// the values of a file, so that an explicit zero differs from an absent field.
func SetDefaults(into any) { setDefaults(reflect.ValueOf(into).Elem(), "") }

func setDefaults(v reflect.Value, text string) {
	v = unwrapped(v)
	switch {
	case v.Kind() == reflect.Struct:
		for _, f := range FieldsOf(v.Type(), "yaml") {
			setDefaults(v.FieldByIndex(f.Index), f.Default)
		}
	case text == "":
	case v.Kind() == reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		setDefaults(v.Index(0), text)
	case v.Kind() == reflect.String:
		v.SetString(text)
	case v.Kind() == reflect.Bool:
		v.SetBool(text == "true")
	case v.CanUint():
		v.SetUint(uint64(number(text)))
	default:
		v.SetInt(number(text))
	}
}

// unwrapped returns the embedded value of a struct without further fields, such as Kubernetes' Duration; other values it returns unchanged.
func unwrapped(v reflect.Value) reflect.Value {
	if v.Kind() == reflect.Struct && v.NumField() == 1 && v.Type().Field(0).Anonymous {
		return v.Field(0)
	}
	return v
}

// number returns the whole number or the duration in a tag.
func number(text string) int64 {
	if d, err := time.ParseDuration(text); err == nil {
		return int64(d)
	}
	n, _ := strconv.ParseInt(text, 10, 64)
	return n
}

// Limits reports values that violate the want tags of v, a struct at path p, and of the
// structs in it. A tag is a range, as in "0s to 5m", or a choice, as in "auto, required or off". A
// choice without a default is required. The tag of a list applies to its items.
func (r *Report) Limits(p Path, v any) { r.limits(p, reflect.ValueOf(v), Field{}) }

func (r *Report) limits(p Path, v reflect.Value, f Field) {
	v = unwrapped(v)
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			r.limits(p, v.Elem(), f)
		}
	case reflect.Slice:
		for i := range v.Len() {
			r.limits(p.Item(i), v.Index(i), Field{Want: f.Want})
		}
	case reflect.Struct:
		for _, f := range FieldsOf(v.Type(), "yaml") {
			r.limits(p.Field(f.Name), v.FieldByIndex(f.Index), f)
		}
	case reflect.String:
		words := strings.Split(strings.Replace(f.Want, " or ", ", ", 1), ", ")
		switch {
		case f.Want == "" || slices.Contains(words, v.String()):
		case v.String() == "" && f.Name != "" && f.Default == "":
			r.Errorf(p, "missing: write %s: %s", f.Name, strings.Join(words, " or "+f.Name+": "))
		default:
			r.Errorf(p, "want %s, got %s", f.Want, Quote(v.String()))
		}
	default:
		least, most, limited := strings.Cut(f.Want, " to ")
		if !limited {
			return
		}
		if n := number(fmt.Sprint(v)); n < number(least) || n > number(most) {
			r.Errorf(p, "want %s, got %v", f.Want, v)
		}
	}
}

// Field is a field of a struct, with its name in the file and its tags.
type Field struct {
	Name          string
	Index         []int // for reflect.Value.FieldByIndex
	Default, Want string
}

// FieldsOf lists the fields of struct type t in order, including the fields of inlined structs.
// Their names come from the tag with the given key.
func FieldsOf(t reflect.Type, key string) []Field {
	var fields []Field
	for f := range t.Fields() {
		name, option, _ := strings.Cut(f.Tag.Get(key), ",")
		switch {
		case name == "-" || !f.IsExported():
		case option == "inline":
			for _, inner := range FieldsOf(f.Type, key) {
				inner.Index = slices.Concat(f.Index, inner.Index)
				fields = append(fields, inner)
			}
		default:
			fields = append(fields, Field{name, f.Index, f.Tag.Get("default"), f.Tag.Get("want")})
		}
	}
	return fields
}

// File reports a path that is not absolute: a daemon's working directory is never intended. The report does not
// repeat the value, as it may be a secret. An empty name passes.
func (r *Report) File(p Path, name string) {
	if name != "" && !filepath.IsAbs(name) {
		r.Errorf(p, "want the absolute path of a file")
	}
}

// RequiredFile is [Report.File], and reports an empty name as well.
func (r *Report) RequiredFile(p Path, name string) {
	if name == "" {
		r.Errorf(p, "missing: give the absolute path of a file")
	}
	r.File(p, name)
}

// HostPort reports an address that is empty or that nothing can connect to.
func (r *Report) HostPort(p Path, address string) {
	switch {
	case address == "":
		r.Errorf(p, "missing: give host:port")
	case !IsHostPort(address, false):
		r.Errorf(p, "want host:port such as 127.0.0.1:5001, got %s", Quote(address))
	}
}

// IsHostPort reports whether s is host:port. If listen is set, the host may be empty and the port 0.
func IsHostPort(s string, listen bool) bool {
	host, port, err := net.SplitHostPort(s)
	if err != nil || strings.ContainsAny(host, " /") {
		return false
	}
	n, err := strconv.ParseUint(port, 10, 16)
	return err == nil && (listen || host != "" && n > 0)
}

// Link reports a name that is empty or that no link can have.
func (r *Report) Link(p Path, name string) {
	const limit = 15 // IFNAMSIZ less its final zero
	switch {
	case name == "":
		r.Errorf(p, "missing: give the name of a link")
	case len(name) > limit || name == "." || name == ".." || strings.ContainsAny(name, "/: \t"):
		r.Errorf(p, "want the name of a link, at most %d characters, got %s", limit, Quote(name))
	}
}

// IsUnicast reports whether addr can be the address of one host.
func IsUnicast(addr netip.Addr) bool {
	return !addr.IsUnspecified() && !addr.IsMulticast() && addr != netip.AddrFrom4([4]byte{255, 255, 255, 255})
}
