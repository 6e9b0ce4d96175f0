package kube

import (
	"encoding/base64"
	"testing"
	"time"
)

func tokenOf(claims string) string {
	return "e30." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".c2ln"
}

func TestTokenEnds(t *testing.T) {
	if got, err := tokenEnds(tokenOf(`{"exp": 1800000000, "sub": "x"}`) + "\n"); err != nil || !got.Equal(time.Unix(1800000000, 0)) {
		t.Errorf("%v, %v", got, err)
	}
	for _, bad := range []string{"", "a.b", "a.b.c", tokenOf("{}"), tokenOf(`{"exp": "soon"}`), "e30.%%%.c2ln"} {
		if got, err := tokenEnds(bad); err == nil {
			t.Errorf("%q ends at %v", bad, got)
		}
	}
}

// Whatever a Secret has, nothing panics.
func FuzzTokenEnds(f *testing.F) {
	f.Add(tokenOf(`{"exp": 1800000000}`))
	f.Add("..")
	f.Fuzz(func(_ *testing.T, token string) { _, _ = tokenEnds(token) })
}
