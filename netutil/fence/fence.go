// Package fence keeps a host from answering for virtual addresses that it does not
// hold. The holder of an address opens the fence for it until a given time, and opens
// again before that ends; then the kernel itself closes it, even if the process is
// frozen, starved or dead, unless somebody else flushes the tables then. It works by nftables of Herald's own, `arp herald` and
// `inet herald`, and touches no others.
//
// # Why it never opens late
//
// The kernel takes a timeout, which it counts from when it executes the request, not
// a time; and any while may pass between reading the clock and that. So an address
// has two locks, elements of two sets which each end by themselves, and is open only
// while both are there. The fence renews one after the other. After each it reads the
// clock again: a renewal that took no longer than the allowance is proven, it ends in
// time whenever the process goes on. The fence touches one lock only while the other is
// proven, and so one always ends in time, whatever happens to the process, or to the
// machine in the middle of the kernel's work.
//
// One lock is not enough, with a batch that fails by deleting an element whose short
// timeout started before the clock was read: Linux (6.18, for one) decides by the start
// of the batch what has expired, but counts new timeouts from when it comes to them, and
// the machine may stand still between the two.
package fence

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/herald-vip/herald/netutil/ruleset"
)

var (
	// ErrUnsupported means that the kernel lacks what the fence needs of nftables, or
	// that the process has no right to use it. The reason follows in the text.
	ErrUnsupported = errors.New("no kernel fence")
	// ErrLate means that an opening ends too soon, or that the kernel took too long for it.
	ErrLate = errors.New("too late to open the fence")
)

// Fence gates addresses. Its methods may be called at any time from any goroutine.
// A call ends within a few seconds even if the kernel does not answer, with
// [ruleset.ErrStuck]; what is open closes in time all the same.
type Fence struct {
	log      *slog.Logger
	kernel   Kernel
	services bool             // Options.Services
	now      func() time.Time // time.Now
	calls    ruleset.Calls    // to the kernel

	mu       sync.Mutex
	guarded  map[netip.Addr]bool      // by Guard
	served   map[netip.Addr]bool      // by Serve
	gated    map[netip.Addr]bool      // either; true: the second lock may be open too long; nil: there are no tables
	open     map[netip.Addr]time.Time // until when those are that Open has opened
	bare     map[netip.Addr]bool      // those of gated that the tables do not gate yet: see putBack
	unsure   bool                     // the kernel may not have what gated says
	restored uint64
	late     uint64
}

// Kernel is the part of nftables that is Herald's.
type Kernel interface {
	// Gated reads which addresses the tables gate; none without tables.
	Gated() ([]netip.Addr, error)
	// Rebuild makes the tables anew, with gated closed, of which served are of Services.
	Rebuild(gated, served []netip.Addr) error
	// Intact reports whether the tables are complete, in force, and gate exactly those.
	Intact(gated, served []netip.Addr) (bool, error)
	// Apply makes all changes or none. ENOENT: something is missing.
	Apply([]Change) error
	// Remove deletes the tables, if they are there.
	Remove() error
	// Watch sends to changed, without waiting, whenever the tables may have become
	// incomplete, until stop.
	Watch(changed chan<- struct{}) (stop func(), err error)
}

// Options adjust a Fence. The zero value is right where no addresses are of Services.
type Options struct {
	// Services allows Serve.
	Services bool
	// HostPorts lets packets to the address of a Service reach this host at ports that
	// no Service has. See [Fence.Serve].
	HostPorts bool
}

// New makes Herald's tables. It closes what a predecessor has gated, and keeps it gated.
func New(log *slog.Logger, o Options) (*Fence, error) {
	return NewOver(log, &nft{opts: o}, o)
}

// NewOver is New over a kernel of its caller's.
func NewOver(log *slog.Logger, k Kernel, o Options) (*Fence, error) {
	f := &Fence{
		log:      log,
		kernel:   k,
		services: o.Services,
		now:      time.Now,
		calls:    ruleset.NewCalls(ruleset.AnswerTimeout),
		gated:    make(map[netip.Addr]bool),
		open:     make(map[netip.Addr]time.Time),
	}
	var left []netip.Addr
	if err := f.calls.Do(func() (err error) { left, err = k.Gated(); return err }); err != nil {
		return nil, explainUnsupported(err)
	}
	if err := f.calls.Do(func() error { return k.Rebuild(left, nil) }); err != nil {
		return nil, explainUnsupported(err)
	}
	for _, addr := range left {
		f.gated[addr] = false
	}
	return f, nil
}

// Clear deletes the tables that a killed predecessor has left. A process without a fence
// calls it, as the tables would drop packets to their addresses for ever.
func Clear() error { return clearTables(&nft{}) }

func clearTables(k *nft) error {
	defer k.Close()
	left, err := k.hasTables()
	if err == nil && left {
		err = k.Remove()
	}
	if err != nil {
		return fmt.Errorf("delete left-over kernel fence: %w", err)
	}
	return nil
}

// explainUnsupported makes err an ErrUnsupported if it means that a fence is impossible here.
func explainUnsupported(err error) error {
	const lacks = "arp, inet or fib (CONFIG_NF_TABLES_ARP, _INET, CONFIG_NFT_FIB_INET)"
	return ruleset.Unsupported(err, ErrUnsupported, lacks, "set up kernel fence")
}

// Guard gates exactly addrs from now on, and those of Serve, all at once. What is open
// and stays gated stays open; what is new is closed. After an error the caller calls
// Guard again.
func (f *Fence) Guard(addrs ...netip.Addr) error {
	guarded, err := addrSet(addrs)
	if err != nil {
		return fmt.Errorf("guard %w", err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.guarded = guarded
	if err := f.updateGated(f.served); err != nil {
		return fmt.Errorf("guard: %w", err)
	}
	return nil
}

// addrSet makes a set of addrs, all of which must be such as can be gated.
func addrSet(addrs []netip.Addr) (map[netip.Addr]bool, error) {
	out := make(map[netip.Addr]bool, len(addrs))
	for _, addr := range addrs {
		addr = addr.Unmap()
		if !addr.IsValid() || addr.Zone() != "" || addr.IsUnspecified() {
			return nil, fmt.Errorf("%q: not an address to gate", addr)
		}
		out[addr] = true
	}
	return out, nil
}

// updateGated replaces the served addresses, and gates what is guarded or served.
func (f *Fence) updateGated(served map[netip.Addr]bool) error {
	want := make(map[netip.Addr]bool, len(f.guarded)+len(served))
	for _, addrs := range []map[netip.Addr]bool{f.guarded, served} {
		for addr := range addrs {
			want[addr] = f.gated[addr]
		}
	}
	if f.gated == nil {
		f.served = served
		if err := f.calls.Do(func() error { return f.kernel.Rebuild(keys(want), keys(served)) }); err != nil {
			return err
		}
		f.gated = want
		return nil
	}
	if err := f.checkTables(); err != nil {
		return err
	}
	changes := append(diffGated(f.gated, want), diffServed(f.served, served)...)
	f.gated, f.served = want, served // before apply, which may have to put them back
	maps.DeleteFunc(f.bare, func(addr netip.Addr, _ bool) bool { _, ok := want[addr]; return !ok })
	maps.DeleteFunc(f.open, func(addr netip.Addr, _ time.Time) bool { _, ok := want[addr]; return !ok })
	err := f.applyChanges(changes)
	f.unsure = f.unsure || err != nil
	return err
}

func keys(addrs map[netip.Addr]bool) []netip.Addr { return slices.Collect(maps.Keys(addrs)) }

// Close ends answering for addrs and accepting packets to them at once. After an
// error they close when what they were opened for ends.
func (f *Fence) Close(addrs ...netip.Addr) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.gated == nil {
		return nil // there is nothing to close
	}
	addrs = distinct(addrs)
	for _, addr := range addrs {
		delete(f.open, addr) // first, or it would be left open if the tables are gone
	}
	if err := f.applyGating(addrs, removals(addrs, answer, accept, until)); err != nil {
		return fmt.Errorf("close: %w", err)
	}
	for _, addr := range addrs {
		if _, ok := f.gated[addr]; ok {
			f.gated[addr] = false
		}
	}
	return nil
}

// Check puts the tables back if another program removed them or a part of them, or made them
// dormant. That closes every address until it is opened again, except that after a flush those that were open are gated
// when they have been, or at the next Check.
func (f *Fence) Check() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	late := keys(f.bare) // nobody has opened them
	err := f.checkTables()
	if err == nil {
		err = f.applyGating(late, nil)
	}
	if err != nil {
		return fmt.Errorf("check kernel fence: %w", err)
	}
	return nil
}

// Try says why an opening would fail now: it puts the tables back if they are incomplete, and
// has the kernel set a gated address as it is.
func (f *Fence) Try() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	err := f.checkTables()
	for addr := range f.gated {
		if err == nil && !f.bare[addr] {
			err = f.applyChanges([]Change{{vips, addr, forever}})
			break
		}
	}
	if err != nil {
		return fmt.Errorf("try kernel fence: %w", err)
	}
	return nil
}

// Remove deletes Herald's tables, so that nothing is gated until Guard.
func (f *Fence) Remove() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.calls.Do(f.kernel.Remove); err != nil {
		return fmt.Errorf("remove kernel fence: %w", err)
	}
	f.guarded, f.served, f.gated, f.bare, f.unsure = nil, nil, nil, nil, false
	clear(f.open)
	return nil
}

// timesRestored is how often the fence put back tables that another program had changed.
func (f *Fence) timesRestored() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.restored
}

// checkTables makes sure that the kernel has what gated says.
func (f *Fence) checkTables() error {
	if f.gated == nil {
		return nil
	}
	served := keys(f.served)
	addrs := f.clothed()
	for range 2 { // twice, as what is read while others change theirs may be incomplete
		var ok bool
		if err := f.calls.Do(func() (err error) { ok, err = f.kernel.Intact(addrs, served); return err }); err != nil {
			return err
		}
		if ok {
			f.unsure = false
			return nil
		}
	}
	return f.putBack(served)
}

// putBack makes the tables anew. What they held closes, until it is opened again, except where they were gone: then all addresses
// have been open since, and to close those that are to be open would only lose packets. Their locks are renewed first, and then they
// are gated, by renewLocks, or at the next Check if nobody opens them. Both locks are proven all the same. A process that
// stops in between leaves them open, as one does that stops before it has put the tables back.
func (f *Fence) putBack(served []netip.Addr) error {
	var left []netip.Addr
	err := f.calls.Do(func() (err error) { left, err = f.kernel.Gated(); return err })
	f.bare = make(map[netip.Addr]bool)
	for addr, end := range f.open {
		if _, ok := f.gated[addr]; ok && err == nil && len(left) == 0 && end.Sub(f.now()) >= allowance+slack+shortest {
			f.bare[addr] = true
		}
	}
	addrs := f.clothed()
	if err := f.calls.Do(func() error { return f.kernel.Rebuild(addrs, served) }); err != nil {
		f.unsure = true
		return err
	}
	for addr := range f.gated {
		f.gated[addr] = false
	}
	f.unsure = false
	f.restored++
	f.log.Warn("put back Herald's nftables, which somebody had changed or made dormant", "closed", len(addrs), "open", len(f.bare))
	return nil
}

// clothed are the addresses that the tables gate.
func (f *Fence) clothed() []netip.Addr {
	return slices.DeleteFunc(keys(f.gated), func(addr netip.Addr) bool { return f.bare[addr] })
}

// applyGating makes all changes or none, and gates those of addrs that are not yet.
func (f *Fence) applyGating(addrs []netip.Addr, changes []Change) error {
	gating := slices.DeleteFunc(slices.Clone(addrs), func(addr netip.Addr) bool { return !f.bare[addr] })
	if err := f.applyChanges(append(changes, insertions(forever, gating, vips)...)); err != nil {
		return err
	}
	for _, addr := range gating {
		delete(f.bare, addr)
	}
	return nil
}

// applyChanges makes all changes or none. It first puts back what is missing in the kernel.
func (f *Fence) applyChanges(changes []Change) error {
	if len(changes) == 0 {
		return nil
	}
	if f.unsure {
		if err := f.checkTables(); err != nil {
			return err
		}
	}
	err := f.calls.Do(func() error { return f.kernel.Apply(changes) })
	if errors.Is(err, syscall.ENOENT) {
		if err := f.checkTables(); err != nil {
			return err
		}
		err = f.calls.Do(func() error { return f.kernel.Apply(changes) })
	}
	return err
}
