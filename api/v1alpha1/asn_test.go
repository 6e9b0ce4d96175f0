package v1alpha1_test

import (
	"encoding/json"
	"testing"

	"github.com/herald-vip/herald/api/v1alpha1"
)

func TestASN(t *testing.T) {
	for _, tt := range []struct {
		text string
		want v1alpha1.ASN
		ok   bool
	}{
		{text: `64500`, want: 64500, ok: true},
		{text: `4294967294`, want: 4294967294, ok: true},
		{text: `"external"`, want: v1alpha1.External, ok: true},
		{text: `4294967295`},
		{text: `4294967296`},
		{text: `-1`},
		{text: `1.5`},
		{text: `"64500"`},
		{text: `"internal"`},
		{text: `[]`},
		{text: ``},
	} {
		var got v1alpha1.ASN
		if err := got.UnmarshalJSON([]byte(tt.text)); got != tt.want || (err == nil) != tt.ok {
			t.Errorf("%s: got %d, error %v", tt.text, got, err)
		}
		if !tt.ok {
			continue
		}
		if text, err := json.Marshal(tt.want); err != nil || string(text) != tt.text {
			t.Errorf("%d is written %s, error %v, want %s", tt.want, text, err, tt.text)
		}
	}
}

// An ASN that was read is written in the same form and reads back.
func FuzzASN(f *testing.F) {
	f.Add([]byte(`64500`))
	f.Add([]byte(`"external"`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var first, again v1alpha1.ASN
		if first.UnmarshalJSON(text) != nil {
			return
		}
		written, err := first.MarshalJSON()
		if err != nil || again.UnmarshalJSON(written) != nil || again != first {
			t.Errorf("%q: %d is written %q and read as %d, error %v", text, first, written, again, err)
		}
	})
}
