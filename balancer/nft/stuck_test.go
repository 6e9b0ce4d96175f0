package nft

import (
	"errors"
	"testing"
	"time"

	"github.com/herald-vip/herald/balancer"
	"github.com/herald-vip/herald/netutil/ruleset"
)

// stuck returns Calls with one call that does not return before release.
func stuck(t *testing.T) (calls ruleset.Calls, release func()) {
	t.Helper()
	calls = ruleset.NewCalls(time.Millisecond)
	hold, done := make(chan struct{}), make(chan struct{})
	err := calls.Do(func() error {
		defer close(done)
		<-hold
		return nil
	})
	if !errors.Is(err, ruleset.ErrStuck) {
		t.Fatal(err)
	}
	return calls, func() { close(hold); <-done }
}

// A kernel that does not answer about links, for instance while a driver holds their lock, only affects services at
// 127.0.0.1.
func TestStuckSettings(t *testing.T) {
	s := newSite(t)
	s.holds(s.node)
	p := s.node.idlePlane(Options{})
	s.must(p.Bridge().Prepare(nil)) // switches no forwarding on
	s.node.Run("", "sysctl", "-qw", "net.ipv4.ip_forward=1")
	working := p.host.settings
	calls, release := stuck(t)
	p.host.settings = calls
	err := p.Apply([]balancer.Service{s.service(local, vip4)})
	var fault *balancer.ServiceError
	if !errors.Is(err, errUnanswered) || !errors.As(err, &fault) {
		t.Errorf("error %v, want a ServiceError with errUnanswered", err)
	}
	s.client.served(vip4, 3)
	release()
	p.host.settings = working
	s.must(p.refresh())
	s.node.served(local, 3)
}

// A kernel that does not answer about connections delays neither changes nor counters.
func TestStuckConnections(t *testing.T) {
	s := newSite(t)
	p := s.node.idlePlane(Options{})
	service := s.service(local)
	s.must(p.Apply([]balancer.Service{service}))
	s.node.served(local, 3)
	ends, releaseEnds := stuck(t)
	defer releaseEnds()
	counts, releaseCounts := stuck(t)
	defer releaseCounts()
	p.host.ends, p.host.counts = ends, counts
	service.Backends[0].State = balancer.Dead
	s.must(p.Apply([]balancer.Service{service}))
	if got := s.node.served(local, 6); len(got) != 2 {
		t.Errorf("served by %v, want the two others", got)
	}
	all, err := p.Counts()
	s.must(err)
	sum := 0
	for _, c := range all {
		sum += int(c.Connections)
		if c.Open != -1 {
			t.Errorf("%s has %d open connections, want -1", c.Backend, c.Open)
		}
	}
	if sum != 9 {
		t.Errorf("%d connections counted, want 9", sum)
	}
}
