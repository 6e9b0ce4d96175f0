package balancer

import (
	"errors"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// busyDataPlane detects concurrent calls of Counts.
type busyDataPlane struct {
	begun    chan struct{} // holds one for each count
	release  chan struct{} // closed to end all counts
	counting atomic.Int32
	overlap  atomic.Bool
	counts   atomic.Int32
}

func (p *busyDataPlane) Apply([]Service) error { return nil }
func (p *busyDataPlane) Close() error          { return nil }
func (p *busyDataPlane) Counts() ([]Count, error) {
	if p.counting.Add(1) > 1 {
		p.overlap.Store(true)
	}
	defer p.counting.Add(-1)
	p.counts.Add(1)
	p.begun <- struct{}{}
	<-p.release
	return nil, errors.New("not known")
}

// Many concurrent calls of Status read the counters of a data plane once.
func TestStatusCountsOnceForAll(t *testing.T) {
	const many = 50
	plane := &busyDataPlane{begun: make(chan struct{}, many+1), release: make(chan struct{})}
	s := New(nil, plane, new(fakePlane))
	defer s.Close()
	var asking sync.WaitGroup
	asking.Go(func() { s.Status() })
	<-plane.begun
	var here sync.WaitGroup
	here.Add(many)
	for range many {
		asking.Go(func() {
			here.Done()
			s.Status()
		})
	}
	here.Wait()
	close(plane.release)
	asking.Wait()
	if plane.overlap.Load() {
		t.Error("Counts was called concurrently")
	}

	asked := plane.counts.Load()
	s.counter.begun = time.Now().Add(time.Hour) // as if another caller read them later
	s.Status()
	if plane.counts.Load() != asked {
		t.Error("a fresh result was read again")
	}
}

// After a failed read the open connections are -1, and counters do not fall.
func TestStatusWithoutCounts(t *testing.T) {
	onSite(t, func(t *testing.T, x *site) {
		x.apply(t, ofMembers("api"))
		x.SetMembers([]Member{master("10.0.0.1")})
		backend := netip.MustParseAddrPort("10.0.0.1:6443")
		x.kernel.count(Count{Service: "api", Backend: backend, Connections: 7, Open: 2})
		x.Status()
		time.Sleep(time.Second)
		x.kernel.failCounts(errors.New("nftables does not answer"))
		status := x.Status()[0]
		if want := "cannot count connections: nftables does not answer"; status.Error != want || status.Backends[0].Open != -1 {
			t.Errorf("status %+v, want the error %q and -1 open", status, want)
		}
		if got := status.Backends[0].Connections; got != 7 {
			t.Errorf("the counter fell from 7 to %d", got)
		}
	})
}
