package election_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
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
	keys, err := election.ParseKeys([]byte(first + "\n" + second + "\n"))
	if err != nil {
		t.Fatal(err)
	}
	if len(keys) != 2 || len(keys[0]) != 32 || base64.StdEncoding.EncodeToString(keys[0]) != first {
		t.Fatalf("got %d keys, the first of %d bytes", len(keys), len(keys[0]))
	}
}

func TestParseKeys(t *testing.T) {
	for name, test := range map[string]struct {
		file string
		want [][]byte
		err  string
	}{
		"AES-128":            {file: line(1, 16), want: [][]byte{bytes.Repeat([]byte{1}, 16)}},
		"AES-192":            {file: line(1, 24) + "\n", want: [][]byte{bytes.Repeat([]byte{1}, 24)}},
		"AES-256, DOS":       {file: line(1, 32) + "\r\n", want: [][]byte{bytes.Repeat([]byte{1}, 32)}},
		"in order":           {file: "# new\n" + line(9, 16) + "\n\n  # old\n " + line(1, 16) + " \n", want: [][]byte{bytes.Repeat([]byte{9}, 16), bytes.Repeat([]byte{1}, 16)}},
		"empty":              {file: "", err: "the key file has no key; `herald keygen` writes one"},
		"comments only":      {file: "# later\n\n", err: "the key file has no key; `herald keygen` writes one"},
		"not base64":         {file: line(1, 16) + "\nnot a key\n", err: "line 2 of the key file is not base64; `herald keygen` writes a key"},
		"two on a line":      {file: line(1, 16) + " " + line(2, 16), err: "line 1 of the key file is not base64; `herald keygen` writes a key"},
		"trailing bits":      {file: "AAAAAAAAAAAAAAAAAAAAAB==", err: "line 1 of the key file is not base64; `herald keygen` writes a key"},
		"short":              {file: "\n" + line(1, 15), err: "line 2 of the key file: a key has 16, 24 or 32 bytes, this one has 15; `herald keygen` writes one"},
		"twice":              {file: line(1, 16) + "\n" + line(2, 16) + "\n" + line(1, 16), err: "line 3 of the key file has the same key as line 1"},
		"nothing of a key's": {file: "c2VjcmV0", err: "line 1 of the key file: a key has 16, 24 or 32 bytes, this one has 6; `herald keygen` writes one"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := election.ParseKeys([]byte(test.file))
			if message := text(err); message != test.err {
				t.Fatalf("error %q, want %q", message, test.err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Fatal(diff)
			}
		})
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
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
			t.Errorf("mode %04o is not named: %q", mode, said)
		}
	}
	if said := election.Exposed(filepath.Join(dir, "none")); said != "" {
		t.Errorf("there is no file: %q", said)
	}
}

func FuzzParseKeys(f *testing.F) {
	f.Add([]byte(line(1, 16) + "\n" + line(2, 32)))
	f.Add([]byte("# comment\n\n" + line(3, 24)))
	f.Fuzz(func(t *testing.T, file []byte) {
		keys, err := election.ParseKeys(file)
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Fatalf("more than a sentence: %v", err)
			}
			return
		}
		if len(keys) == 0 {
			t.Fatal("no keys and no error")
		}
		var again bytes.Buffer
		for _, key := range keys {
			again.WriteString(base64.StdEncoding.EncodeToString(key) + "\n")
		}
		same, err := election.ParseKeys(again.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(keys, same); diff != "" {
			t.Fatal(diff)
		}
	})
}
