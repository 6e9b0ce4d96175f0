package conntrack

import (
	"net/netip"
	"testing"
)

// decodeConnection decodes or rejects any answer of the kernel.
func FuzzDecodeConnection(f *testing.F) {
	for _, dst := range []string{"10.0.0.1:80", "[fd00::1]:0"} {
		request, err := encodeTo(netip.MustParseAddrPort(dst))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(request)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		c, ok, err := decodeConnection(b)
		if err != nil && ok {
			t.Errorf("decoded %v despite error %v", c, err)
		}
		if ok {
			if _, err := encodeDelete(c); err != nil {
				t.Error(err)
			}
		}
	})
}

func FuzzDecodeSocket(f *testing.F) {
	f.Add(make([]byte, 72))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, at, err := decodeSocket(b)
		if err != nil {
			return
		}
		if request, err := s.encode(); err != nil || len(request) != 56 { // struct inet_diag_req_v2
			t.Errorf("%v: request %x, %v", at, request, err)
		}
	})
}
