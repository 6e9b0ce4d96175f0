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

// The table is made with the first service, and after a failure again later.
func TestTableIsMadeWhenNeeded(t *testing.T) {
	s := newSite(t)
	const invalid = 1 << 20 // no file descriptor
	p := newPlane(slog.New(slog.DiscardHandler), Options{timeout: patience}, invalid)
	t.Cleanup(p.owner.kernel.Close)
	stop := s.node.runs(p)

	b := p.Bridge()
	counts, err := p.Counts()
	if err := errors.Join(err, p.Apply(nil), b.Prepare(nil), b.Close(netip.MustParseAddr("10.0.0.1"))); err != nil || counts != nil || p.isOpen() {
		t.Fatalf("without services: open %t, counts %v, %v", p.isOpen(), counts, err)
	}
	services := []balancer.Service{s.service(local)}
	if err := p.Apply(services); err == nil || !strings.Contains(err.Error(), "mode: proxy") {
		t.Errorf("error %v", err)
	}
	p.owner.kernel.NetNS = int(s.node.NS)
	p.host.netns = int(s.node.NS)
	if err := p.Apply(services); err == nil {
		t.Error("Apply tried again at once")
	}
	p.again = time.Now()
	s.must(p.Apply(services))
	s.node.served(local, 3)
	s.must(p.Apply(nil))
	if counts, err := p.Counts(); err != nil || len(counts) > 0 || !p.isOpen() {
		t.Errorf("after the last service: open %t, counts %v, %v", p.isOpen(), counts, err)
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
		t.Errorf("the table was made after Close, error %v", err)
	}
}
