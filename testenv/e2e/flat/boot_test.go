//go:build e2e

package flat

import (
	"strings"
	"testing"
	"time"

	"github.com/herald-vip/herald/status/admin"
	"github.com/herald-vip/herald/testenv/e2e/site"
)

// TestARPBootOrders powers three masters on in three of the six orders (nightly, in
// all), each when the previous one has settled. There is no holder until the second is
// healthy, and the third changes nothing.
func TestARPBootOrders(t *testing.T) {
	t.Parallel()
	f := site.NewFlat(t)
	for _, order := range site.Orders(site.FlatMasters()...) {
		t.Run(strings.Join(order, " "), func(t *testing.T) { testOrder(t, f, order) })
	}
}

func testOrder(t *testing.T, f *site.Flat, order []string) {
	for _, m := range order {
		site.Must(t, f.Node(m).PowerOff())
	}
	f.Asked(t, 10)
	dark := f.Seen.Clock()
	site.PowerOn(t, f.Node(order[0]))
	f.Elects(t, order[0], func(e *admin.Election) error { // it is healthy, and reports why it does not have the lease
		l := e.Leases[0]
		return site.ErrorIf(!l.Campaigning || l.Holder != "" || l.Reason == "", "the lease of %s is %+v", order[0], l)
	})
	f.Asked(t, int((site.Lease+time.Second)/(10*time.Millisecond)))
	for _, s := range f.Seen.Trace().Observations {
		if s.At > dark {
			t.Fatalf("with one master up: %v", s)
		}
	}

	site.PowerOn(t, f.Node(order[1]))
	holder := f.Held(t, order[:2]...)
	from := f.Mark(t)
	site.PowerOn(t, f.Node(order[2]))
	f.Ready(t, order[2])
	f.Asked(t, 100)
	f.Stays(t, holder, from)
}
