//go:build e2e

package controlplane

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/herald-vip/herald/speaker"
	"github.com/herald-vip/herald/status/admin"
	"github.com/herald-vip/herald/testenv/e2e/site"
	"github.com/herald-vip/herald/testenv/e2e/witness"
	"github.com/herald-vip/herald/testenv/lab"
	"github.com/herald-vip/herald/testenv/stub"
)

// controlPlane is a cluster of real parts.
type controlPlane struct {
	*site.Cluster
	pki    *site.PKI
	routes map[string]*site.RouteWatcher // by router

	witness *witness.Witness
	marked  time.Time
}

// TestControlPlane boots three masters with real apiservers, etcds and registries, and
// breaks them in every way.
func TestControlPlane(t *testing.T) {
	p := site.NewPKI(t)
	c := &controlPlane{
		Cluster: site.NewCluster(site.StartLab(t, "e2e-control-plane.clab.yml", map[string]string{"PKI_DIR": p.Dir})),
		pki:     p, routes: make(map[string]*site.RouteWatcher), witness: site.StartWitness(t),
	}
	for _, r := range c.Routers {
		c.routes[r.Name()] = site.WatchRoutes(t, r.Node) // from before any boot
	}
	if !t.Run("nothing before ready", c.testBoot) {
		t.FailNow()
	}
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) { c.testFault(t, f) })
	}
	t.Run("bridge", c.testBridge)
	t.Run("registry answers", c.testRegistryAnswers)
	t.Run("all down", c.testAllDown)
	t.Run("all slow", c.testAllSlow)
	// TestBootOrders tests all orders, with stubs for apiserver and registry.
	for _, order := range []string{"m3 r1 m1 m2", "m2 m1 m3 r1"} {
		t.Run("power returns to "+order, func(t *testing.T) { c.testPower(t, strings.Fields(order)) })
	}
}

// testBoot brings up routers, then speakers, and last the servers that they wait for.
func (c *controlPlane) testBoot(t *testing.T) {
	site.Boot(t, c.Lab, "r1", "r2")
	for _, m := range c.Masters {
		site.Boot(t, c.Lab, m.Speaker().Name(), m.Registry().Name())
	}
	c.SessionsUp(t, c.Masters...)
	observers := c.observe(t)
	c.Announces(t)
	c.Tables(t)

	for _, m := range c.Masters {
		site.Boot(t, c.Lab, m.Etcd().Name())
	}
	for _, m := range c.Masters {
		site.Boot(t, c.Lab, m.Apiserver().Name())
	}
	c.Announces(t, c.Masters...)
	c.Tables(t, c.Masters...)
	for _, r := range c.Routers {
		c.neverBeforeReady(t, r, c.routes[r.Name()], observers)
	}
	for _, m := range c.Masters {
		if !observers[m].Alive {
			t.Errorf("the apiserver of %s was never seen alive but not ready, so the test proves nothing", m)
		}
	}
	c.Serves(t, c.pki.Client(t))
}

// observe observes all apiservers.
func (c *controlPlane) observe(t *testing.T) map[site.Master]*site.Readiness {
	out := make(map[site.Master]*site.Readiness)
	for _, m := range c.Masters {
		out[m] = site.ObserveReadiness(t, m.Base(), c.pki.Client(t))
	}
	return out
}

// neverBeforeReady checks that the router had no route to a master before the observer
// saw its apiserver ready. That is no race: the speaker has to see it twice, 200 ms
// apart, and only then can the router learn the route.
func (c *controlPlane) neverBeforeReady(t *testing.T, r site.Router, routes *site.RouteWatcher, observers map[site.Master]*site.Readiness) {
	t.Helper()
	for _, m := range c.Masters {
		ready, _ := observers[m].Seen()
		for _, vip := range []string{site.VIP4, site.VIP6} {
			route := routes.First(m.Hop(r, vip))
			switch after := route.Sub(ready).Round(time.Millisecond); {
			case route.IsZero():
				t.Errorf("%s: no route to %s via %s was ever seen", r.Name(), vip, m)
			case ready.IsZero():
				t.Errorf("%s: route to %s via %s before its apiserver is ready", r.Name(), vip, m)
			case after <= 0:
				t.Errorf("%s: route to %s via %s %v before its apiserver was ready", r.Name(), vip, m, -after)
			}
		}
	}
}

// fault makes one master unhealthy.
type fault struct {
	name   string
	master int
	// node returns the node to break.
	node       func(site.Master) *lab.Node
	make, mend func(t *testing.T, n *lab.Node)
	// reason is the beginning of the withdrawal's reason in status; it is empty if unpredictable.
	reason string
	// readyz is the apiserver's answer meanwhile; 0 if it does not matter.
	readyz int
}

var faults = []fault{
	{name: "apiserver killed", master: 1, node: site.Master.Apiserver, make: site.Kill, mend: site.Start, reason: "apiserver: "},
	{name: "apiserver with client certificates killed", master: 2, node: site.Master.Apiserver, make: site.Kill, mend: site.Start, reason: "apiserver: "},
	{name: "etcd killed", master: 3, node: site.Master.Etcd, make: site.Kill, mend: site.Start, reason: "apiserver: ", readyz: http.StatusInternalServerError},
	{name: "apiserver frozen", master: 2, node: site.Master.Apiserver, make: site.Freeze, mend: site.Thaw, reason: "apiserver: "},
	{name: "registry killed", master: 1, node: site.Master.Registry, make: site.Kill, mend: site.Start, reason: "registry: "},
	{name: "registry with a login killed", master: 3, node: site.Master.Registry, make: site.Kill, mend: site.Start, reason: "registry: "},
	{name: "speaker killed", master: 1, node: site.Master.Speaker, make: site.Kill, mend: site.Start},
	{name: "speaker frozen", master: 3, node: site.Master.Speaker, make: site.Freeze, mend: site.Thaw},
	{name: "registry sick", master: 2, node: site.Master.Registry, make: site.Command("touch", "/tmp/sick"), mend: site.Command("rm", "/tmp/sick"), reason: "registry: "},
}

// testFault makes a fault and mends it: its master's routes and addresses go and come
// back, and the others' stay.
func (c *controlPlane) testFault(t *testing.T, f fault) {
	m := c.Masters[f.master-1]
	c.Announces(t, c.Masters...)
	c.mark()
	observer := site.ObserveReadiness(t, m.Base(), c.pki.Client(t))

	f.make(t, f.node(m))
	mend := sync.OnceFunc(func() { f.mend(t, f.node(m)) })
	defer mend() // later faults need a healthy master
	if f.readyz != 0 {
		// Until the apiserver itself detects the fault, it alternates between slow and
		// healthy, and the route may come back for moments.
		site.Eventually(t, site.Soon, func() error {
			_, got := observer.Seen()
			return site.ErrorIf(got != f.readyz, "the apiserver answers %d, want %d", got, f.readyz)
		})
	}
	if f.reason != "" {
		m.ShowsVIPs(t, func(v admin.VIP) error {
			return site.ErrorIf(v.Stage != "withdrawn" || !strings.HasPrefix(v.Reason, f.reason),
				"status of %s has %s %s because %q, want it withdrawn because %q", m, v.Address, v.Stage, v.Reason, f.reason)
		})
	}
	c.Announces(t, c.Others(m)...)
	c.Serves(t, c.pki.Client(t))

	mend()
	c.Announces(t, c.Masters...)
	c.untouched(t, c.Others(m)...)
	if f.readyz != 0 {
		c.steady(t, m)
	}
}

// steady waits until a master stays healthy: an apiserver may be slow once more after
// its etcd comes back, and the next fault must not be blamed for that.
func (c *controlPlane) steady(t *testing.T, m site.Master) {
	t.Helper()
	const calm = 3 * time.Second
	m.ShowsVIPs(t, func(v admin.VIP) error {
		return site.ErrorIf(v.Stage != "announced" || time.Since(v.Since) < calm, "%s has %s %s since %v", m, v.Address, v.Stage, v.Since)
	})
	c.Announces(t, c.Masters...)
}

func (c *controlPlane) mark() {
	c.marked = time.Now()
	for _, routes := range c.routes {
		routes.Mark()
	}
}

// untouched checks that all routers have had routes to all these masters since the mark.
func (c *controlPlane) untouched(t *testing.T, masters ...site.Master) {
	t.Helper()
	for _, r := range c.Routers {
		for _, vip := range []string{site.VIP4, site.VIP6} {
			for _, s := range c.routes[r.Name()].Steps(vip) {
				for _, m := range masters {
					if !slices.Contains(s.NextHops, m.Hop(r, vip)) {
						site.FailTiming(t, c.witness.Starved(c.marked), "%s had no route to %s via %s: %v", r.Name(), vip, m, s)
					}
				}
			}
		}
	}
}

// testRegistryAnswers replaces a registry by a stub and changes its answers: a 401 is
// as good as a 200, a 500 is not.
func (c *controlPlane) testRegistryAnswers(t *testing.T) {
	m := c.Masters[0]
	site.Kill(t, m.Registry())
	c.Announces(t, c.Others(m)...)

	t.Run("stub", func(t *testing.T) {
		registry := stub.Registry(m.String())
		answer := func(status int) {
			t.Helper()
			registry.Set("/v2/", stub.Answer{Status: status})
			m.Shows(t, func(s admin.Status) error {
				return site.ErrorIf(!strings.Contains(s.Checks[1].Reason, fmt.Sprintf(": %d", status)),
					"the registry's check has the reason %q", s.Checks[1].Reason)
			})
		}
		site.Serve(t, m.Base(), ":5001", registry)
		c.Announces(t, c.Masters...)
		c.mark()
		answer(http.StatusUnauthorized)
		c.Announces(t, c.Masters...)
		answer(http.StatusOK)
		c.untouched(t, c.Masters...)

		answer(http.StatusInternalServerError)
		c.Announces(t, c.Others(m)...)
		answer(http.StatusUnauthorized)
		c.Announces(t, c.Masters...)
		c.untouched(t, c.Others(m)...)
	})

	c.Announces(t, c.Others(m)...)
	site.Start(t, m.Registry())
	c.Announces(t, c.Masters...)
}

// testAllDown kills all apiservers at once: no route remains, and none comes back
// before they do. No route flaps in either direction.
func (c *controlPlane) testAllDown(t *testing.T) {
	c.Announces(t, c.Masters...)
	c.mark()
	for _, m := range c.Masters {
		site.Kill(t, m.Apiserver())
	}
	c.Announces(t)
	c.Tables(t)
	for _, r := range c.Routers {
		for _, vip := range []string{site.VIP4, site.VIP6} {
			c.wantMonotonic(t, r, vip, contains)
		}
	}

	c.mark()
	observers := c.observe(t)
	for _, m := range c.Masters {
		site.Start(t, m.Apiserver())
	}
	c.Announces(t, c.Masters...)
	for _, r := range c.Routers {
		c.neverBeforeReady(t, r, c.routes[r.Name()], observers)
		for _, vip := range []string{site.VIP4, site.VIP6} {
			c.wantMonotonic(t, r, vip, func(before, after []netip.Addr) bool { return contains(after, before) })
		}
	}
	c.Serves(t, c.pki.Client(t))
}

// testAllSlow freezes all etcds, so that each apiserver answers 500 or nothing. As a
// last resort, masters keep announcing the VIP, so that no router is ever without a
// route, until one is healthy and announces it alone. Killing an apiserver meanwhile
// withdraws its route.
func (c *controlPlane) testAllSlow(t *testing.T) {
	for _, m := range c.Masters {
		c.steady(t, m)
	}
	acquainted(t, c.Cluster)
	c.mark()
	for _, m := range c.Masters {
		site.Freeze(t, m.Etcd())
	}
	defer func() {
		for _, m := range c.Masters {
			site.Thaw(t, m.Etcd())
		}
	}()
	c.keep(t)
	first := c.Masters[0]
	site.Thaw(t, first.Etcd())
	c.Announces(t, first)
	c.steadyAlone(t, first)
	c.neverWithout(t)

	site.Freeze(t, first.Etcd())
	c.keep(t, c.Others(first)...)
	c.Announces(t, first)
	c.neverWithout(t)
	c.mark()
	site.Kill(t, first.Apiserver())
	c.Announces(t)
	for _, m := range c.Masters {
		site.Thaw(t, m.Etcd())
	}
	site.Start(t, first.Apiserver())
	c.Announces(t, c.Masters...)
	c.Serves(t, c.pki.Client(t))
}

// keep waits until no master is healthy, and masters other than the gone ones announce
// the VIP as a last resort for a while.
func (c *controlPlane) keep(t *testing.T, gone ...site.Master) {
	t.Helper()
	var since time.Time
	site.Eventually(t, site.Soon, func() error {
		kept := 0
		for _, m := range c.Masters {
			status, err := m.Status(t)
			if err != nil {
				return err
			}
			for _, v := range status.VIPs {
				if !v.Kept && v.Stage != speaker.Withdrawn || v.Kept && slices.Contains(gone, m) {
					since = time.Time{}
					return fmt.Errorf("%s has %s %s, kept %t: %s", m, v.Address, v.Stage, v.Kept, v.Reason)
				}
				if v.Kept {
					kept++
				}
			}
		}
		switch {
		case kept == 0:
			t.Fatal("no master keeps the VIP")
		case since.IsZero():
			since = time.Now()
		}
		const calm = 3 * time.Second // the maximum age of a member's report
		return site.ErrorIf(time.Since(since) < calm, "kept since %v", since)
	})
}

// steadyAlone waits until only this master has been healthy for a while.
func (c *controlPlane) steadyAlone(t *testing.T, m site.Master) {
	t.Helper()
	since := time.Now()
	site.Eventually(t, site.Soon, func() error {
		if err := c.Check(m); err != nil {
			since = time.Now()
			return err
		}
		return site.ErrorIf(time.Since(since) < 2*time.Second, "alone since %v", since)
	})
}

// neverWithout checks that no router has been without a route since the mark.
func (c *controlPlane) neverWithout(t *testing.T) {
	t.Helper()
	for _, r := range c.Routers {
		for _, vip := range []string{site.VIP4, site.VIP6} {
			for _, s := range c.routes[r.Name()].Steps(vip) {
				if len(s.NextHops) == 0 {
					t.Errorf("%s had no route to %s: %v", r.Name(), vip, c.routes[r.Name()].Steps(vip))
				}
			}
		}
	}
}

// wantMonotonic checks that since the mark a route has only lost next hops, or only gained some.
func (c *controlPlane) wantMonotonic(t *testing.T, r site.Router, vip string, follows func(before, after []netip.Addr) bool) {
	t.Helper()
	steps := c.routes[r.Name()].Steps(vip)
	for i := 1; i < len(steps); i++ {
		if !follows(steps[i-1].NextHops, steps[i].NextHops) {
			site.FailTiming(t, c.witness.Starved(c.marked), "the route on %s flapped: %v", r.Name(), steps)
		}
	}
}

// contains reports whether a contains all of b.
func contains(a, b []netip.Addr) bool {
	return !slices.ContainsFunc(b, func(x netip.Addr) bool { return !slices.Contains(a, x) })
}

// testPower cuts the power of all masters and of r1, and restores it in this order, to
// each when the previous one has settled.
func (c *controlPlane) testPower(t *testing.T, order []string) {
	for _, name := range order {
		site.Must(t, c.Node(name).PowerOff())
	}
	site.Eventually(t, site.Soon, func() error { return site.LeadsTo(c.Routers[1]) })
	routes := site.WatchRoutes(t, c.Routers[1].Node)

	observers := make(map[site.Master]*site.Readiness)
	for _, name := range order {
		site.PowerOn(t, c.Node(name))
		for _, m := range c.Masters {
			if m.String() == name {
				observers[m] = site.ObserveReadiness(t, m.Base(), c.pki.Client(t))
				m.Announced(t)
			}
		}
	}
	c.Announces(t, c.Masters...)
	c.neverBeforeReady(t, c.Routers[1], routes, observers)
	c.Serves(t, c.pki.Client(t))
}
