package secondchance

import (
	"bytes"
	"net/netip"
	"testing"
)

func FuzzReadProbe(f *testing.F) {
	f.Add(tunnelAddr(0x123, true).AsSlice(), append([]byte{question}, "12345678"...))
	f.Add(tunnelAddr(0x123, true).AsSlice(), append([]byte{answer}, "12345678, and more"...))
	f.Add(tunnelAddr(0x123, false).AsSlice(), append([]byte{answer}, "12345678"...))
	f.Add([]byte{10, 0, 1, 2}, append([]byte{answer}, "12345678"...))
	f.Add([]byte{}, []byte{})
	f.Fuzz(func(t *testing.T, at, b []byte) {
		from, _ := netip.AddrFromSlice(at)
		number, kind, token, ok := readProbe(from, b)
		if !ok {
			return
		}
		if from.Unmap() != tunnelAddr(number, true) || !bytes.HasPrefix(b, append([]byte{kind}, token...)) || len(token) != tokenSize {
			t.Errorf("%x from %s is %d, %d, %x", b, from, number, kind, token)
		}
	})
}
