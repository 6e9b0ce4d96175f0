//go:build e2e

package machines

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/herald-vip/herald/testenv/e2e/site"
)

// TestBootOrders powers on three masters and a router, set up by cloud-init's
// user-data, in four of the 24 orders (nightly, in all). No route is announced before
// an apiserver is ready. As each becomes ready its master is announced, and a joining
// master reaches the others by the VIP. The router drops the route of a master that
// loses power. The apiservers are stubs here; TestControlPlane has some of the orders
// with real ones.
func TestBootOrders(t *testing.T) {
	orders := site.Orders("m1", "m2", "m3", "r1")
	const labs = 2
	for i, some := range slices.Collect(slices.Chunk(orders, len(orders)/labs)) {
		t.Run(fmt.Sprintf("lab %d", i+1), func(t *testing.T) {
			t.Parallel()
			s := newMachines(t, readUserData(t, "master-bgp.yaml", masterWords(t)).image(t), readUserData(t, "router.yaml", nil).image(t))
			for _, order := range some {
				if !t.Run(strings.Join(order, " "), func(t *testing.T) { s.testOrder(t, order) }) {
					return // the state of the machines is unknown
				}
			}
		})
	}
}

func (s *machines) testOrder(t *testing.T, order []string) {
	masters := s.named(order...)
	var routes *site.RouteWatcher
	for _, name := range order {
		site.PowerOn(t, s.Node(name))
		if name == "r1" {
			routes = site.WatchRoutes(t, s.Node(name))
		}
	}
	last := time.Now()
	s.SessionsUp(t, masters...)
	t.Logf("all sessions up %v after the last had power", time.Since(last).Round(site.Poll))
	s.withdrawn(t, "caFile")
	for _, m := range masters {
		s.kubeadm(t, m)
	}
	s.withdrawn(t, "500")
	site.Must(t, s.Check())
	if changes := routes.Since(); len(changes) > 0 {
		t.Fatalf("before any apiserver was ready the router had routes: %v", changes)
	}

	for i, m := range masters {
		s.ready(m)
		s.Announces(t, masters[:i+1]...)
		if i == 0 {
			s.serves(t, masters[1].Base())
			if n := s.redirected(t); n > 0 {
				t.Errorf("%s received %d redirects straight to %s, where its packets would continue to go", masters[1], n, m)
			}
			s.serves(t, s.Node("c1"))
		}
	}

	s.loses(t, masters[0])
	site.Eventually(t, site.Soon, func() error { return site.LeadsTo(s.r1(), masters[1:]...) })
	s.serves(t, s.Node("c1"))
	s.loses(t, masters[1])
	s.loses(t, masters[2])
	site.Eventually(t, site.Soon, func() error { return site.LeadsTo(s.r1()) })
	site.Must(t, s.r1().PowerOff())
}
