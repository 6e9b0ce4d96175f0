package lease

import (
	"testing"

	"pgregory.net/rapid"
)

// TestWindowAgainstList compares the window with a list of all that was seen.
func TestWindowAgainstList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var w window
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
			if got := w.take(next); got != want {
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
