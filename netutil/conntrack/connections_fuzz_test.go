package conntrack

import (
	"net/netip"
	"testing"
)

// Whatever the kernel may answer is read, or refused.
func FuzzDecodeConnection(f *testing.F) {
	for _, to := range []string{"10.0.0.1:80", "[fd00::1]:0"} {
		request, err := encodeTo(netip.MustParseAddrPort(to))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(request)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		c, ok, err := decodeConnection(b)
		if err != nil && ok {
			t.Errorf("%v, and an error", c)
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
