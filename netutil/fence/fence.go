// Package fence keeps a host from answering for virtual addresses that it does not
// hold. Whoever holds an address opens the fence for it until a given time, and opens
// again before that ends; then the kernel itself closes it, even if the process is
// frozen, starved or dead. It works by nftables of Herald's own, `arp herald` and
// `inet herald`, and touches no others.
//
// # Why it never opens late
//
// The kernel takes a timeout, which it counts from when it executes the request, not
// a time; and any while may pass between reading the clock and that. So an address
// has two locks, elements of two sets which each end by themselves, and is open only
// while both are there. They are renewed one after the other. After each the clock is
// read again: a renewal that took no longer than allowed for is proven, it ends in
// time whenever the process goes on. One lock is touched only while the other is
// proven, and so one always ends in time, whatever happens to the process, or to the
// machine in the middle of the kernel's work.
//
// A shorter way does not do: to have the batch fail by deleting an element whose
// short timeout started before the clock was read. Linux judges what has expired by
// when the batch began (6.18 does, for one), but counts new timeouts from when it comes
// to them: between the two the machine may stand still.
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

// Errors to be told apart by errors.Is.
var (
	// ErrUnsupported is New's when the kernel lacks what the fence needs of nftables,
	// or the process has no right to use it. It comes with the reason.
	ErrUnsupported = errors.New("no kernel fence")
	// ErrLate is an opening that ends too soon, or that the kernel took too long over.
	ErrLate = errors.New("too late to open the fence")
	// ErrStuck is when the kernel does not answer within a second, as while another
	// program's huge batch holds the lock of nftables, or when this process stood still
	// for so long. What is open closes in time all the same.
	ErrStuck = ruleset.ErrStuck
)

// Fence gates addresses. Its methods may be called at any time from any goroutine.
// A call ends within a few seconds even if the kernel does not answer.
type Fence struct {
	log      *slog.Logger
	kernel   kernel
	services bool             // Options.Services
	now      func() time.Time // time.Now
	calls    ruleset.Calls    // to the kernel

	mu       sync.Mutex
	guarded  map[netip.Addr]bool // by Guard
	served   map[netip.Addr]bool // by Serve
	gated    map[netip.Addr]bool // either; true: the second lock may be open too long; nil: there are no tables
	unsure   bool                // whether the kernel has what gated says
	restored uint64
	late     uint64
}

// kernel is the part of nftables that is Herald's.
type kernel interface {
	// gated reads which addresses the tables gate; none without tables.
	gated() ([]netip.Addr, error)
	// rebuild makes the tables anew, with gated closed, of which served are of Services.
	rebuild(gated, served []netip.Addr) error
	// intact is whether the tables are complete and gate exactly those.
	intact(gated, served []netip.Addr) (bool, error)
	// apply makes all changes or none. ENOENT: something is missing.
	apply([]change) error
	// remove deletes the tables, if they are there.
	remove() error
	// watch sends to told, without waiting, whenever the tables may have become
	// incomplete, until stop.
	watch(told chan<- struct{}) (stop func(), err error)
}

// Status counts what happened to a Fence.
type Status struct {
	// Gated is how many addresses are gated, open or closed.
	Gated int
	// Restored is how often the tables were put back after somebody else changed them.
	Restored uint64
	// Late is how many attempts to open were given up as too late.
	Late uint64
}

// Options adjust a Fence. The zero value is right where no addresses are of Services.
type Options struct {
	// Services is whether some may be: without it, Serve is an error.
	Services bool
	// HostPorts lets who has the address of a Service reach this host by it, at
	// ports that no Service has. See [Fence.Serve].
	HostPorts bool
}

// New makes Herald's tables. What a predecessor has gated stays gated, and is closed
// from now on.
func New(log *slog.Logger, o Options) (*Fence, error) {
	return newFence(log, &nft{opts: o}, o)
}

func newFence(log *slog.Logger, k kernel, o Options) (*Fence, error) {
	f := &Fence{
		log:      log,
		kernel:   k,
		services: o.Services,
		now:      time.Now,
		calls:    ruleset.NewCalls(ruleset.AnswerTimeout),
		gated:    make(map[netip.Addr]bool),
	}
	var left []netip.Addr
	if err := f.calls.Do(func() (err error) { left, err = k.gated(); return err }); err != nil {
		return nil, unsupported(err)
	}
	if err := f.calls.Do(func() error { return k.rebuild(left, nil) }); err != nil {
		return nil, unsupported(err)
	}
	for _, addr := range left {
		f.gated[addr] = false
	}
	return f, nil
}

// Clear deletes the tables that a killed predecessor has left, for who has no fence
// from now on: they would drop packets to its addresses for ever.
func Clear() error { return clearTables(&nft{}) }

func clearTables(k *nft) error {
	defer k.Close()
	left, err := k.left()
	if err == nil && left {
		err = k.remove()
	}
	if err != nil {
		return fmt.Errorf("delete left-over kernel fence: %w", err)
	}
	return nil
}

// unsupported says why there is no fence to be had, if err is such a reason.
func unsupported(err error) error {
	var reason string
	switch {
	case errors.Is(err, ruleset.ErrNotRoot):
		return fmt.Errorf("%w: %w", ErrUnsupported, err)
	case errors.Is(err, syscall.EPERM), errors.Is(err, syscall.EACCES):
		reason = "nftables needs the capability CAP_NET_ADMIN"
	case errors.Is(err, syscall.EPROTONOSUPPORT), errors.Is(err, syscall.EAFNOSUPPORT), errors.Is(err, syscall.EINVAL):
		reason = "the kernel has no nftables (CONFIG_NF_TABLES, module nf_tables)"
	case errors.Is(err, syscall.EOPNOTSUPP), errors.Is(err, syscall.ENOENT):
		reason = "the kernel's nftables lacks arp, inet or fib (CONFIG_NF_TABLES_ARP, _INET, CONFIG_NFT_FIB_INET)"
	default:
		return fmt.Errorf("set up kernel fence: %w", err)
	}
	return fmt.Errorf("%w: %s: %w", ErrUnsupported, reason, err)
}

// Guard gates exactly addrs from now on, and those of Serve, all at once. What is open
// and stays gated stays open; what is new is closed. After an error Guard is to be
// called again.
func (f *Fence) Guard(addrs ...netip.Addr) error {
	guarded, err := gateable(addrs)
	if err != nil {
		return fmt.Errorf("guard %w", err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.guarded = guarded
	if err := f.gate(f.served); err != nil {
		return fmt.Errorf("guard: %w", err)
	}
	return nil
}

// gateable is addrs as a set.
func gateable(addrs []netip.Addr) (map[netip.Addr]bool, error) {
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

// gate gates what is guarded and what is served, which is replaced by that.
func (f *Fence) gate(served map[netip.Addr]bool) error {
	want := make(map[netip.Addr]bool, len(f.guarded)+len(served))
	for _, addrs := range []map[netip.Addr]bool{f.guarded, served} {
		for addr := range addrs {
			want[addr] = f.gated[addr]
		}
	}
	if f.gated == nil {
		f.served = served
		if err := f.calls.Do(func() error { return f.kernel.rebuild(keys(want), keys(served)) }); err != nil {
			return err
		}
		f.gated = want
		return nil
	}
	if err := f.check(); err != nil {
		return err
	}
	changes := append(guarding(f.gated, want), serving(f.served, served)...)
	f.gated, f.served = want, served // at once, so that what may have to be put back is this
	err := f.apply(changes)
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
	if err := f.apply(taking(addrs, answer, accept, until)); err != nil {
		return fmt.Errorf("close: %w", err)
	}
	for _, addr := range addrs {
		if _, ok := f.gated[addr]; ok {
			f.gated[addr] = false
		}
	}
	return nil
}

// Check puts the tables back if somebody else removed them or a part of them. Every
// address is closed then, until it is opened again.
func (f *Fence) Check() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.check(); err != nil {
		return fmt.Errorf("check kernel fence: %w", err)
	}
	return nil
}

// Remove deletes Herald's tables, so that nothing is gated any more, until Guard.
func (f *Fence) Remove() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.calls.Do(f.kernel.remove); err != nil {
		return fmt.Errorf("remove kernel fence: %w", err)
	}
	f.guarded, f.served, f.gated, f.unsure = nil, nil, nil, false
	return nil
}

// Status tells what happened so far.
func (f *Fence) Status() Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	return Status{Gated: len(f.gated), Restored: f.restored, Late: f.late}
}

// check makes sure that the kernel has what gated says.
func (f *Fence) check() error {
	if f.gated == nil {
		return nil
	}
	addrs, served := keys(f.gated), keys(f.served)
	for range 2 { // twice, as what is read while others change theirs may be incomplete
		var ok bool
		if err := f.calls.Do(func() (err error) { ok, err = f.kernel.intact(addrs, served); return err }); err != nil {
			return err
		}
		if ok {
			f.unsure = false
			return nil
		}
	}
	if err := f.calls.Do(func() error { return f.kernel.rebuild(addrs, served) }); err != nil {
		f.unsure = true
		return err
	}
	for addr := range f.gated {
		f.gated[addr] = false
	}
	f.unsure = false
	f.restored++
	f.log.Warn("put back Herald's nftables, which were incomplete; every address is closed until it is opened again", "addresses", len(addrs))
	return nil
}

// apply makes all changes or none. If something is missing in the kernel it is put back before.
func (f *Fence) apply(changes []change) error {
	if len(changes) == 0 {
		return nil
	}
	if f.unsure {
		if err := f.check(); err != nil {
			return err
		}
	}
	err := f.calls.Do(func() error { return f.kernel.apply(changes) })
	if errors.Is(err, syscall.ENOENT) {
		if err := f.check(); err != nil {
			return err
		}
		err = f.calls.Do(func() error { return f.kernel.apply(changes) })
	}
	return err
}
