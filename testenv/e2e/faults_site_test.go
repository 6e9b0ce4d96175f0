//go:build e2e

package e2e

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/herald-vip/herald/testenv/lab"
)

// The peers of s in the plain site, as each end names the other.
var plainPeers = []struct{ router, neighbor, peer string }{
	{"r1", "10.0.1.1", "10.0.1.254"},
	{"r2", "10.0.2.1", "10.0.2.254"},
}

// newAnnouncingSite makes a site whose speaker announces the VIP to r1 and r2.
func newAnnouncingSite(t *testing.T, own files) *site {
	t.Helper()
	s := newSite(t, own)
	boot(t, s.Lab, "r1", "r2", "s")
	s.announced(t)
	return s
}

// announced waits until s announces the VIP by every path: sessions, routes and the address.
func (s *site) announced(t *testing.T) {
	t.Helper()
	for _, p := range plainPeers {
		s.established(t, p.router, p.neighbor, p.peer)
	}
	s.onlyOn(t, "r1", "r2")
	s.hasAddress(t, vip4, true)
}

// withdrawn waits until the VIP is announced by no path.
func (s *site) withdrawn(t *testing.T) {
	t.Helper()
	s.onlyOn(t)
	s.hasAddress(t, vip4, false)
}

// onlyOn waits until of r1 and r2 exactly these have a route to the VIP in their kernels.
func (s *site) onlyOn(t *testing.T, routers ...string) {
	t.Helper()
	eventually(t, soon, func() error {
		for _, p := range plainPeers {
			list, err := kernelRoutes(s.Node(p.router), vip4)
			if err != nil {
				return err
			}
			if has := len(list) > 0; has != slices.Contains(routers, p.router) {
				return fmt.Errorf("%s has a route to %s: %t", p.router, vip4, has)
			}
		}
		return nil
	})
}

// down waits until status has the session with the peer down.
func (s *site) down(t *testing.T, peer string) {
	t.Helper()
	eventually(t, soon, func() error {
		p, err := s.peer(t, peer)
		if err == nil && (p.State == "established" || p.Reason == "") {
			err = fmt.Errorf("status has the session with %s %s, because %q", peer, p.State, p.Reason)
		}
		return err
	})
}

// bystander is a router to which nothing may happen.
type bystander struct {
	router
	address  string // of s there
	routes   *recorder
	sessions int
}

// bystander observes r2 from now on.
func (s *site) bystander(t *testing.T) bystander {
	t.Helper()
	b := bystander{router: s.router("r2"), address: "10.0.2.1", routes: record(t, s.Node("r2"))}
	n, err := b.neighbor(t, b.address)
	must(t, err)
	b.sessions = n.Established
	return b
}

// untouched checks that the session is the same as ever and no route has changed.
func (b bystander) untouched(t *testing.T) {
	t.Helper()
	n, err := b.neighbor(t, b.address)
	must(t, err)
	if n.State != "Established" || n.Established != b.sessions {
		t.Errorf("the session of %s was up %d times and is %s now, want Established %d times", b.Name(), n.Established, n.State, b.sessions)
	}
	if changes := b.routes.since(); len(changes) > 0 {
		t.Errorf("the routes of %s changed: %v", b.Name(), changes)
	}
}

// addressLog is what happened to an address of a node.
type addressLog struct {
	mu     sync.Mutex
	events []addressEvent
}

type addressEvent struct {
	at   time.Time
	gone bool
}

func (e addressEvent) String() string {
	if e.gone {
		return e.at.Format("15:04:05.0000") + ": removed"
	}
	return e.at.Format("15:04:05.0000") + ": added or refreshed"
}

// followAddress notes when the kernel removes the address, or adds or refreshes it, until the test is over.
func followAddress(t *testing.T, n *lab.Node, address string) *addressLog {
	t.Helper()
	log := new(addressLog)
	updates, done := make(chan netlink.AddrUpdate), make(chan struct{})
	must(t, n.Do(func() error {
		return netlink.AddrSubscribeWithOptions(updates, done, netlink.AddrSubscribeOptions{ReceiveBufferSize: 4 << 20, ReceiveBufferForceSize: true})
	}))
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		for u := range updates {
			if u.LinkAddress.IP.String() == address {
				log.mu.Lock()
				log.events = append(log.events, addressEvent{time.Now(), !u.NewAddr})
				log.mu.Unlock()
			}
		}
	}()
	t.Cleanup(func() {
		close(done)
		<-finished
	})
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
