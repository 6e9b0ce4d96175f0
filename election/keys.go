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

// keySize is the size of new keys in bytes: AES-256.
const keySize = 32

// NewKey returns a random key in the form of a line of a key file, without the newline.
func NewKey() (string, error) {
	key := make([]byte, keySize)
	if _, err := rand.Read(key); err != nil {
		return "", fmt.Errorf("make a key: %w", err)
	}
	return base64.StdEncoding.EncodeToString(key), nil
}

// Exposed describes a key file that users other than its owner may access. It is empty if none may, or without a file.
func Exposed(file string) string {
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm()&0o077 == 0 {
		return ""
	}
	return fmt.Sprintf("%s has mode %04o, and anyone who reads the key in it can take every VIP: chmod 600 %s", file, info.Mode().Perm(), file)
}

// rotateKeys replaces the ring's keys while memberlist decrypts with them. RemoveKey modifies the list in use unless it
// removes the last key. So rotateKeys moves the remaining keys to the front and only removes the last one.
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
