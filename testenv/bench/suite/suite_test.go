package suite

import (
	"context"
	"io"
	"slices"
	"testing"

	"github.com/herald-vip/herald/testenv/step"
)

// TestEach checks that an error ends its part only, and that other parts are left out.
func TestEach(t *testing.T) {
	var done []string
	part := func(name string, err error) Part {
		return Part{Name: name, Who: "herald", Run: func(context.Context) {
			step.Do(err)
			done = append(done, name)
		}}
	}
	err := Options{Only: []string{"a", "c"}}.Each(t.Context(), part("a", io.EOF), part("b", nil), part("c", nil))
	if !slices.Equal(done, []string{"c"}) || err == nil || err.Error() != "herald, a: EOF" {
		t.Errorf("done are %q: %v", done, err)
	}
}
