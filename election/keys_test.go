package election

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"slices"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/memberlist"
	"github.com/herald-vip/herald/testenv/must"
	"pgregory.net/rapid"
)

func TestNewKeyIsAKey(t *testing.T) {
	first, err := NewKey()
	if err != nil {
		t.Fatal(err)
	}
	second, err := NewKey()
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
		must.Do(t, os.WriteFile(file, []byte("key"), 0o600))
		must.Do(t, os.Chmod(file, mode))
		said := Exposed(file)
		if (said != "") != want {
			t.Errorf("mode %04o: %q", mode, said)
		}
		if want && !strings.Contains(said, fmt.Sprintf("%04o", mode)) {
			t.Errorf("mode %04o is not reported: %q", mode, said)
		}
	}
	if said := Exposed(filepath.Join(dir, "none")); said != "" {
		t.Errorf("there is no file: %q", said)
	}
}

func TestRotate(t *testing.T) {
	key := func(b byte) []byte { return bytes.Repeat([]byte{b}, 16+8*int(b%3)) }
	rapid.Check(t, func(t *rapid.T) {
		lists := rapid.SliceOfN(rapid.SliceOfNDistinct(rapid.ByteRange(1, 5), 1, 4, rapid.ID[byte]), 2, 6).Draw(t, "lists")
		var ring *memberlist.Keyring
		for _, list := range lists {
			var keys [][]byte
			for _, b := range list {
				keys = append(keys, key(b))
			}
			if ring == nil {
				ring, _ = memberlist.NewKeyring(keys, keys[0])
				continue
			}
			before := ring.GetKeys()
			kept := make([][]byte, 0, len(before))
			for _, k := range before {
				kept = append(kept, bytes.Clone(k))
			}
			if err := rotateKeys(ring, keys); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(ring.GetPrimaryKey(), keys[0]) { // before they are sorted
				t.Fatal("another key encrypts")
			}
			now := slices.Clone(ring.GetKeys())
			slices.SortFunc(now, bytes.Compare)
			slices.SortFunc(keys, bytes.Compare)
			if diff := cmp.Diff(keys, now); diff != "" {
				t.Fatal(diff)
			}
			if diff := cmp.Diff(kept, before); diff != "" {
				t.Fatal("the list in use for decryption has changed: " + diff)
			}
		}
	})
}
