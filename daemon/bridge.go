package daemon

import (
	"context"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/herald-vip/herald/admin"
	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/election"
	"github.com/herald-vip/herald/speaker"
)

// forwarder sends new connections on in the kernel; [nft.Bridge] does. All but Open may take their time.
type forwarder interface {
	Prepare(towards map[netip.Addr][]netip.Addr) error
	Open(limit time.Duration, vips ...netip.Addr)
	Close(vips ...netip.Addr) error
	Received(vip netip.Addr) (uint64, error)
}

// bridge has new connections to VIPs that leave this node sent on to healthy members.
// The speaker says when, and waits for nothing; the kernel is told of the members beforehand.
// What may take its time is left to [bridge.run], which holds no lock meanwhile.
type bridge struct {
	log    *slog.Logger
	kernel forwarder
	wake   chan struct{}

	mu        sync.Mutex
	vips      []config.VIP        // that are bridged
	virtual   map[netip.Addr]bool // addresses of all VIPs
	offered   []election.Offered
	targets   map[netip.Addr][]target // of each address of a VIP
	unknown   bool                    // the kernel has not been told of targets
	crossings map[netip.Addr]crossing
	closing   map[netip.Addr]bool // that the kernel is to be told of
	opened    []netip.Addr        // that is yet to be logged
	trouble   string              // what the kernel says
}

var _ speaker.Bridge = (*bridge)(nil)

// newBridge returns a bridge over the kernel that has yet to run.
func newBridge(log *slog.Logger, kernel forwarder) *bridge {
	return &bridge{
		log: log, kernel: kernel, wake: make(chan struct{}, 1),
		crossings: make(map[netip.Addr]crossing), closing: make(map[netip.Addr]bool),
	}
}

// watch takes in the VIPs of c.
func (b *bridge) watch(c *config.Config) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.vips = slices.DeleteFunc(slices.Clone(c.VIPs), func(v config.VIP) bool { return !*v.Bridge })
	b.virtual = make(map[netip.Addr]bool)
	for _, addr := range vipAddresses(c) {
		b.virtual[addr] = true
	}
	b.aim()
}

// know takes in what members offer.
func (b *bridge) know(offered []election.Offered) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.offered = offered
	b.aim()
}

// aim finds the targets anew.
func (b *bridge) aim() {
	others := slices.DeleteFunc(slices.Clone(b.offered), func(o election.Offered) bool {
		return b.virtual[o.Address.Addr().Unmap()] // whoever has a VIP may send on what comes to it
	})
	targets := make(map[netip.Addr][]target)
	for _, v := range b.vips {
		for _, addr := range v.Addresses {
			if to := healthy(v.Checks, addr, others); len(to) > 0 {
				targets[addr] = to
			}
		}
	}
	if !maps.EqualFunc(targets, b.targets, slices.Equal[[]target]) {
		b.targets, b.unknown = targets, true
		b.poke()
	}
}

// Open implements [speaker.Bridge].
func (b *bridge) Open(until time.Time, addrs ...netip.Addr) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	var known []netip.Addr
	var limit time.Duration
	for _, addr := range addrs {
		if len(b.targets[addr]) == 0 {
			continue
		}
		known = append(known, addr)
		b.crossings[addr], limit = b.crossings[addr].open(now, until)
		delete(b.closing, addr)
	}
	if limit > 0 {
		b.kernel.Open(limit, known...)
		b.opened = append(b.opened, known...)
		b.poke()
	}
}

// Close implements [speaker.Bridge].
func (b *bridge) Close(addrs ...netip.Addr) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, addr := range addrs {
		if _, ok := b.crossings[addr]; ok {
			delete(b.crossings, addr)
			b.closing[addr] = true
			b.poke()
		}
	}
}

// poke wakes run.
func (b *bridge) poke() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// run does what may take its time until ctx is done. What is open then ends by itself.
func (b *bridge) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-b.wake:
		case <-timer.C:
		}
		if b.work() {
			timer.Reset(bridgeLook)
		}
	}
}

// work tells the kernel what it does not know, and reports whether to look again in a while.
func (b *bridge) work() (again bool) {
	b.mu.Lock()
	closing := slices.Collect(maps.Keys(b.closing))
	unknown, targets := b.unknown, b.targets
	opened, trouble := b.opened, b.trouble
	clear(b.closing)
	b.unknown, b.opened = false, nil
	b.mu.Unlock()

	for _, addr := range opened {
		if trouble != "" {
			break // it has been said
		}
		b.log.Info("new connections are sent on", "address", addr, "to", strings.Join(members(targets[addr]), ", "))
	}
	failed := b.close(closing)
	if unknown {
		if err := b.kernel.Prepare(addresses(targets)); err != nil {
			failed = err
			b.mu.Lock()
			b.unknown = true
			b.mu.Unlock()
		}
	}
	if err := b.prolong(time.Now()); err != nil {
		failed = err
	}
	return b.tell(failed)
}

// close closes addrs, but for those that the speaker has opened anew meanwhile.
func (b *bridge) close(addrs []netip.Addr) error {
	if len(addrs) == 0 {
		return nil
	}
	err := b.kernel.Close(addrs...)
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	for _, addr := range addrs {
		if c, ok := b.crossings[addr]; ok {
			b.kernel.Open(c.ends.Sub(now), addr)
		} else if err != nil {
			b.closing[addr] = true
		}
	}
	return err
}

// prolong goes on where connections have come, and forgets what has ended.
func (b *bridge) prolong(now time.Time) (failed error) {
	b.mu.Lock()
	crossings := maps.Clone(b.crossings)
	b.mu.Unlock()
	for addr, c := range crossings {
		if !c.due(now) {
			continue
		}
		received, err := b.kernel.Received(addr)
		if err != nil {
			failed, received = err, c.received
		}
		if b.renew(addr, c, now, received) {
			b.log.Info("new connections are no longer sent on", "address", addr, "sent", received)
		}
	}
	return failed
}

// renew has the kernel go on if connections have come, and reports whether it has ended.
func (b *bridge) renew(addr netip.Addr, c crossing, now time.Time, received uint64) (over bool) {
	next, limit := c.look(now, received)
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.crossings[addr] != c: // the speaker has asked for something else
	case limit > 0:
		b.crossings[addr] = next
		b.kernel.Open(limit, addr)
	case now.Before(c.ends):
		b.crossings[addr] = next
	default:
		delete(b.crossings, addr)
		return true
	}
	return false
}

// tell notes what the kernel says, and reports whether there is more to do.
func (b *bridge) tell(failed error) (again bool) {
	trouble := ""
	if failed != nil {
		trouble = failed.Error()
	}
	b.mu.Lock()
	known := b.trouble == trouble
	b.trouble = trouble
	again = failed != nil || len(b.crossings) > 0
	b.mu.Unlock()
	if failed != nil && !known {
		b.log.Warn("new connections may not be sent on when a VIP leaves", "err", failed)
	}
	return again
}

// status says what is done with new connections to an address that still arrive, or why nothing
// could be; empty if there is nothing to say.
func (b *bridge) status(addr netip.Addr) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	bridged := slices.ContainsFunc(b.vips, func(v config.VIP) bool { return slices.Contains(v.Addresses, addr) })
	c, open := b.crossings[addr]
	switch {
	case bridged && b.trouble != "":
		return "no bridge when it leaves: " + b.trouble
	case open && time.Now().Before(c.ends) && len(b.targets[addr]) > 0:
		return admin.Forwards + strings.Join(members(b.targets[addr]), ", ")
	}
	return ""
}
