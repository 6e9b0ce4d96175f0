//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/herald-vip/herald/testenv/lab"
	"github.com/herald-vip/herald/testenv/stub"
)

// controlPlane is a cluster of real parts.
type controlPlane struct {
	*cluster
	pki    *pki
	routes map[string]*recorder // by router
}

// TestControlPlane has three masters with real apiservers, etcds and
// registries, boots them under watch, and breaks them in every way.
func TestControlPlane(t *testing.T) {
	p := newPKI(t)
	c := &controlPlane{
		cluster: newCluster(startLab(t, "e2e-control-plane.clab.yml", map[string]string{"PKI_DIR": p.dir})),
		pki:     p, routes: make(map[string]*recorder),
	}
	for _, r := range c.routers {
		c.routes[r.Name()] = record(t, r.Node) // from before anything runs
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
	// TestBootOrders has all the orders, with stubs for apiserver and registry.
	for _, order := range []string{"m3 r1 m1 m2", "m2 m1 m3 r1"} {
		t.Run("power returns to "+order, func(t *testing.T) { c.testPower(t, strings.Fields(order)) })
	}
}

// testBoot brings up routers, then speakers, and last what they wait for.
func (c *controlPlane) testBoot(t *testing.T) {
	boot(t, c.Lab, "r1", "r2")
	for _, m := range c.masters {
		boot(t, c.Lab, m.speaker().Name(), m.registry().Name())
	}
	c.sessionsUp(t, c.masters...)
	observers := c.observe(t)
	c.announces(t)
	c.tables(t)

	for _, m := range c.masters {
		boot(t, c.Lab, m.etcd().Name())
	}
	for _, m := range c.masters {
		boot(t, c.Lab, m.apiserver().Name())
	}
	c.announces(t, c.masters...)
	c.tables(t, c.masters...)
	for _, r := range c.routers {
		c.neverBeforeReady(t, r, c.routes[r.Name()], observers)
	}
	for _, m := range c.masters {
		if !observers[m].alive {
			t.Errorf("the apiserver of %s was never seen alive but not ready, so nothing is proven", m)
		}
	}
	c.serves(t, c.pki.client(t))
}

// observe observes all apiservers.
func (c *controlPlane) observe(t *testing.T) map[master]*readiness {
	out := make(map[master]*readiness)
	for _, m := range c.masters {
		out[m] = observe(t, m.base(), c.pki.client(t))
	}
	return out
}

// neverBeforeReady checks that the router had no route to a master before the
// observer saw its apiserver ready. There is no race in that: the speaker has
// to see it twice, 200 ms apart, and then the router has to hear of it.
func (c *controlPlane) neverBeforeReady(t *testing.T, r router, routes *recorder, observers map[master]*readiness) {
	t.Helper()
	for _, m := range c.masters {
		ready := observers[m].readySince()
		for _, vip := range []string{vip4, vip6} {
			route := routes.first(m.hop(r, vip))
			switch after := route.Sub(ready).Round(time.Millisecond); {
			case route.IsZero():
				t.Errorf("%s: no route to %s by way of %s was ever seen", r.Name(), vip, m)
			case ready.IsZero():
				t.Errorf("%s: route to %s by way of %s, whose apiserver is not ready", r.Name(), vip, m)
			case after <= 0:
				t.Errorf("%s: route to %s by way of %s %v before its apiserver was ready", r.Name(), vip, m, -after)
			default:
				t.Logf("%s: route to %s by way of %s %v after its apiserver was ready", r.Name(), vip, m, after)
			}
		}
	}
}

// fault is something that makes one master unhealthy.
type fault struct {
	name   string
	master int
	// node is what it happens to.
	node       func(master) *lab.Node
	make, mend func(t *testing.T, n *lab.Node)
	// reason begins the reason that status has for the withdrawal; it is empty if nobody can tell.
	reason string
	// readyz is what the apiserver answers meanwhile, if that is of interest.
	readyz int
}

func kill(t *testing.T, n *lab.Node)   { t.Helper(); must(t, n.Kill()) }
func freeze(t *testing.T, n *lab.Node) { t.Helper(); must(t, n.Freeze()) }
func thaw(t *testing.T, n *lab.Node)   { t.Helper(); must(t, n.Thaw()) }

func start(t *testing.T, n *lab.Node) {
	t.Helper()
	must(t, n.Boot(t.Context()))
}

func command(argv ...string) func(*testing.T, *lab.Node) {
	return func(t *testing.T, n *lab.Node) {
		t.Helper()
		_, err := run(t, n, argv...)
		must(t, err)
	}
}

var faults = []fault{
	{name: "apiserver killed", master: 1, node: master.apiserver, make: kill, mend: start, reason: "apiserver: "},
	{name: "apiserver killed that wants a client certificate", master: 2, node: master.apiserver, make: kill, mend: start, reason: "apiserver: "},
	{name: "etcd killed", master: 3, node: master.etcd, make: kill, mend: start, reason: "apiserver: ", readyz: http.StatusInternalServerError},
	{name: "apiserver frozen", master: 2, node: master.apiserver, make: freeze, mend: thaw, reason: "apiserver: "},
	{name: "registry killed", master: 1, node: master.registry, make: kill, mend: start, reason: "registry: "},
	{name: "registry killed that wants a login", master: 3, node: master.registry, make: kill, mend: start, reason: "registry: "},
	{name: "speaker killed", master: 1, node: master.speaker, make: kill, mend: start},
	{name: "speaker frozen", master: 3, node: master.speaker, make: freeze, mend: thaw},
	{name: "registry sick", master: 2, node: master.registry, make: command("touch", "/tmp/sick"), mend: command("rm", "/tmp/sick"), reason: "registry: "},
}

// testFault makes a fault and mends it: routes and addresses of its master go
// and come back, and nothing happens to the others'.
func (c *controlPlane) testFault(t *testing.T, f fault) {
	m := c.masters[f.master-1]
	c.announces(t, c.masters...)
	c.mark()
	observer := observe(t, m.base(), c.pki.client(t))

	made := time.Now()
	f.make(t, f.node(m))
	mended := false
	defer func() { // the faults after this one want a well master
		if !mended {
			f.mend(t, f.node(m))
		}
	}()
	if f.readyz != 0 {
		// Until the apiserver itself has noticed it is slow and well in turn, and the
		// route may come back for moments.
		eventually(t, soon, func() error {
			if got := observer.last(); got != f.readyz {
				return fmt.Errorf("the apiserver answers %d, want %d", got, f.readyz)
			}
			return nil
		})
		t.Logf("the apiserver's own first answer that was not 200 came after %v", observer.lostSince().Sub(made).Round(time.Millisecond))
	}
	if f.reason != "" {
		eventually(t, soon, func() error {
			status, err := m.status(t)
			if err != nil {
				return err
			}
			for _, v := range status.VIPs {
				if v.Stage != "withdrawn" || !strings.HasPrefix(v.Reason, f.reason) {
					return fmt.Errorf("status of %s has %s %s because %q, want it withdrawn because %q", m, v.Address, v.Stage, v.Reason, f.reason)
				}
			}
			return nil
		})
	}
	c.announces(t, c.others(m)...)
	for _, r := range c.routers {
		t.Logf("%s: routes by way of %s gone after %v", r.Name(), m, c.gone(r, m).Sub(made).Round(time.Millisecond))
	}
	c.serves(t, c.pki.client(t))

	mended = true
	f.mend(t, f.node(m))
	c.announces(t, c.masters...)
	c.untouched(t, c.others(m)...)
	if f.readyz != 0 {
		c.steady(t, m)
	}
}

// steady waits until a master is well for good: an apiserver whose etcd has just
// come back may be slow once more, which is not the next fault's doing.
func (c *controlPlane) steady(t *testing.T, m master) {
	t.Helper()
	const calm = 3 * time.Second
	eventually(t, soon, func() error {
		status, err := m.status(t)
		if err != nil {
			return err
		}
		for _, v := range status.VIPs {
			if v.Stage != "announced" || time.Since(v.Since) < calm {
				return fmt.Errorf("%s has %s %s since %v", m, v.Address, v.Stage, v.Since)
			}
		}
		return nil
	})
	c.announces(t, c.masters...)
}

// gone is when the last of the router's routes stopped leading to the master.
func (c *controlPlane) gone(r router, m master) (at time.Time) {
	for _, vip := range []string{vip4, vip6} {
		for _, s := range c.routes[r.Name()].steps(vip) {
			if !slices.Contains(s.nextHops, m.hop(r, vip)) {
				if s.at.After(at) {
					at = s.at
				}
				break
			}
		}
	}
	return at
}

func (c *controlPlane) mark() {
	for _, routes := range c.routes {
		routes.mark()
	}
}

// untouched checks that no router has been without a route to any of the masters since the mark.
func (c *controlPlane) untouched(t *testing.T, masters ...master) {
	t.Helper()
	for _, r := range c.routers {
		for _, vip := range []string{vip4, vip6} {
			for _, s := range c.routes[r.Name()].steps(vip) {
				for _, m := range masters {
					if !slices.Contains(s.nextHops, m.hop(r, vip)) {
						t.Errorf("%s had no route to %s by way of %s: %v", r.Name(), vip, m, s)
					}
				}
			}
		}
	}
}

// testRegistryAnswers has the answers of a registry change while it runs, for
// which a stub takes its place: a 401 is as good as a 200, a 500 is not.
func (c *controlPlane) testRegistryAnswers(t *testing.T) {
	m := c.masters[0]
	kill(t, m.registry())
	c.announces(t, c.others(m)...)

	t.Run("stub", func(t *testing.T) {
		registry := stub.Registry(m.String())
		answer := func(status int) {
			t.Helper()
			registry.Set("/v2/", stub.Answer{Status: status})
			eventually(t, soon, func() error {
				s, err := m.status(t)
				if err == nil && !strings.Contains(s.Checks[1].Reason, fmt.Sprintf(": %d", status)) {
					err = fmt.Errorf("the check of the registry says %q", s.Checks[1].Reason)
				}
				return err
			})
		}
		serve(t, m.base(), ":5001", registry)
		c.announces(t, c.masters...)
		c.mark()
		answer(http.StatusUnauthorized)
		c.announces(t, c.masters...)
		answer(http.StatusOK)
		c.untouched(t, c.masters...)

		answer(http.StatusInternalServerError)
		c.announces(t, c.others(m)...)
		answer(http.StatusUnauthorized)
		c.announces(t, c.masters...)
		c.untouched(t, c.others(m)...)
	})

	c.announces(t, c.others(m)...)
	start(t, m.registry())
	c.announces(t, c.masters...)
}

// testAllDown kills all apiservers at once: there is no route left, and none
// comes back before they do. Neither way is there any flapping.
func (c *controlPlane) testAllDown(t *testing.T) {
	c.announces(t, c.masters...)
	c.mark()
	for _, m := range c.masters {
		kill(t, m.apiserver())
	}
	c.announces(t)
	c.tables(t)
	for _, r := range c.routers {
		for _, vip := range []string{vip4, vip6} {
			wantMonotonic(t, r, c.routes[r.Name()].steps(vip), func(before, after []netip.Addr) bool { return contains(before, after) })
		}
	}

	c.mark()
	observers := c.observe(t)
	for _, m := range c.masters {
		start(t, m.apiserver())
	}
	c.announces(t, c.masters...)
	for _, r := range c.routers {
		c.neverBeforeReady(t, r, c.routes[r.Name()], observers)
		for _, vip := range []string{vip4, vip6} {
			wantMonotonic(t, r, c.routes[r.Name()].steps(vip), func(before, after []netip.Addr) bool { return contains(after, before) })
		}
	}
	c.serves(t, c.pki.client(t))
}

// wantMonotonic checks that a route only lost next hops, or only gained some.
func wantMonotonic(t *testing.T, r router, steps []step, follows func(before, after []netip.Addr) bool) {
	t.Helper()
	for i := 1; i < len(steps); i++ {
		if !follows(steps[i-1].nextHops, steps[i].nextHops) {
			t.Errorf("the route on %s flapped: %v", r.Name(), steps)
		}
	}
}

// contains reports whether all of b are in a.
func contains(a, b []netip.Addr) bool {
	return !slices.ContainsFunc(b, func(x netip.Addr) bool { return !slices.Contains(a, x) })
}

// testPower cuts the power of all masters and of r1, and gives it back in this
// order, to each when the one before has found its place.
func (c *controlPlane) testPower(t *testing.T, order []string) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*soon)
	defer cancel()
	for _, name := range order {
		must(t, c.Node(name).PowerOff())
	}
	eventually(t, soon, func() error { return leadsTo(c.routers[1]) })
	routes := record(t, c.routers[1].Node)

	observers := make(map[master]*readiness)
	for _, name := range order {
		must(t, c.Node(name).PowerOn(ctx))
		for _, m := range c.masters {
			if m.String() == name {
				observers[m] = observe(t, m.base(), c.pki.client(t))
				m.announced(t)
			}
		}
	}
	c.announces(t, c.masters...)
	c.neverBeforeReady(t, c.routers[1], routes, observers)
	c.serves(t, c.pki.client(t))
}
