//go:build e2e

package e2e

import (
	"fmt"
	"testing"
	"time"
)

// TestAddressRemoved has somebody remove the VIP's address over and over: it is
// put back, and counted; the routes stay.
func TestAddressRemoved(t *testing.T) {
	t.Parallel()
	s := newAnnouncingSite(t, nil)
	calm := s.bystander(t)
	for removals := 1; removals <= 4; removals++ {
		shell(t, s.Node("s"), "ip addr del 10.99.0.10/32 dev lo")
		s.restored(t, removals)
	}
	calm.untouched(t)
}

// restored waits until the address has been put back this many times, and is there.
func (s *site) restored(t *testing.T, times int) {
	t.Helper()
	eventually(t, soon, func() error {
		status, err := s.status(t)
		if err == nil && status.VIPs[0].Restored < times {
			err = fmt.Errorf("put back %d times, want %d", status.VIPs[0].Restored, times)
		}
		return err
	})
	s.hasAddress(t, vip4, true)
}

// TestLoopbackFlushed has somebody take all addresses off lo, 127.0.0.1 among
// them: there is no way to the apiserver any more, until they are back.
func TestLoopbackFlushed(t *testing.T) {
	t.Parallel()
	s := newAnnouncingSite(t, nil)
	shell(t, s.Node("s"), "ip addr flush dev lo")
	s.withdrawn(t)
	s.because(t, "GET http://127.0.0.1:6443/readyz: ")
	shell(t, s.Node("s"), "ip addr add 127.0.0.1/8 dev lo scope host")
	s.announced(t)
}

// TestFloodOfAddressChanges floods the node with 20,000 changes of addresses
// while the speaker stands still, so that most are lost to it, and that of its
// own address among them: it finds out nevertheless.
func TestFloodOfAddressChanges(t *testing.T) {
	t.Parallel()
	s := newAnnouncingSite(t, nil)
	herald := s.Node("s").Daemon("herald")
	const flood = `
		ip link show flood >/dev/null 2>&1 || ip link add flood type veth
		for i in $(seq 10000); do echo "addr add 10.98.0.1/32 dev flood"; echo "addr del 10.98.0.1/32 dev flood"; done | ip -batch -`
	must(t, herald.Freeze())
	froze := time.Now()
	shell(t, s.Node("s"), flood+"\nip addr del 10.99.0.10/32 dev lo")
	must(t, herald.Thaw())
	t.Logf("frozen for %v", time.Since(froze).Round(time.Millisecond))
	s.logged(t, "changes of links and addresses went unheard")
	s.announced(t)

	// With nobody standing still it keeps up, and with what happens amid a flood as well.
	status, err := s.status(t)
	must(t, err)
	shell(t, s.Node("s"), flood+"\nip addr del 10.99.0.10/32 dev lo\n"+flood)
	s.restored(t, status.VIPs[0].Restored+1)
	s.announced(t)
}

// logged waits until the speaker's log has the text.
func (s *site) logged(t *testing.T, text string) {
	t.Helper()
	wantUpdates(t, s.Node("s"), text)
}

// TestSpeakerStandsStill freezes the speaker for longer than its session and
// its address last, and meanwhile the apiserver dies: when it goes on, it
// announces nothing until the apiserver is back.
func TestSpeakerStandsStill(t *testing.T) {
	t.Parallel()
	s := newAnnouncingSite(t, nil)
	herald := s.Node("s").Daemon("herald")
	froze := time.Now()
	must(t, herald.Freeze())
	s.apiserverDies()
	s.withdrawn(t)
	t.Logf("routes and address gone after %v", time.Since(froze).Round(poll))

	routes := []*recorder{record(t, s.Node("r1")), record(t, s.Node("r2"))}
	address := followAddress(t, s.Node("s"), vip4)
	must(t, herald.Thaw())
	s.because(t, "GET http://127.0.0.1:6443/readyz: ")
	for _, p := range plainPeers {
		s.established(t, p.router, p.neighbor, p.peer)
	}
	s.withdrawn(t)
	for i, r := range routes {
		if changes := r.since(); len(changes) > 0 {
			t.Errorf("%s had a route to a dead apiserver: %v", plainPeers[i].router, changes)
		}
	}
	if events := address.since(); len(events) > 0 {
		t.Errorf("the address of a dead apiserver was put back: %v", events)
	}
	s.apiserverStarts(t)
	s.announced(t)
}
