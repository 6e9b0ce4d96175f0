package disk_test

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/herald-vip/herald/internal/disk"
	"github.com/herald-vip/herald/testenv/must"
)

func TestReplace(t *testing.T) {
	file := filepath.Join(t.TempDir(), "new folder", "file")
	for _, text := range []string{"first", "2"} {
		must.Do(t, disk.Replace(file, []byte(text)))
		if b, err := os.ReadFile(file); err != nil || string(b) != text {
			t.Errorf("read %q, %v", b, err)
		}
	}
}

// TestReplaceSyncs checks that a file that cannot be synced replaces none: a pipe takes the content, and fails to sync.
func TestReplaceSyncs(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	must.Do(t, disk.Replace(file, []byte("first")))
	must.Do(t, syscall.Mkfifo(file+".new", 0o600))
	reader, err := os.OpenFile(file+".new", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	if err := disk.Replace(file, []byte("second")); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("error %v, want %v", err, syscall.EINVAL)
	}
	if b, err := os.ReadFile(file); err != nil || string(b) != "first" {
		t.Errorf("read %q, %v", b, err)
	}
}
