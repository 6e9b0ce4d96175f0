package config_test

import (
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/internal/yaml"
)

// Every default and limit in a tag is a value of its field's type; another text would count as 0.
func TestTags(t *testing.T) {
	seen := 0
	var read func(reflect.Type)
	read = func(typ reflect.Type) {
		switch typ.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Map:
			read(typ.Elem())
			return
		case reflect.Struct:
		default:
			return
		}
		for _, f := range yaml.FieldsOf(typ, "yaml") {
			field := typ.FieldByIndex(f.Index).Type
			read(field)
			if field.Kind() == reflect.Pointer || field.Kind() == reflect.Slice {
				field = field.Elem()
			}
			if field == reflect.TypeFor[metav1.Duration]() {
				field = reflect.TypeFor[time.Duration]()
			}
			texts := []string{f.Default}
			if least, most, limited := strings.Cut(f.Want, " to "); limited {
				texts = append(texts, least, most)
			}
			for _, text := range texts {
				var err error
				switch {
				case text == "" || field.Kind() == reflect.String:
					continue
				case field == reflect.TypeFor[time.Duration]():
					_, err = time.ParseDuration(text)
				case field.Kind() == reflect.Bool:
					_, err = strconv.ParseBool(text)
				case field.Kind() >= reflect.Uint && field.Kind() <= reflect.Uint64:
					_, err = strconv.ParseUint(text, 10, field.Bits())
				default:
					_, err = strconv.ParseInt(text, 10, field.Bits())
				}
				if seen++; err != nil {
					t.Errorf("%s.%s: %v", typ, f.Name, err)
				}
			}
		}
	}
	read(reflect.TypeFor[config.Config]())
	if seen < 40 {
		t.Errorf("%d values in tags were read, want 40 at least", seen)
	}
}
