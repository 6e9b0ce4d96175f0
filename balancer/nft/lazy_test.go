package nft

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/herald-vip/herald/balancer"
)

// carryingPlane remembers what it is to carry.
type carryingPlane struct {
	mu      sync.Mutex
	carried []balancer.Service
	running bool
	closed  bool
	bridge  Bridge
}

func (p *carryingPlane) Apply(services []balancer.Service) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.carried = services
	return nil
}

func (p *carryingPlane) Counts() ([]balancer.Count, error) { return nil, nil }

func (p *carryingPlane) Run(ctx context.Context) {
	p.mu.Lock()
	p.running = true
	p.mu.Unlock()
	<-ctx.Done()
}

func (p *carryingPlane) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	return nil
}

func (p *carryingPlane) Bridge() *Bridge { return &p.bridge }

// The plane in the kernel is made when something is to be carried, and tried again if that fails.
func TestKernelIsMadeWhenNeeded(t *testing.T) {
	plane, made, fail := &carryingPlane{}, 0, errors.New("no nf_tables")
	k := &Lazy{made: make(chan struct{}), open: func() (lazily, error) {
		made++
		if fail != nil {
			return nil, fail
		}
		return plane, nil
	}}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { k.Run(ctx) })
	defer running.Wait()
	defer cancel()

	b := k.Bridge()
	if err := errors.Join(k.Apply(nil), b.Prepare(nil), b.Close(netip.MustParseAddr("10.0.0.1"))); err != nil || made != 0 {
		t.Fatalf("made %d times for nothing, %v", made, err)
	}
	services := []balancer.Service{{Name: "api"}}
	err := k.Apply(services)
	if !errors.Is(err, fail) || !strings.Contains(err.Error(), "mode: proxy") {
		t.Errorf("the error is %v", err)
	}
	fail = nil
	if err := k.Apply(services); err == nil || made != 1 {
		t.Errorf("tried %d times at once, %v", made, err)
	}
	k.again = time.Now()
	if err := errors.Join(k.Apply(services), k.Apply(nil)); err != nil || made != 2 || plane.carried != nil {
		t.Errorf("made %d times, carries %v, %v", made, plane.carried, err)
	}
	for runs := false; !runs; {
		plane.mu.Lock()
		runs = plane.running
		plane.mu.Unlock()
	}
	cancel()
	running.Wait()
	if err := k.Close(); err != nil || !plane.closed {
		t.Errorf("closed is %t, %v", plane.closed, err)
	}
}

func TestKernelIsNotMadeAtTheEnd(t *testing.T) {
	k := &Lazy{made: make(chan struct{}), open: func() (lazily, error) { return &carryingPlane{}, nil }}
	if err := k.Close(); err != nil {
		t.Fatal(err)
	}
	if err := k.Apply([]balancer.Service{{Name: "api"}}); err == nil {
		t.Error("a plane was made after the end")
	}
}
