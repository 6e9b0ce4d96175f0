//go:build e2e

package session

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/herald-vip/herald/bgp"
	"github.com/herald-vip/herald/status/admin"
	"github.com/herald-vip/herald/testenv/e2e/site"
	"github.com/herald-vip/herald/testenv/e2e/witness"
	"github.com/herald-vip/herald/testenv/lab"
)

// The peers of s in the plain site, as each end names the other.
var plainPeers = []struct{ router, neighbor, peer string }{
	{"r1", "10.0.1.1", "10.0.1.254"},
	{"r2", "10.0.2.1", "10.0.2.254"},
}

// newAnnouncingSite makes a site with a speaker that announces the VIP to r1 and r2.
func newAnnouncingSite(t *testing.T, own site.Files) *site.Session {
	t.Helper()
	s := site.NewSession(t, own)
	site.Boot(t, s.Lab, "r1", "r2", "s")
	announced(t, s)
	return s
}

// newPlainSession makes a site with this configuration of the speaker, and a session with r1
// alone.
func newPlainSession(t *testing.T, router, herald string) *site.Session {
	t.Helper()
	s := site.NewSession(t, site.Files{"r1.conf": site.RouterConf(64500, router), "herald/herald.yaml": herald})
	site.Boot(t, s.Lab, "r1", "s")
	s.Established(t, "r1", "10.0.1.1", "10.0.1.254")
	s.Path(t, "r1", site.VIP4)
	return s
}

// onceUp checks that a router's session is up, and was never lost.
func onceUp(t *testing.T, s *site.Session, router, neighbor string) {
	t.Helper()
	n := site.Get[site.Neighbor](t)(s.Router(router).Neighbor(t, neighbor))
	if n.State != "Established" || n.Established != 1 {
		t.Errorf("the session with %s was up %d times and is %s now, want Established once", router, n.Established, n.State)
	}
}

// announced waits until s announces the VIP by every path: sessions, routes and the address.
func announced(t *testing.T, s *site.Session) {
	t.Helper()
	for _, p := range plainPeers {
		s.Established(t, p.router, p.neighbor, p.peer)
	}
	onlyOn(t, s, "r1", "r2")
	s.HasAddress(t, site.VIP4, true)
}

// withdrawn waits until the VIP is announced by no path.
func withdrawn(t *testing.T, s *site.Session) {
	t.Helper()
	onlyOn(t, s)
	s.HasAddress(t, site.VIP4, false)
}

// onlyOn waits until exactly these of r1 and r2 have a route to the VIP in their kernels.
func onlyOn(t *testing.T, s *site.Session, routers ...string) {
	t.Helper()
	site.Eventually(t, site.Soon, func() error {
		for _, p := range plainPeers {
			list, err := site.KernelRoutes(s.Node(p.router), site.VIP4)
			if err != nil {
				return err
			}
			if present := len(list) > 0; present != slices.Contains(routers, p.router) {
				return fmt.Errorf("%s has a route to %s: %t", p.router, site.VIP4, present)
			}
		}
		return nil
	})
}

// down waits until status shows the session with the peer as down.
func down(t *testing.T, s *site.Session, peer string) {
	t.Helper()
	s.ShowsPeer(t, peer, func(p bgp.Session) error {
		return site.ErrorIf(p.State == "established" || p.Reason == "",
			"status shows the session with %s %s, because %q", peer, p.State, p.Reason)
	})
}

// tells waits until status shows this state of the VIP.
func tells(t *testing.T, s *site.Session, state string) {
	t.Helper()
	s.Shows(t, func(status admin.Status) error {
		v := status.VIPs[0]
		return site.ErrorIf(v.Told() != state, "status shows %q since %v: %s; want %q", v.Told(), v.Since, v.Why(time.Now()), state)
	})
}

// bystander is a router that must not be affected.
type bystander struct {
	site.Router
	address  string // of s there
	routes   *site.RouteWatcher
	sessions int
	began    time.Time
	witness  *witness.Witness
}

// watchBystander observes r2 from now on.
func watchBystander(t *testing.T, s *site.Session) bystander {
	t.Helper()
	b := bystander{Router: s.Router("r2"), address: "10.0.2.1", routes: site.WatchRoutes(t, s.Node("r2"))}
	n := site.Get[site.Neighbor](t)(b.Neighbor(t, b.address))
	b.sessions, b.began, b.witness = n.Established, time.Now(), site.StartWitness(t)
	return b
}

// untouched checks that the session is still the same and no route has changed.
func (b bystander) untouched(t *testing.T) {
	t.Helper()
	n := site.Get[site.Neighbor](t)(b.Neighbor(t, b.address))
	if n.State != "Established" || n.Established != b.sessions {
		site.FailTiming(t, b.witness.Starved(b.began), "the session of %s was up %d times and is %s now, want Established %d times", b.Name(), n.Established, n.State, b.sessions)
	}
	if changes := b.routes.Since(); len(changes) > 0 {
		site.FailTiming(t, b.witness.Starved(b.began), "the routes of %s changed: %v", b.Name(), changes)
	}
}

// addressLog records the events of an address of a node.
type addressLog struct {
	mu     sync.Mutex
	events []addressEvent
}

type addressEvent struct {
	at   time.Time
	gone bool // else it was added or refreshed
}

// followAddress records when the kernel removes, adds or refreshes the address, until
// the test is over.
func followAddress(t *testing.T, n *lab.Node, address string) *addressLog {
	t.Helper()
	log := new(addressLog)
	updates, done := make(chan netlink.AddrUpdate), make(chan struct{})
	site.Must(t, n.Do(func() error {
		return netlink.AddrSubscribeWithOptions(updates, done, netlink.AddrSubscribeOptions{ReceiveBufferSize: 4 << 20, ReceiveBufferForceSize: true})
	}))
	var reading sync.WaitGroup
	reading.Go(func() {
		for u := range updates {
			if u.LinkAddress.IP.String() == address {
				log.mu.Lock()
				log.events = append(log.events, addressEvent{time.Now(), !u.NewAddr})
				log.mu.Unlock()
			}
		}
	})
	t.Cleanup(func() { close(done); reading.Wait() })
	return log
}

// since returns the events up to now.
func (l *addressLog) since() []addressEvent {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.events)
}

// removals counts how often the address went.
func (l *addressLog) removals() (n int) {
	for _, e := range l.since() {
		if e.gone {
			n++
		}
	}
	return n
}
