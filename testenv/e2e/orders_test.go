//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestBootOrders cuts the power of three masters and a router, and gives it
// back in each of the 24 orders, to each when the one before has found its
// place. Apiserver and registry are stubs here, healthy at once; TestControlPlane
// has some of the orders with the real ones. The other router runs all along.
func TestBootOrders(t *testing.T) {
	orders := permutations("m1", "m2", "m3", "r1")
	const labs = 3
	for i, some := range slices.Collect(slices.Chunk(orders, len(orders)/labs)) {
		t.Run(fmt.Sprintf("lab %d", i+1), func(t *testing.T) {
			t.Parallel()
			c := newCluster(startLab(t, "bgp.clab.yml", nil))
			boot(t, c.Lab, "r2")
			for _, order := range some {
				t.Run(strings.Join(order, " "), func(t *testing.T) { c.testOrder(t, order) })
			}
		})
	}
}

func (c *cluster) testOrder(t *testing.T, order []string) {
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	for _, name := range order {
		must(t, c.Node(name).PowerOff())
	}
	for _, name := range order {
		must(t, c.Node(name).PowerOn(ctx))
		for _, m := range c.masters {
			if m.String() == name {
				m.announced(t)
			}
		}
	}
	last := time.Now()
	c.announces(t, c.masters...)
	t.Logf("all routes there %v after the last had power", time.Since(last).Round(poll))
}

// permutations are all orders of the items.
func permutations(items ...string) [][]string {
	if len(items) == 1 {
		return [][]string{items}
	}
	var out [][]string
	for i, first := range items {
		rest := slices.Delete(slices.Clone(items), i, i+1)
		for _, p := range permutations(rest...) {
			out = append(out, append([]string{first}, p...))
		}
	}
	return out
}
