// Package bridge forwards new connections to VIPs that leave this node to healthy members,
// until routers or neighbours have acted on the withdrawal.
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

// Kernel forwards new connections. All methods except Open may block.
type Kernel interface {
	// Prepare sets the addresses to forward new connections to, by VIP.
	Prepare(targets map[netip.Addr][]netip.Addr) error
	// Open forwards new connections to vips from now on, for at most limit.
	Open(limit time.Duration, vips ...netip.Addr)
	// Close stops forwarding.
	Close(vips ...netip.Addr) error
	// Received returns how many new connections to vip were forwarded since it was opened.
	Received(vip netip.Addr) (uint64, error)
}

// VIP is a VIP to forward new connections of when it leaves.
type VIP struct {
	Addresses []netip.Addr
	Checks    []string // a member serves the VIP while all pass there
}

// Bridge decides where to forward new connections, and for how long. Open and Close never block. Run makes the blocking
// calls, and holds no lock meanwhile.
type Bridge struct {
	log    *slog.Logger
	kernel Kernel
	wake   chan struct{}

	mu         sync.Mutex
	vips       []VIP
	virtual    map[netip.Addr]bool // addresses of all VIPs
	members    []balancer.Member   // without this node
	targets    map[netip.Addr][]target
	unprepared bool // the kernel does not have targets yet
	openings   map[netip.Addr]opening
	closing    map[netip.Addr]bool      // to close in the kernel
	opened     []netip.Addr             // to log
	began      map[netip.Addr]time.Time // when forwarding last began
	fault      string                   // error of the kernel
}

// New returns a Bridge. Call Run to start it.
func New(log *slog.Logger, kernel Kernel) *Bridge {
	return &Bridge{
		log: log, kernel: kernel, wake: make(chan struct{}, 1),
		openings: make(map[netip.Addr]opening), closing: make(map[netip.Addr]bool), began: make(map[netip.Addr]time.Time),
	}
}

// SetVIPs sets the VIPs to bridge, and the addresses of all VIPs.
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

// SetMembers sets the state of the other members.
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
			list := healthy(v.Checks, addr, b.members)
			// A member would forward connections to a VIP again.
			list = slices.DeleteFunc(list, func(t target) bool { return b.virtual[t.addr] })
			if len(list) > 0 {
				targets[addr] = list
			}
		}
	}
	if !maps.EqualFunc(targets, b.targets, slices.Equal[[]target]) {
		b.targets, b.unprepared = targets, true
		wake.Up(b.wake)
	}
}

// Open forwards new connections to addrs while they arrive, at the latest until a time. It ignores addresses that no other
// member serves.
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

// Close stops forwarding. Call it before addrs are served here again.
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

// Run makes the blocking calls until ctx is done. After that open addresses close by themselves.
func (b *Bridge) Run(ctx context.Context) {
	wake.Loop(ctx, b.wake, func() (next time.Time) {
		if b.updateKernel() {
			next = time.Now().Add(countEvery)
		}
		return next
	})
}

// updateKernel brings the kernel up to date, and reports whether to call it again after countEvery.
func (b *Bridge) updateKernel() (again bool) {
	b.mu.Lock()
	closing := slices.Collect(maps.Keys(b.closing))
	unprepared, targets := b.unprepared, b.targets
	opened, fault := b.opened, b.fault
	if fault != "" { // logged already
		opened = nil
	}
	for _, addr := range opened {
		b.began[addr] = time.Now()
	}
	clear(b.closing)
	b.unprepared, b.opened = false, nil
	b.mu.Unlock()

	for _, addr := range opened {
		b.log.Info("bridge opened: forwarding new connections", "address", addr, "to", strings.Join(names(targets[addr]), ", "))
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

// closeKernel closes addrs, and opens those again that were opened meanwhile.
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

// prolong keeps addresses with new connections open, and forgets closed ones.
func (b *Bridge) prolong(now time.Time) (failed error) {
	b.mu.Lock()
	openings := maps.Clone(b.openings)
	b.mu.Unlock()
	for addr, o := range openings {
		if now.Sub(o.counted) < countEvery && now.Before(o.ends) {
			continue // counting would delay the opening
		}
		received, err := b.kernel.Received(addr)
		if err != nil {
			failed, received = err, o.received
		}
		if b.renew(addr, o, now, received) {
			b.log.Info("bridge closed: no more new connections", "address", addr, "forwarded", received)
		}
	}
	return failed
}

// renew keeps an address open if connections arrived, and reports whether it has closed.
func (b *Bridge) renew(addr netip.Addr, o opening, now time.Time, received uint64) (over bool) {
	next, limit := o.renew(now, received)
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.openings[addr] != o: // opened or closed meanwhile
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

// noteFault records an error of the kernel, and reports whether there is more to do.
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
		b.log.Warn("bridge not ready: new connections may fail when a VIP leaves", "err", failed)
	}
	return again
}

// Status returns the members that new connections to an address are forwarded to, when that last began, and the error
// that prevents it.
func (b *Bridge) Status(addr netip.Addr) (members []string, began time.Time, fault string) {
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

const (
	// quiet is how long after the last new connection the bridge closes. The kernel has the timeout, so the bridge
	// also closes after this process ends.
	quiet = 2 * time.Second
	// countEvery is the interval between counts of connections.
	countEvery = time.Second
)

// target is a member to forward new connections to.
type target struct {
	member string
	addr   netip.Addr // its own address
}

// opening is an address with forwarding of new connections.
type opening struct {
	until    time.Time // latest end
	ends     time.Time // end in the kernel
	counted  time.Time // when it was opened, or last counted
	received uint64    // connections at the last count
}

// open returns o opened until a time, and the limit for the kernel.
func (o opening) open(now, until time.Time) (opening, time.Duration) {
	limit := min(quiet, until.Sub(now))
	return opening{until: until, ends: now.Add(limit), counted: now, received: o.received}, limit
}

// renew returns o after a count, and the new limit for the kernel; 0 lets it close.
func (o opening) renew(now time.Time, received uint64) (opening, time.Duration) {
	limit := min(quiet, o.until.Sub(now))
	next := o
	next.counted, next.received = now, received
	if received == o.received || limit <= 0 {
		return next, 0
	}
	next.ends = now.Add(limit)
	return next, limit
}

// healthy returns the members that serve a VIP with these checks, and have an address of the VIP's family that the kernel
// can forward to. One bad address would make the kernel refuse all.
func healthy(checks []string, vip netip.Addr, members []balancer.Member) []target {
	var out []target
	for _, m := range members {
		own := m.Addr.Unmap()
		if m.Serves(checks) && own.Is4() == vip.Is4() && own.IsGlobalUnicast() && own.Zone() == "" {
			out = append(out, target{m.Name, own})
		}
	}
	return out
}

func names(targets []target) []string {
	out := make([]string, len(targets))
	for i, t := range targets {
		out[i] = t.member
	}
	return out
}

func addresses(targets map[netip.Addr][]target) map[netip.Addr][]netip.Addr {
	out := make(map[netip.Addr][]netip.Addr, len(targets))
	for vip, list := range targets {
		for _, t := range list {
			out[vip] = append(out[vip], t.addr)
		}
	}
	return out
}
