//go:build e2e

package machines

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/herald-vip/herald/status/admin"
	"github.com/herald-vip/herald/testenv/clab"
	"github.com/herald-vip/herald/testenv/e2e/site"
	"github.com/herald-vip/herald/testenv/holders"
	"github.com/herald-vip/herald/testenv/lab"
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
	s.SessionsUp(t, masters...)
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

// TestARPBootOrdersBeforeInit powers on three masters of a flat layer 2, set up by
// cloud-init's user-data, in three of the six orders (nightly, in all). No master
// answers for the VIP before an apiserver is ready. The first ready one has it, the
// others change nothing, and when it loses power another takes over.
func TestARPBootOrdersBeforeInit(t *testing.T) {
	s := newMachines(t, readUserData(t, "master-arp.yaml", masterWords(t)).image(t), readUserData(t, "router.yaml", nil).image(t))
	f := &site.Flat{Lab: s.Lab}
	f.Observe(t, holders.On(s.Lab, site.FlatMasters(),
		[]netip.Addr{site.IP("10.0.1.100"), site.IP("fd00:1::100")}, site.IP("10.0.1.128"), site.IP("fd00:1::80")))
	for _, order := range site.Orders(site.FlatMasters()...) {
		if !t.Run(strings.Join(order, " "), func(t *testing.T) { s.testARPOrder(t, f, order) }) {
			return // the state of the machines is unknown
		}
	}
}

// lease is the lease in the user-data, the default.
const lease = 600 * time.Millisecond

func (s *machines) testARPOrder(t *testing.T, f *site.Flat, order []string) {
	f.Asked(t, 10)
	dark := f.Seen.Clock()
	for _, name := range order {
		site.PowerOn(t, s.Node(name))
	}
	for _, name := range order {
		site.Eventually(t, site.Soon, func() error { return votes(t, f, name) })
	}
	masters := s.named(order...)
	for _, m := range masters {
		s.kubeadm(t, m)
	}
	s.withdrawn(t, "500")
	f.Asked(t, int(2*lease/(10*time.Millisecond)))
	for _, seen := range f.Seen.Trace().Observations {
		if seen.At > dark {
			t.Fatalf("before any apiserver is ready: %v", seen)
		}
	}

	s.ready(masters[0])
	f.Held(t, order[0])
	from := f.Mark(t)
	for _, m := range masters[1:] {
		s.ready(m)
		f.Ready(t, m.String())
	}
	f.Asked(t, 50)
	f.Stays(t, order[0], from)

	s.loses(t, masters[0])
	f.Held(t, order[1:]...)
	f.Asked(t, 50) // the answering master has yet to announce it
	s.loses(t, masters[1])
	s.loses(t, masters[2])
}

// votes returns an error unless a master receives from all others, all of them vote,
// and none campaigns for the VIP or holds it.
func votes(t *testing.T, f *site.Flat, master string) error {
	status, err := f.Speaker(master).Status(t)
	if err != nil {
		return err
	}
	e := status.Election
	if e == nil || e.Problem != "" {
		return fmt.Errorf("%s does not take part in the election: %+v", master, e)
	}
	for _, m := range e.Members {
		if !m.Alive || m.Problem != "" {
			return fmt.Errorf("%s does not receive from %s: %s", master, m.Name, m.Problem)
		}
	}
	for _, l := range e.Leases {
		if l.Campaigning || l.Holder != "" {
			return fmt.Errorf("the lease of %s is %+v", master, l)
		}
	}
	return nil
}

// TestBootOrdersBehindBalancer boots two masters and a worker, m3, with their
// user-data, the worker first, in between and last. 127.0.0.1:9443 refuses connections
// until an apiserver is ready, and then leads to the ready ones.
func TestBootOrdersBehindBalancer(t *testing.T) {
	masters := readUserData(t, "master-local.yaml", masterWords(t)).image(t)
	worker := readUserData(t, "worker.yaml", masterWords(t)).image(t)
	either := func(n clab.Node) (lab.Program, error) {
		if n.Name == "m3-speaker" {
			return worker(n)
		}
		return masters(n)
	}
	s := newMachines(t, either, masters)
	for _, order := range []string{"m3 m1 m2", "m1 m3 m2", "m2 m1 m3"} {
		if !t.Run(order, func(t *testing.T) { s.testBalancedOrder(t, strings.Fields(order)) }) {
			return // the state of the machines is unknown
		}
	}
}

func (s *machines) testBalancedOrder(t *testing.T, order []string) {
	for _, name := range order {
		site.PowerOn(t, s.Node(name))
	}
	all := s.named("m1", "m2", "m3")
	for _, m := range all[:2] {
		s.kubeadm(t, m)
	}
	for _, m := range all {
		m.Shows(t, func(status admin.Status) error {
			n := len(status.Balancers[0].Backends)
			return site.ErrorIf(n != 2 || status.Balancers[0].Serving() != 0,
				"%s has %+v, want the two masters, which do not serve", m, status.Balancers)
		})
		if status := s.behind(t, m); status != 0 {
			t.Errorf("before any apiserver is ready %s gets the answer %d", m, status)
		}
	}
	s.ready(all[0])
	s.served(t, all...)
	s.ready(all[1])
	s.loses(t, all[0])
	s.served(t, all[1:]...)
	for _, m := range all[1:] {
		site.Must(t, m.Base().PowerOff())
	}
	s.apiservers["m2"].stop()
}

// behind returns the HTTP status that a machine gets through its balancer; 0 for none.
func (s *machines) behind(t *testing.T, m site.Master) int {
	t.Helper()
	return site.Ask(t.Context(), site.HTTPClient(m.Base(), s.pki.Client(t)), "https://127.0.0.1:9443/readyz")
}

// served waits until all machines reach a ready apiserver.
func (s *machines) served(t *testing.T, all ...site.Master) {
	t.Helper()
	for _, m := range all {
		site.Eventually(t, site.Soon, func() error {
			status := s.behind(t, m)
			return site.ErrorIf(status != http.StatusOK, "%s is answered %d", m, status)
		})
	}
}
