//go:build e2e

package session

import (
	"testing"
	"time"

	"github.com/herald-vip/herald/status/admin"
	"github.com/herald-vip/herald/testenv/e2e/site"
)

// TestAddressRemoved repeatedly removes the VIP's address: it is restored, and
// counted; the routes stay.
func TestAddressRemoved(t *testing.T) {
	t.Parallel()
	s := newAnnouncingSite(t, nil)
	calm := watchBystander(t, s)
	for removals := 1; removals <= 4; removals++ {
		site.Shell(t, s.Node("s"), "ip addr del 10.99.0.10/32 dev lo")
		restored(t, s, removals)
	}
	calm.untouched(t)
}

// restored waits until the address has been restored this many times, and is present.
func restored(t *testing.T, s *site.Session, times int) {
	t.Helper()
	s.Shows(t, func(status admin.Status) error {
		return site.ErrorIf(status.VIPs[0].Restored < times, "put back %d times, want %d", status.VIPs[0].Restored, times)
	})
	s.HasAddress(t, site.VIP4, true)
}

// TestLoopbackFlushed removes all addresses from lo, including 127.0.0.1: the
// apiserver cannot be reached until they are back.
func TestLoopbackFlushed(t *testing.T) {
	t.Parallel()
	s := newAnnouncingSite(t, nil)
	site.Shell(t, s.Node("s"), "ip addr flush dev lo")
	withdrawn(t, s)
	because(t, s, "GET http://127.0.0.1:6443/readyz: ")
	site.Shell(t, s.Node("s"), "ip addr add 127.0.0.1/8 dev lo scope host")
	announced(t, s)
}

// TestFloodOfAddressChanges floods the node with 20,000 address changes while the
// speaker is frozen, so that it loses most messages, including the one about its own
// address: it detects that nevertheless.
func TestFloodOfAddressChanges(t *testing.T) {
	t.Parallel()
	s := newAnnouncingSite(t, nil)
	herald := s.Node("s").Daemon("herald")
	const flood = `
		ip link show flood >/dev/null 2>&1 || ip link add flood type veth
		for i in $(seq 10000); do echo "addr add 10.98.0.1/32 dev flood"; echo "addr del 10.98.0.1/32 dev flood"; done | ip -batch -`
	site.Must(t, herald.Freeze())
	froze := time.Now()
	site.Shell(t, s.Node("s"), flood+"\nip addr del 10.99.0.10/32 dev lo")
	site.Must(t, herald.Thaw())
	t.Logf("frozen for %v", time.Since(froze).Round(time.Millisecond))
	wantUpdates(t, s.Node("s"), "changes of links and addresses were lost")
	announced(t, s)

	// When it runs it keeps up, and also with changes amid a flood.
	status, err := s.Status(t)
	site.Must(t, err)
	site.Shell(t, s.Node("s"), flood+"\nip addr del 10.99.0.10/32 dev lo\n"+flood)
	restored(t, s, status.VIPs[0].Restored+1)
	announced(t, s)
}

// TestSpeakerStandsStill freezes the speaker for longer than its session and its
// address last, and kills the apiserver meanwhile. When it continues, it announces
// nothing until the apiserver is back.
func TestSpeakerStandsStill(t *testing.T) {
	t.Parallel()
	s := newAnnouncingSite(t, nil)
	herald := s.Node("s").Daemon("herald")
	froze := time.Now()
	site.Must(t, herald.Freeze())
	s.ApiserverDies()
	withdrawn(t, s)
	t.Logf("routes and address gone after %v", time.Since(froze).Round(site.Poll))

	routes := []*site.RouteWatcher{site.WatchRoutes(t, s.Node("r1")), site.WatchRoutes(t, s.Node("r2"))}
	address := followAddress(t, s.Node("s"), site.VIP4)
	site.Must(t, herald.Thaw())
	because(t, s, "GET http://127.0.0.1:6443/readyz: ")
	for _, p := range plainPeers {
		s.Established(t, p.router, p.neighbor, p.peer)
	}
	withdrawn(t, s)
	for _, r := range routes {
		r.Untouched(t) // that would be a route to a dead apiserver
	}
	if events := address.since(); len(events) > 0 {
		t.Errorf("the address of a dead apiserver was put back: %v", events)
	}
	s.ApiserverStarts(t)
	announced(t, s)
}
