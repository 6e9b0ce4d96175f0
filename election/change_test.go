package election

import (
	"bytes"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/memberlist"
	"pgregory.net/rapid"
)

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
