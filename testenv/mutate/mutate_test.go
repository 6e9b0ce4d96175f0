package mutate_test

import (
	"testing"

	"github.com/herald-vip/herald/testenv/mutate"
)

const root = "../.."

// The list fits the current code.
func TestMutationsApply(t *testing.T) {
	all, err := mutate.Parse()
	if err != nil || len(all) < 50 {
		t.Fatalf("%d mutations, %v", len(all), err)
	}
	for _, m := range all {
		if _, err := m.Apply(root); err != nil {
			t.Error(err)
		}
	}
}
