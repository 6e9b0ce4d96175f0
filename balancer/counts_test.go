package balancer

import (
	"errors"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// busyPlane notes whether it is asked to count while it counts.
type busyPlane struct {
	begun    chan struct{} // holds one for each count
	goOn     chan struct{} // closed to let counts end
	counting atomic.Int32
	overlap  atomic.Bool
	counts   atomic.Int32
}

func (p *busyPlane) Apply([]Service) error { return nil }
func (p *busyPlane) Close() error          { return nil }
func (p *busyPlane) Counts() ([]Count, error) {
	if p.counting.Add(1) > 1 {
		p.overlap.Store(true)
	}
	defer p.counting.Add(-1)
	p.counts.Add(1)
	p.begun <- struct{}{}
	<-p.goOn
	return nil, errors.New("not known")
}

// Status may be asked for by anybody and by many at once, and what it costs a plane is paid once.
func TestStatusCountsOnceForAll(t *testing.T) {
	const many = 50
	plane := &busyPlane{begun: make(chan struct{}, many+1), goOn: make(chan struct{})}
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
	close(plane.goOn)
	asking.Wait()
	if plane.overlap.Load() {
		t.Error("the plane was asked while it was busy")
	}

	asked := plane.counts.Load()
	s.counter.begun = time.Now().Add(time.Hour) // somebody had it count after this one asked
	s.Status()
	if plane.counts.Load() != asked {
		t.Error("the plane was asked for what it had just answered")
	}
}

// What cannot be counted is not called zero, nor does it look as if nothing were carried.
func TestStatusWithoutCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newSite(t)
		x.apply(t, ofMembers("api"))
		x.SetMembers([]Member{master("10.0.0.1")})
		backend := netip.MustParseAddrPort("10.0.0.1:6443")
		x.kernel.count(Count{Service: "api", Backend: backend, Connections: 7, Open: 2})
		x.Status()
		time.Sleep(time.Second)
		x.kernel.miscount(errors.New("nftables does not answer"))
		status := x.Status()[0]
		if want := "connections cannot be counted: nftables does not answer"; status.Error != want || status.Backends[0].Open != -1 {
			t.Errorf("status is %+v, want the error %q and no number", status, want)
		}
		if got := status.Backends[0].Connections; got != 7 {
			t.Errorf("a counter has fallen from 7 to %d", got)
		}
	})
}
