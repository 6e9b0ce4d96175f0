// Package fence stops a host from answering for virtual addresses that it does not hold. It filters these addresses in
// nftables tables of its own, `arp herald` and `inet herald`, and touches no other tables. The holder of an address
// opens it until a given time, and renews that before the time comes. Otherwise the kernel closes the address, even if
// the process is frozen, starved or dead, unless another program flushes the tables.
//
// # Why no address is open too long
//
// The kernel takes a timeout, not a time, and counts it from the execution of the request. Any
// time may pass between reading the clock and that moment. So each address has two locks:
// elements of two sets, which expire independently. The address is open only while both exist.
//
// The fence renews one lock after the other, and reads the clock again after each. A renewal that took no longer than
// the allowance is confirmed: its lock expires in time, however long the process stops afterwards. The fence touches
// one lock only while the other is confirmed. So one lock always expires in time, even if the process or the machine
// stops in the middle of a kernel call.
//
// One lock does not suffice, even if its batch also deletes an element with a short timeout that began before the clock
// was read, to fail when it is late. Linux (6.18, for one) decides at the start of a batch which elements have expired,
// but starts new timeouts when it reaches them. The machine may stop between the two.
package fence

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"github.com/herald-vip/herald/netutil/ruleset"
)

var (
	// ErrUnsupported means that the kernel lacks features that the fence needs, or that the
	// process lacks the right to use nftables. The reason follows in the text.
	ErrUnsupported = errors.New("no kernel fence")
	// ErrLate means that too little time is left for an opening, or that the kernel took too long for it.
	ErrLate = errors.New("too late to open the fence")
)

// Fence filters addresses. Any goroutine may call its methods at any time. If the kernel does not
// answer, a call returns [ruleset.ErrStuck] within a few seconds; open addresses still close in time.
type Fence struct {
	log    *slog.Logger
	kernel Kernel
	opts   Options
	now    func() time.Time // time.Now
	keeper *ruleset.Keeper  // its mutex guards the fields below

	vips        map[netip.Addr]bool // of Filter
	services    map[netip.Addr]bool // of FilterServices
	filtered    map[netip.Addr]bool // both; true: second lock unconfirmed, may last too long. Nil without tables.
	ends        map[netip.Addr]ends // latest times that Open and Accept asked for since Close
	pending     map[netip.Addr]bool // filtered addresses without an installed filter yet, see putBack
	unconfirmed bool                // a change failed: the tables may differ from filtered.
	restored    uint64              // times that the tables were put back
	late        uint64              // renewals that came too late
}

// ends are the times until which an address may be open for answering, and for accepting packets; zero: it may not.
type ends struct{ answer, accept time.Time }

// Kernel reads and writes the fence's nftables tables.
type Kernel interface {
	// Filtered returns the addresses that the tables filter; none without tables.
	Filtered() ([]netip.Addr, error)
	// Rebuild makes the tables anew. They filter the given addresses, all closed; services are the addresses of Services
	// among them.
	Rebuild(filtered, services []netip.Addr) error
	// Intact reports whether the tables are complete, in force, and filter exactly these addresses.
	Intact(filtered, services []netip.Addr) (bool, error)
	// Locks returns the elements of the sets of locks that have not expired, with the remaining time of each.
	Locks() ([]Change, error)
	// Apply applies all changes or none. The error is ENOENT if a table or set is missing.
	Apply([]Change) error
	// Remove deletes the tables if they exist.
	Remove() error
	// Watch wakes changed whenever the tables may have become incomplete, until stop.
	Watch(changed chan<- struct{}) (stop func(), err error)
}

// Options adjust a Fence. The zero value suits hosts that announce no Services.
type Options struct {
	// Services allows FilterServices.
	Services bool
	// HostPorts lets packets to a Service's address reach ports of this host that no
	// Service claims. See [Fence.FilterServices].
	HostPorts bool
}

// New makes the tables. Addresses that a previous process filtered are closed, and stay filtered until Filter.
func New(log *slog.Logger, o Options) (*Fence, error) {
	return NewOver(log, &nft{opts: o}, o)
}

// NewOver is New with the caller's Kernel.
func NewOver(log *slog.Logger, k Kernel, o Options) (*Fence, error) {
	f := &Fence{
		log:      log,
		kernel:   k,
		opts:     o,
		now:      time.Now,
		keeper:   ruleset.NewKeeper(ruleset.AnswerTimeout),
		filtered: make(map[netip.Addr]bool),
		ends:     make(map[netip.Addr]ends),
	}
	var left []netip.Addr
	if err := f.keeper.Call(func() (err error) { left, err = k.Filtered(); return err }); err != nil {
		return nil, explainUnsupported(err)
	}
	if err := f.keeper.Call(func() error { return k.Rebuild(left, nil) }); err != nil {
		return nil, explainUnsupported(err)
	}
	for _, addr := range left {
		f.filtered[addr] = false
	}
	return f, nil
}

// Clear deletes tables that a killed process left. A process without a fence calls it: otherwise the
// tables would drop packets to their addresses for ever.
func Clear() error { return clearTables(&nft{}) }

func clearTables(k *nft) error {
	defer k.Close()
	left, err := k.Exist(bothTables()...)
	if err == nil && left {
		err = k.Remove()
	}
	return failed("delete the left-over kernel fence", err)
}

// failed adds the failed task to an error; nil stays nil.
func failed(task string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", task, err)
}

// explainUnsupported returns an ErrUnsupported if err means that this host cannot have a fence.
func explainUnsupported(err error) error {
	const lacks = "arp, inet or fib (CONFIG_NF_TABLES_ARP, _INET, CONFIG_NFT_FIB_INET)"
	return ruleset.Unsupported(err, ErrUnsupported, lacks, "set up kernel fence")
}

// Filter replaces the VIPs to filter, in one batch; the addresses of FilterServices are filtered too. Open
// addresses that stay filtered stay open. New ones are closed. After an error call Filter again.
func (f *Fence) Filter(addrs ...netip.Addr) error {
	vips, err := addrSet(addrs)
	if err != nil {
		return fmt.Errorf("filter %w", err)
	}
	f.keeper.Lock()
	defer f.keeper.Unlock()
	f.vips = vips
	return failed("filter", f.updateFiltered(f.services))
}

// addrSet returns a set of addrs. It fails if one of them cannot be filtered.
func addrSet(addrs []netip.Addr) (map[netip.Addr]bool, error) {
	out := make(map[netip.Addr]bool, len(addrs))
	for _, addr := range addrs {
		addr = addr.Unmap()
		if !addr.IsValid() || addr.Zone() != "" || addr.IsUnspecified() {
			return nil, fmt.Errorf("%q: want a valid address without a zone", addr)
		}
		out[addr] = true
	}
	return out, nil
}

// updateFiltered replaces the Services' addresses, and filters these and the VIPs.
func (f *Fence) updateFiltered(services map[netip.Addr]bool) error {
	want := make(map[netip.Addr]bool, len(f.vips)+len(services))
	for _, addrs := range []map[netip.Addr]bool{f.vips, services} {
		for addr := range addrs {
			want[addr] = f.filtered[addr]
		}
	}
	if f.filtered == nil {
		f.services = services
		if err := f.keeper.Call(func() error { return f.kernel.Rebuild(keys(want), keys(services)) }); err != nil {
			return err
		}
		f.filtered = want
		return nil
	}
	if err := f.checkTables(); err != nil {
		return err
	}
	changes := append(diffFiltered(f.filtered, want), diffServices(f.services, services)...)
	f.filtered, f.services = want, services // set first: applyChanges may have to put them back
	maps.DeleteFunc(f.pending, func(addr netip.Addr, _ bool) bool { _, ok := want[addr]; return !ok })
	maps.DeleteFunc(f.ends, func(addr netip.Addr, _ ends) bool { _, ok := want[addr]; return !ok })
	err := f.applyChanges(changes)
	f.unconfirmed = f.unconfirmed || err != nil
	return err
}

func keys(addrs map[netip.Addr]bool) []netip.Addr { return slices.Collect(maps.Keys(addrs)) }

// Close stops answering for addrs and accepting their packets at once. After an error they
// close when their opening ends.
func (f *Fence) Close(addrs ...netip.Addr) error {
	f.keeper.Lock()
	defer f.keeper.Unlock()
	if f.filtered == nil {
		return nil // without tables
	}
	addrs = distinct(addrs)
	for _, addr := range addrs {
		delete(f.ends, addr) // set first: otherwise putBack would leave the address open
	}
	if err := f.installFilters(addrs, removals(addrs, answer, accept, until)); err != nil {
		return fmt.Errorf("close: %w", err)
	}
	for _, addr := range addrs {
		if _, ok := f.filtered[addr]; ok {
			f.filtered[addr] = false
		}
	}
	return nil
}

// Check puts the tables back if another program removed parts of them or made them dormant. It does the same if saved locks
// that were loaded open an address for longer than Open and Accept did. That closes every address until it is opened again.
// But when all tables were gone, filters of open addresses are pending: the next opening installs them, or else the next Check.
func (f *Fence) Check() error {
	f.keeper.Lock()
	defer f.keeper.Unlock()
	late := keys(f.pending) // not opened since the last Check
	err := f.checkTables()
	if err == nil {
		err = f.installFilters(late, nil)
	}
	return failed("check kernel fence", err)
}

// Try returns the error that an opening would return now. It puts the tables back if they are
// incomplete, and writes the filter of one address again without changing it.
func (f *Fence) Try() error {
	f.keeper.Lock()
	defer f.keeper.Unlock()
	err := f.checkTables()
	for addr := range f.filtered {
		if err == nil && !f.pending[addr] {
			err = f.applyChanges([]Change{{vips, addr, forever}})
			break
		}
	}
	return failed("try kernel fence", err)
}

// Remove deletes the tables. No address is filtered until the next Filter or FilterServices.
func (f *Fence) Remove() error {
	f.keeper.Lock()
	defer f.keeper.Unlock()
	if err := f.keeper.Call(f.kernel.Remove); err != nil {
		return fmt.Errorf("remove kernel fence: %w", err)
	}
	f.vips, f.services, f.filtered, f.pending, f.unconfirmed = nil, nil, nil, nil, false
	clear(f.ends)
	return nil
}

// timesRestored returns how often the fence put its tables back.
func (f *Fence) timesRestored() uint64 {
	f.keeper.Lock()
	defer f.keeper.Unlock()
	return f.restored
}

// checkTables puts the tables back if they differ from the installed filters.
func (f *Fence) checkTables() error {
	if f.filtered == nil {
		return nil
	}
	services := keys(f.services)
	addrs := f.installed()
	for range 2 { // a reading may be incomplete while other programs change their tables
		var ok bool
		var locks []Change
		now := f.now()
		if err := f.keeper.Call(func() (err error) {
			if ok, err = f.kernel.Intact(addrs, services); ok {
				locks, err = f.kernel.Locks()
			}
			return err
		}); err != nil {
			return err
		}
		if ok && !f.openTooLong(now, locks) {
			f.unconfirmed = false
			return nil
		}
	}
	return f.putBack(services)
}

// openTooLong reports whether an address is open for longer than its latest end. Another program then wrote a lock, as
// one of the fence's own always expires in time. A confirmed second lock must not outlast that end either: the next
// renewal of the first relies on it. The locks were read after now.
func (f *Fence) openTooLong(now time.Time, locks []Change) bool {
	last := make(map[Change]time.Time) // ends by set and address; the tables may differ
	for _, l := range locks {
		key := Change{Set: l.Set, Addr: l.Addr}
		last[key] = later(last[key], now.Add(l.Lasts))
	}
	for _, addr := range f.installed() {
		end, second := f.ends[addr], last[Change{Set: until, Addr: addr}]
		if !f.filtered[addr] && second.After(end.accept) {
			return true
		}
		for first, limit := range map[Set]time.Time{answer: end.answer, accept: end.accept} {
			if second.After(limit) && last[Change{Set: first, Addr: addr}].After(limit) {
				return true
			}
		}
	}
	return false
}

// putBack makes the tables anew, with every address closed until it is opened again. There is one exception: if all tables were
// gone, every address has been open since, and closing the addresses of a live opening would only lose packets. Their filters stay
// pending: renewLocks renews both locks, confirmed as always, and then installs the filter. Check installs it if no opening
// follows. A process that stops before that leaves these addresses open, as if it had stopped before putBack.
func (f *Fence) putBack(services []netip.Addr) error {
	var left []netip.Addr
	err := f.keeper.Call(func() (err error) { left, err = f.kernel.Filtered(); return err })
	f.pending = make(map[netip.Addr]bool)
	for addr, end := range f.ends {
		if _, ok := f.filtered[addr]; ok && err == nil && len(left) == 0 && end.answer.Sub(f.now()) >= allowance+slack+shortest {
			f.pending[addr] = true
		}
	}
	addrs := f.installed()
	if err := f.keeper.Call(func() error { return f.kernel.Rebuild(addrs, services) }); err != nil {
		f.unconfirmed = true
		return err
	}
	for addr := range f.filtered {
		f.filtered[addr] = false
	}
	f.unconfirmed = false
	f.restored++
	f.log.Warn("put back Herald's nftables tables after another program changed them", "closed", len(addrs), "open", len(f.pending))
	return nil
}

// installed returns the addresses with a filter in the tables.
func (f *Fence) installed() []netip.Addr {
	return slices.DeleteFunc(keys(f.filtered), func(addr netip.Addr) bool { return f.pending[addr] })
}

// installFilters applies all changes, and installs the pending filters of addrs, or does neither.
func (f *Fence) installFilters(addrs []netip.Addr, changes []Change) error {
	pending := slices.DeleteFunc(slices.Clone(addrs), func(addr netip.Addr) bool { return !f.pending[addr] })
	if err := f.applyChanges(append(changes, insertions(forever, pending, vips)...)); err != nil {
		return err
	}
	for _, addr := range pending {
		delete(f.pending, addr)
	}
	return nil
}

// applyChanges applies all changes or none. If the tables are incomplete it puts them back first.
func (f *Fence) applyChanges(changes []Change) error {
	if len(changes) == 0 {
		return nil
	}
	if f.unconfirmed {
		if err := f.checkTables(); err != nil {
			return err
		}
	}
	err := f.keeper.Call(func() error { return f.kernel.Apply(changes) })
	if errors.Is(err, syscall.ENOENT) {
		if err := f.checkTables(); err != nil {
			return err
		}
		err = f.keeper.Call(func() error { return f.kernel.Apply(changes) })
	}
	return err
}
