package fence

import "testing"

// To try the fence leaves nothing behind, and what is gated already as it is.
func TestProbeTouchesNothing(t *testing.T) {
	h := newHost(t)
	h.In(func() {
		if err := Probe(); err != nil {
			t.Errorf("no fence where the other tests have one: %v", err)
		}
		if left, err := Left(); err != nil || left {
			t.Errorf("tables are left: %t, %v", left, err)
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
			t.Errorf("the tables are gone: %t, %v", left, err)
		}
	})
}
