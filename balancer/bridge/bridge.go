// Package bridge has new connections to VIPs that leave this node sent on to healthy members,
// until routers, or neighbours, have acted on the withdrawal.
package bridge

import (
	"context"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/herald-vip/herald/balancer"
	"github.com/herald-vip/herald/internal/wake"
)

// Kernel sends new connections on. All methods except Open may take their time.
type Kernel interface {
	// Prepare says to which addresses new connections would be sent on, by VIP.
	Prepare(targets map[netip.Addr][]netip.Addr) error
	// Open sends new connections to vips on from now on, for at most so long.
	Open(limit time.Duration, vips ...netip.Addr)
	// Close ends that.
	Close(vips ...netip.Addr) error
	// Received is how many new connections to vip were sent on since it was opened.
	Received(vip netip.Addr) (uint64, error)
}

// VIP is one whose new connections are to be sent on when it leaves.
type VIP struct {
	Addresses []netip.Addr
	Checks    []string // that must pass at a member for it to serve the VIP
}

// Bridge decides where new connections are sent on to, and for how long. Open and Close wait for
// nothing; what may take its time is left to Run, which holds no lock meanwhile.
type Bridge struct {
	log    *slog.Logger
	kernel Kernel
	wake   chan struct{}

	mu         sync.Mutex
	vips       []VIP
	virtual    map[netip.Addr]bool // addresses of all VIPs
	members    []balancer.Member   // others than this node
	targets    map[netip.Addr][]target
	unprepared bool // the kernel has not been told of targets
	openings   map[netip.Addr]opening
	closing    map[netip.Addr]bool      // that the kernel is to be told of
	opened     []netip.Addr             // that is yet to be logged
	began      map[netip.Addr]time.Time // when connections last began to be sent on
	fault      string                   // of the kernel
}

// New returns a Bridge that has yet to run.
func New(log *slog.Logger, kernel Kernel) *Bridge {
	return &Bridge{
		log: log, kernel: kernel, wake: make(chan struct{}, 1),
		openings: make(map[netip.Addr]opening), closing: make(map[netip.Addr]bool), began: make(map[netip.Addr]time.Time),
	}
}

// SetVIPs takes in the VIPs that are bridged, and the addresses of all VIPs.
func (b *Bridge) SetVIPs(bridged []VIP, all []netip.Addr) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.vips = bridged
	b.virtual = make(map[netip.Addr]bool)
	for _, addr := range all {
		b.virtual[addr] = true
	}
	b.chooseTargets()
}

// SetMembers takes in what the other members say of themselves.
func (b *Bridge) SetMembers(members []balancer.Member) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.members = members
	b.chooseTargets()
}

func (b *Bridge) chooseTargets() {
	targets := make(map[netip.Addr][]target)
	for _, v := range b.vips {
		for _, addr := range v.Addresses {
			to := healthy(v.Checks, addr, b.members)
			// A member that has a VIP may send on what comes to it.
			to = slices.DeleteFunc(to, func(t target) bool { return b.virtual[t.addr] })
			if len(to) > 0 {
				targets[addr] = to
			}
		}
	}
	if !maps.EqualFunc(targets, b.targets, slices.Equal[[]target]) {
		b.targets, b.unprepared = targets, true
		wake.Up(b.wake)
	}
}

// Open sends new connections to addrs on, while there are any and until a time at the latest. Those
// for which no other member serves are left as they are.
func (b *Bridge) Open(until time.Time, addrs ...netip.Addr) {
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
		b.openings[addr], limit = b.openings[addr].open(now, until)
		delete(b.closing, addr)
	}
	if limit > 0 {
		b.kernel.Open(limit, known...)
		b.opened = append(b.opened, known...)
		wake.Up(b.wake)
	}
}

// Close ends that. It is called before addrs are served here again.
func (b *Bridge) Close(addrs ...netip.Addr) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, addr := range addrs {
		if _, ok := b.openings[addr]; ok {
			delete(b.openings, addr)
			b.closing[addr] = true
			wake.Up(b.wake)
		}
	}
}

// Run does what may take its time until ctx is done. What is open then ends by itself.
func (b *Bridge) Run(ctx context.Context) {
	wake.Loop(ctx, b.wake, func() (next time.Time) {
		if b.updateKernel() {
			next = time.Now().Add(countEvery)
		}
		return next
	})
}

// updateKernel tells the kernel what it does not know, and reports whether there is more to do in a while.
func (b *Bridge) updateKernel() (again bool) {
	b.mu.Lock()
	closing := slices.Collect(maps.Keys(b.closing))
	unprepared, targets := b.unprepared, b.targets
	opened, fault := b.opened, b.fault
	if fault != "" { // which has been logged
		opened = nil
	}
	for _, addr := range opened {
		b.began[addr] = time.Now()
	}
	clear(b.closing)
	b.unprepared, b.opened = false, nil
	b.mu.Unlock()

	for _, addr := range opened {
		b.log.Info("new connections are sent on", "address", addr, "to", strings.Join(names(targets[addr]), ", "))
	}
	failed := b.closeKernel(closing)
	if unprepared {
		if err := b.kernel.Prepare(addresses(targets)); err != nil {
			failed = err
			b.mu.Lock()
			b.unprepared = true
			b.mu.Unlock()
		}
	}
	if err := b.prolong(time.Now()); err != nil {
		failed = err
	}
	return b.noteFault(failed)
}

// closeKernel closes addrs, except those that were opened anew meanwhile.
func (b *Bridge) closeKernel(addrs []netip.Addr) error {
	if len(addrs) == 0 {
		return nil
	}
	err := b.kernel.Close(addrs...)
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	for _, addr := range addrs {
		if o, ok := b.openings[addr]; ok {
			b.kernel.Open(o.ends.Sub(now), addr)
		} else if err != nil {
			b.closing[addr] = true
		}
	}
	return err
}

// prolong keeps open what connections have come for, and forgets what has ended.
func (b *Bridge) prolong(now time.Time) (failed error) {
	b.mu.Lock()
	openings := maps.Clone(b.openings)
	b.mu.Unlock()
	for addr, o := range openings {
		if !o.due(now) {
			continue
		}
		received, err := b.kernel.Received(addr)
		if err != nil {
			failed, received = err, o.received
		}
		if b.renew(addr, o, now, received) {
			b.log.Info("new connections are no longer sent on", "address", addr, "sent", received)
		}
	}
	return failed
}

// renew has the kernel go on if connections have come, and reports whether it has ended.
func (b *Bridge) renew(addr netip.Addr, o opening, now time.Time, received uint64) (over bool) {
	next, limit := o.renew(now, received)
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.openings[addr] != o: // it was opened or closed meanwhile
	case limit > 0:
		b.openings[addr] = next
		b.kernel.Open(limit, addr)
	case now.Before(o.ends):
		b.openings[addr] = next
	default:
		delete(b.openings, addr)
		return true
	}
	return false
}

// noteFault remembers what the kernel says, and reports whether there is more to do.
func (b *Bridge) noteFault(failed error) (again bool) {
	fault := ""
	if failed != nil {
		fault = failed.Error()
	}
	b.mu.Lock()
	known := b.fault == fault
	b.fault = fault
	again = failed != nil || len(b.openings) > 0
	b.mu.Unlock()
	if failed != nil && !known {
		b.log.Warn("new connections may not be sent on when a VIP leaves", "err", failed)
	}
	return again
}

// Status names the members to which new connections to an address are sent on, tells when that
// last began, and says why none could be.
func (b *Bridge) Status(addr netip.Addr) (to []string, began time.Time, fault string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	bridged := slices.ContainsFunc(b.vips, func(v VIP) bool { return slices.Contains(v.Addresses, addr) })
	o, open := b.openings[addr]
	switch {
	case bridged && b.fault != "":
		return nil, b.began[addr], b.fault
	case open && time.Now().Before(o.ends):
		return names(b.targets[addr]), b.began[addr], ""
	}
	return nil, b.began[addr], ""
}
