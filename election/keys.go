package election

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
)

// keySize is the length of the keys that NewKey makes, in bytes: AES-256.
const keySize = 32

// NewKey makes a key for the messages of an election: the line, without its
// end, that a key file has of it.
func NewKey() (string, error) {
	key := make([]byte, keySize)
	if _, err := rand.Read(key); err != nil {
		return "", fmt.Errorf("make a key: %w", err)
	}
	return base64.StdEncoding.EncodeToString(key), nil
}

// ParseKeys reads a key file: a key a line, in base64, of 16, 24 or 32 bytes for
// AES-128, AES-192 or AES-256. The first key encrypts and all decrypt, so a key
// is replaced by three changes of the file on all members: the new key becomes
// the second line, then the first, then the only one. Empty lines and lines that
// start with # are left out. The error names the line, never what is in it.
func ParseKeys(file []byte) ([][]byte, error) {
	var keys [][]byte
	lines := make(map[string]int) // a key's line
	number := 0
	for line := range strings.Lines(string(file)) {
		number++
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		key, err := base64.StdEncoding.Strict().DecodeString(line)
		if err != nil {
			return nil, fmt.Errorf("line %d of the key file is not base64; `herald keygen` writes a key", number)
		}
		if err := checkKey(key); err != nil {
			return nil, fmt.Errorf("line %d of the key file: %w", number, err)
		}
		if first, ok := lines[string(key)]; ok {
			return nil, fmt.Errorf("line %d of the key file has the same key as line %d", number, first)
		}
		lines[string(key)] = number
		keys = append(keys, key)
	}
	if len(keys) == 0 {
		return nil, errors.New("the key file has no key; `herald keygen` writes one")
	}
	return keys, nil
}

// Exposed says, in one sentence, that others than its owner may use a key file. It
// is empty if they may not, or if there is no file.
func Exposed(file string) string {
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm()&0o077 == 0 {
		return ""
	}
	return fmt.Sprintf("%s has mode %04o, and whoever reads the key in it can take every VIP: chmod 600 %s", file, info.Mode().Perm(), file)
}

// checkKey says what is wrong with a key's length.
func checkKey(key []byte) error {
	switch len(key) {
	case 16, 24, 32:
		return nil
	}
	return fmt.Errorf("a key has 16, 24 or 32 bytes, this one has %d; `herald keygen` writes one", len(key))
}

// sameKeys reports whether two rings are the same, in the same order.
func sameKeys(a, b [][]byte) bool { return slices.EqualFunc(a, b, bytes.Equal) }
