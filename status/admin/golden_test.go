package admin_test

import (
	"bytes"
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/herald-vip/herald/status/admin"
	"github.com/herald-vip/herald/testenv/must"
)

// Users script against `herald status -o json` and `herald status --services -o json`: the files in testdata have every
// member, and each value survives a client that decodes it and prints it again. The order of members has no meaning.
func TestJSON(t *testing.T) {
	for file, value := range map[string]any{"status.json": new(admin.Status), "services.json": new([]admin.Service)} {
		t.Run(file, func(t *testing.T) {
			want := must.Get[[]byte](t)(os.ReadFile("testdata/" + file))
			d := json.NewDecoder(bytes.NewReader(want))
			d.DisallowUnknownFields()
			must.Do(t, d.Decode(value))
			got := must.Get[[]byte](t)(json.Marshal(value))
			if diff := cmp.Diff(members(t, want), members(t, got)); diff != "" {
				t.Errorf("(-file +printed):\n%s", diff)
			}
			complete(t, reflect.TypeOf(value), []any{members(t, want)}, "")
		})
	}
}

func members(t *testing.T, text []byte) (out any) {
	t.Helper()
	must.Do(t, json.Unmarshal(text, &out))
	return out
}

// complete reports members of typ that no value has.
func complete(t *testing.T, typ reflect.Type, values []any, path string) {
	t.Helper()
	switch typ.Kind() {
	case reflect.Pointer:
		complete(t, typ.Elem(), values, path)
	case reflect.Slice:
		var elements []any
		for _, v := range values {
			list, _ := v.([]any)
			elements = append(elements, list...)
		}
		complete(t, typ.Elem(), elements, path+"[]")
	case reflect.Struct:
		if typ.Implements(reflect.TypeFor[json.Marshaler]()) {
			return
		}
		for _, field := range reflect.VisibleFields(typ) {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			if name == "" || name == "-" {
				continue
			}
			var inner []any
			for _, v := range values {
				if object, ok := v.(map[string]any); ok && object[name] != nil {
					inner = append(inner, object[name])
				}
			}
			if len(inner) == 0 {
				t.Errorf("%s.%s is not in the file", path, name)
			}
			complete(t, field.Type, inner, path+"."+name)
		}
	}
}
