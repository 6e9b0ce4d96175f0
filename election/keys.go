package election

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"os"
	"slices"

	"github.com/hashicorp/memberlist"
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

// Exposed says, in one sentence, that others than its owner may use a key file. It
// is empty if they may not, or if there is no file.
func Exposed(file string) string {
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm()&0o077 == 0 {
		return ""
	}
	return fmt.Sprintf("%s has mode %04o, and anyone who reads the key in it can take every VIP: chmod 600 %s", file, info.Mode().Perm(), file)
}

func sameKeys(a, b [][]byte) bool { return slices.EqualFunc(a, b, bytes.Equal) }

// rotateKeys makes these the ring's keys. Memberlist decrypts meanwhile, with a list
// of keys that RemoveKey changes under its hands unless the key is the last: so
// only the last is ever removed, after those that stay have gone ahead of it.
func rotateKeys(ring *memberlist.Keyring, keys [][]byte) error {
	for _, key := range keys {
		if err := ring.AddKey(key); err != nil {
			return err
		}
	}
	if err := ring.UseKey(keys[0]); err != nil {
		return err
	}
	stale := func(key []byte) bool {
		return !slices.ContainsFunc(keys, func(kept []byte) bool { return bytes.Equal(key, kept) })
	}
	for all := ring.GetKeys(); slices.ContainsFunc(all, stale); all = ring.GetKeys() {
		last, move := all[len(all)-1], ring.UseKey
		if stale(last) {
			move = ring.RemoveKey
		}
		if err := move(last); err != nil {
			return err
		}
	}
	return ring.UseKey(keys[0])
}
