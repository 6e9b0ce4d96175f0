package config

import (
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
)

// YAML writes c as a configuration file with all defaults filled in. Parsing
// it gives c again, less the passwords.
func (c *Config) YAML() ([]byte, error) {
	return yaml.Marshal(plainStruct(reflect.ValueOf(c).Elem()))
}

// plainStruct leaves out a field that is empty and would be so by default.
func plainStruct(v reflect.Value) yaml.MapSlice {
	defaults := reflect.New(v.Type()).Elem()
	setDefaults(defaults)
	m := yaml.MapSlice{}
	for _, f := range fieldsOf(v.Type()) {
		value := v.FieldByIndex(f.index)
		if value.IsZero() && defaults.FieldByIndex(f.index).IsZero() {
			continue
		}
		m = append(m, yaml.MapItem{Key: f.name, Value: plain(value)})
	}
	return m
}

// plain is v in the terms of the YAML library, spelled as the decoder reads it.
func plain(v reflect.Value) any {
	switch v := v.Interface().(type) {
	case netip.Addr:
		return v.String()
	case netip.AddrPort:
		return v.String()
	case time.Duration:
		return v.String()
	}
	switch v.Kind() {
	case reflect.Pointer:
		return plain(v.Elem())
	case reflect.Struct:
		return plainStruct(v)
	case reflect.Slice:
		items := make([]any, v.Len())
		for i := range items {
			items[i] = plain(v.Index(i))
		}
		return items
	case reflect.Map:
		m := yaml.MapSlice{}
		for _, name := range slices.SortedFunc(slices.Values(v.MapKeys()), byText) {
			m = append(m, yaml.MapItem{Key: name.String(), Value: plain(v.MapIndex(name))})
		}
		return m
	case reflect.String:
		return v.String()
	}
	return v.Interface()
}

func byText(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) }
