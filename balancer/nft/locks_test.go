package nft

import (
	"context"
	"net/netip"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/herald-vip/herald/balancer"
	"github.com/herald-vip/herald/netutil/ruleset"
)

// Each type with a lock reaches no type of this package with an outer lock, so that methods can lock only inwards.
func TestLockOrder(t *testing.T) {
	outer := map[reflect.Type][]reflect.Type{
		reflect.TypeFor[owner]():    {reflect.TypeFor[DataPlane]()},
		reflect.TypeFor[requests](): {reflect.TypeFor[DataPlane](), reflect.TypeFor[owner]()},
	}
	locks := map[reflect.Type]bool{reflect.TypeFor[DataPlane](): true, reflect.TypeFor[owner](): true, reflect.TypeFor[requests](): true}
	for start := range locks {
		seen := make(map[reflect.Type]bool)
		reach(start, seen)
		for _, forbidden := range outer[start] {
			if seen[forbidden] {
				t.Errorf("%s refers to %s", start, forbidden)
			}
		}
		for reached := range seen {
			if n := mutexes(reached); n > 1 || n == 1 && !locks[reached] {
				t.Errorf("%s has %d mutexes, which have no place in the order", reached, n)
			}
		}
	}
}

// reach adds a type and all types of this package that its fields refer to. It skips interfaces and functions.
func reach(t reflect.Type, seen map[reflect.Type]bool) {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Chan:
		reach(t.Elem(), seen)
	case reflect.Map:
		reach(t.Key(), seen)
		reach(t.Elem(), seen)
	case reflect.Struct:
		if seen[t] || t.PkgPath() != reflect.TypeFor[owner]().PkgPath() {
			return
		}
		seen[t] = true
		for field := range t.Fields() {
			reach(field.Type, seen)
		}
	}
}

// mutexes counts the mutexes among the fields of a type.
func mutexes(t reflect.Type) (n int) {
	for field := range t.Fields() {
		switch field.Type {
		case reflect.TypeFor[sync.Mutex](), reflect.TypeFor[sync.RWMutex](), reflect.TypeFor[*ruleset.Keeper]():
			n++
		}
	}
	return n
}

// While a change waits for a slow kernel, counters, the bridge's counter and its closing do not wait. While nftables itself
// is slow, opening the bridge does not wait.
func TestSlowKernelBlocksNoStatus(t *testing.T) {
	s := newSite(t)
	p := s.node.idlePlane(Options{})
	b := bridgeTo(t, p, s.masters...)
	service := s.service(local)
	s.must(p.Apply([]balancer.Service{service}))
	s.node.served(local, 3)
	prompt := func(what string, do func()) {
		t.Helper()
		done := make(chan struct{})
		go func() { defer close(done); do() }()
		select {
		case <-done:
		case <-time.After(patience):
			t.Fatalf("%s waits for a slow kernel", what)
		}
	}

	p.changing.Lock() // as while connections to a dead backend are ended, which may take 10 s
	prompt("Counts", func() {
		if counts, err := p.Counts(); err != nil || len(counts) != len(service.Backends) || counts[0].Open < 0 {
			t.Errorf("counts %v, %v", counts, err)
		}
	})
	prompt("Bridge.Received", func() { _, _ = b.Received(vip4.Addr()) })
	prompt("Bridge.Open", func() { b.Open(time.Minute, vip4.Addr()) })
	prompt("the opening", func() { _ = p.owner.openBridge() })
	prompt("Bridge.Close", func() { _ = b.Close(vip4.Addr()) })
	prompt("the repair", func() { _ = p.owner.repair() })
	p.owner.Lock() // as during a call to nftables
	prompt("Bridge.Open", func() { b.Open(time.Minute, vip4.Addr()) })
	prompt("isOpen", func() { p.isOpen() })
	p.owner.Unlock()
	p.changing.Unlock()
}

// All methods may run at once.
func TestConcurrentCalls(t *testing.T) {
	s := newSite(t)
	p := s.node.plane(Options{})
	b := bridgeTo(t, p, s.masters...)
	services := [][]balancer.Service{{s.service(local)}, {s.service(local, vip4)}, nil}
	services[1][0].Backends[0].State = balancer.Dead
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	var running sync.WaitGroup
	for _, do := range []func(i int) error{
		func(i int) error { return p.Apply(services[i%len(services)]) },
		func(int) error { _, err := p.Counts(); return err },
		func(int) error { b.Open(time.Minute, vip4.Addr()); return nil },
		func(int) error { return b.Close(vip4.Addr()) },
		func(int) error { _, err := b.Received(vip4.Addr()); return err },
		func(int) error { return b.Prepare(map[netip.Addr][]netip.Addr{vip4.Addr(): {s.masters[0].v4}}) },
		func(int) error { return p.refresh() },
	} {
		running.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				if err := do(i); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	running.Wait()
	s.must(p.Apply(services[0]))
	s.node.served(local, 3)
}
