package link

import (
	"bytes"
	"net/netip"
	"testing"
)

func FuzzReadGreeting(f *testing.F) {
	f.Add(TunnelAddr(0x123, true).AsSlice(), append([]byte{question}, "12345678"...))
	f.Add(TunnelAddr(0x123, true).AsSlice(), append([]byte{answer}, "12345678, and more"...))
	f.Add(TunnelAddr(0x123, false).AsSlice(), append([]byte{answer}, "12345678"...))
	f.Add([]byte{10, 0, 1, 2}, append([]byte{answer}, "12345678"...))
	f.Add([]byte{}, []byte{})
	f.Fuzz(func(t *testing.T, at, b []byte) {
		from, _ := netip.AddrFromSlice(at)
		number, kind, token, ok := readGreeting(from, b)
		if !ok {
			return
		}
		if from.Unmap() != TunnelAddr(number, true) || !bytes.HasPrefix(b, append([]byte{kind}, token...)) || len(token) != tokenSize {
			t.Errorf("%x from %s is %d, %d, %x", b, from, number, kind, token)
		}
	})
}
