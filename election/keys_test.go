package election_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/herald-vip/herald/election"
)

func line(b byte, n int) string {
	return base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{b}, n))
}

func TestNewKeyIsAKey(t *testing.T) {
	first, err := election.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	second, err := election.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	if first == second {
		t.Fatal("two keys are the same")
	}
	for _, key := range []string{first, second} {
		if raw, err := base64.StdEncoding.Strict().DecodeString(key); err != nil || len(raw) != 32 {
			t.Errorf("%q has %d bytes, %v", key, len(raw), err)
		}
	}
}

func TestExposed(t *testing.T) {
	dir := t.TempDir()
	for mode, want := range map[os.FileMode]bool{0o600: false, 0o400: false, 0o640: true, 0o604: true, 0o666: true, 0o610: true} {
		file := filepath.Join(dir, fmt.Sprintf("%o", mode))
		if err := os.WriteFile(file, []byte(line(1, 32)), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(file, mode); err != nil {
			t.Fatal(err)
		}
		said := election.Exposed(file)
		if (said != "") != want {
			t.Errorf("mode %04o: %q", mode, said)
		}
		if want && !strings.Contains(said, fmt.Sprintf("%04o", mode)) {
			t.Errorf("mode %04o is not reported: %q", mode, said)
		}
	}
	if said := election.Exposed(filepath.Join(dir, "none")); said != "" {
		t.Errorf("there is no file: %q", said)
	}
}
