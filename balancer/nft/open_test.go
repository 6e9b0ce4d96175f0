package nft

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/herald-vip/herald/balancer"
)

// The table in the kernel is made when something is to be carried, and tried again if that fails.
func TestTableIsMadeWhenNeeded(t *testing.T) {
	s := newSite(t)
	const nothing = 1 << 20 // no file descriptor
	p := newPlane(slog.New(slog.DiscardHandler), Options{timeout: patience}, nothing)
	t.Cleanup(p.kernel.Close)
	stop := s.node.runs(p)

	b := p.Bridge()
	counts, err := p.Counts()
	if err := errors.Join(err, p.Apply(nil), b.Prepare(nil), b.Close(netip.MustParseAddr("10.0.0.1"))); err != nil || counts != nil || p.isOpen() {
		t.Fatalf("open: %t for nothing, counts %v, %v", p.isOpen(), counts, err)
	}
	services := []balancer.Service{s.service(local)}
	if err := p.Apply(services); err == nil || !strings.Contains(err.Error(), "mode: proxy") {
		t.Errorf("the error is %v", err)
	}
	p.kernel.NetNS = int(s.node.ns)
	p.host.netns = int(s.node.ns)
	if err := p.Apply(services); err == nil {
		t.Error("tried again at once")
	}
	p.again = time.Now()
	s.must(p.Apply(services))
	s.node.served(local, 3)
	s.must(p.Apply(nil))
	if counts, err := p.Counts(); err != nil || len(counts) > 0 || !p.isOpen() {
		t.Errorf("open: %t, and %v is counted for nothing, %v", p.isOpen(), counts, err)
	}
	stop()
	s.must(p.Close())
}

func TestTableIsNotMadeAtTheEnd(t *testing.T) {
	p := New(slog.New(slog.DiscardHandler), Options{})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { p.Run(ctx) })
	cancel()
	running.Wait()
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if err := p.Apply([]balancer.Service{{Name: "api"}}); err == nil || p.isOpen() {
		t.Errorf("a table was made after the end, error %v", err)
	}
}
