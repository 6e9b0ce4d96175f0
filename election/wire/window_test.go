package wire

import (
	"testing"

	"pgregory.net/rapid"
)

// TestWindowAgainstList compares the window with a list of all numbers seen.
func TestWindowAgainstList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var w Window
		seen, top, first := map[uint64]bool{}, uint64(0), uint64(0)
		next := rapid.Uint64Range(1, 1<<40).Draw(t, "first")
		for _, move := range rapid.SliceOfN(rapid.OneOf(
			rapid.IntRange(-5, 8), rapid.IntRange(-windowSize-70, windowSize+70), rapid.Just(1<<30)), 1, 300).Draw(t, "moves") {
			if s := int64(next) + int64(move); s >= 0 {
				next = uint64(s)
			}
			want := next > top || next > first && top-next < windowSize && !seen[next]
			if first == 0 {
				want = next > 0
			}
			if got := w.Take(next); got != want {
				t.Fatalf("%d after %d: taken %t, want %t", next, top, got, want)
			}
			if want && first == 0 {
				first = next
			}
			if want {
				seen[next], top = true, max(top, next)
			}
		}
	})
}

func TestWindow(t *testing.T) {
	var w Window
	for i, x := range []struct {
		sequence uint64
		fresh    bool
	}{
		{0, false}, {3, true}, {2, false}, {3, false}, {5, true}, {4, true}, {4, false}, {5, false}, {1028, true}, {4, false}, {5, false}, {6, true}, {65, true}, {65, false},
		{1 << 40, true}, {66, false}, {1<<40 - 1023, true}, {1<<40 - 1024, false}, {0, false}, {1 << 40, false},
	} {
		if got := w.Take(x.sequence); got != x.fresh {
			t.Errorf("%d: Take(%d) = %v, want %v", i, x.sequence, got, x.fresh)
		}
	}
}
