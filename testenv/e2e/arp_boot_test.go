//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestARPBootOrders gives three masters their power in each of the six orders,
// to each when the one before has found its place: there is no holder until the
// second is well, and the third changes nothing.
func TestARPBootOrders(t *testing.T) {
	f := newFlat(t)
	for _, order := range permutations(flatMasters()...) {
		t.Run(strings.Join(order, " "), func(t *testing.T) { f.testOrder(t, order) })
	}
}

func (f *flat) testOrder(t *testing.T, order []string) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*soon)
	defer cancel()
	for _, m := range order {
		must(t, f.Node(m).PowerOff())
	}
	f.asked(t, 10)
	dark := f.seen.Clock()
	must(t, f.Node(order[0]).PowerOn(ctx))
	eventually(t, soon, func() error { return f.waits(t, order[0]) })
	f.asked(t, int(4*lease/(10*time.Millisecond)))
	for _, s := range f.seen.Trace().Sightings {
		if s.At > dark {
			t.Fatalf("with one master up: %v", s)
		}
	}

	must(t, f.Node(order[1]).PowerOn(ctx))
	holder := f.held(t, order[:2]...)
	from := f.seen.Clock()
	must(t, f.Node(order[2]).PowerOn(ctx))
	f.ready(t, order[2])
	f.asked(t, 100)
	f.stays(t, holder, from)
}

// waits says that a master is well, stands, and says why it has not got the lease.
func (f *flat) waits(t *testing.T, master string) error {
	e, err := f.election(t, master)
	if err != nil {
		return err
	}
	l := e.Leases[0]
	if !l.Stands || l.Holder != "" || l.Reason == "" {
		return fmt.Errorf("the lease of %s is %+v", master, l)
	}
	return nil
}
