package fence

import "testing"

// Probe leaves no tables behind, and leaves existing ones alone.
func TestProbeTouchesNothing(t *testing.T) {
	h := newHost(t)
	h.In(func() {
		if err := Probe(); err != nil {
			t.Errorf("Probe: %v, where the other tests have a fence", err)
		}
		if left, err := Left(); err != nil || left {
			t.Errorf("Left after Probe: %t, error %v, want false", left, err)
		}
		k := &nft{}
		defer k.Close()
		if err := k.Rebuild(nil, nil); err != nil {
			t.Error(err)
		}
		if err := Probe(); err != nil {
			t.Error(err)
		}
		if left, err := Left(); err != nil || !left {
			t.Errorf("Left with tables: %t, error %v, want true", left, err)
		}
	})
}
