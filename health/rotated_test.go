package health

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/herald-vip/herald/testenv/must"
)

// A file that could not be read for lack of descriptors is read as soon as possible.
func TestRotatedRetries(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	write := func(s string) {
		t.Helper()
		must.Do(t, os.WriteFile(path, []byte(s), 0o600))
	}
	fault := error(nil)
	r := rotated[string]{what: "token", paths: []string{path}, parse: func(data [][]byte) (string, error) {
		return string(data[0]), fault
	}}
	write("first")
	if !r.refresh() || r.value != "first" {
		t.Fatalf("first: %+v", r)
	}
	write("the second")
	fault = errors.New("too many open files")
	if r.refresh() || r.value != "first" || r.stale() == nil || r.missing() != nil {
		t.Errorf("during the fault: %+v", r)
	}
	fault = nil
	if !r.refresh() || r.value != "the second" || r.stale() != nil {
		t.Errorf("after it: %+v", r)
	}
	if r.refresh() {
		t.Error("read again although nothing changed")
	}
}
