package fence

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"
)

const (
	// allowance is how long after reading the clock a lock may be renewed. An
	// opening ends that much early. A renewal takes less than a millisecond; the rest is
	// for a busy machine. A holder that cannot renew its lease gives up at seven tenths of
	// it: with this and slack the fence closes just after that, for a lease of 600 ms.
	allowance = 30 * time.Millisecond

	// slack is how late the kernel may be in ending a timeout, which it counts in
	// ticks: up to one of 10 ms (HZ=100) when its count lags, and one more when the
	// processor that counts is late.
	slack = 20 * time.Millisecond

	// shortest is the shortest timeout to ask for: Linux rounds down to ticks, and
	// zero ticks would mean no timeout.
	shortest = 20 * time.Millisecond

	// batchSize is how many addresses have a lock renewed at once: few enough to take a
	// small part of the allowance.
	batchSize = 100

	// attempts is how often the fence tries a lock in a row before it returns ErrLate.
	attempts = 2
)

// Open lets the host answer for addrs and accept packets to them, until then at the
// latest; 50 ms earlier, in fact. Opening again renews. The time must have been
// derived from time.Now, for its monotonic reading. Every address must be gated.
//
// After an error some addresses may be open all the same, but never beyond until.
func (f *Fence) Open(until time.Time, addrs ...netip.Addr) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	addrs = distinct(addrs)
	if err := f.openAddrs(until, addrs, answer, accept); err != nil {
		return fmt.Errorf("open: %w", err)
	}
	for _, addr := range addrs {
		f.open[addr] = until
	}
	return nil
}

// Accept ends answering for addrs at once, and accepts packets to them until then at
// the latest, as Open does. ErrLate comes after the answering has ended.
func (f *Fence) Accept(until time.Time, addrs ...netip.Addr) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	addrs = distinct(addrs)
	for _, addr := range addrs {
		delete(f.open, addr)
	}
	err := f.applyGating(addrs, removals(addrs, answer))
	if err == nil {
		err = f.openAddrs(until, addrs, accept)
	}
	if err != nil {
		return fmt.Errorf("accept: %w", err)
	}
	return nil
}

func (f *Fence) openAddrs(end time.Time, addrs []netip.Addr, permitted ...set) error {
	for some := range slices.Chunk(addrs, batchSize) {
		if err := f.renewLocks(end, some, permitted); err != nil {
			return errors.Join(err, f.applyGating(addrs, nil)) // what could not be opened is closed
		}
	}
	return nil
}

// renewLocks renews both locks, the first of which is in the sets in permitted.
func (f *Fence) renewLocks(end time.Time, addrs []netip.Addr, permitted []set) error {
	var doubtful []netip.Addr
	for _, addr := range addrs {
		unproven, ok := f.gated[addr]
		if !ok {
			return fmt.Errorf("%s is not gated", addr)
		}
		if unproven {
			doubtful = append(doubtful, addr)
		}
	}
	for range attempts {
		restored := f.restored
		if err := f.renewLock(end, func(lasts time.Duration) []Change {
			return append(insertions(lasts, addrs, permitted...), removals(doubtful, until)...)
		}); err != nil {
			return err
		}
		for _, addr := range addrs {
			f.gated[addr] = true
		}
		if err := f.renewLock(end, func(lasts time.Duration) []Change { return insertions(lasts, addrs, until) }); err != nil {
			return err
		}
		for _, addr := range addrs { // a lock proven for accepting is not proven for answering
			f.gated[addr] = !slices.Contains(permitted, answer)
		}
		if f.restored == restored {
			if err := f.applyGating(addrs, nil); err != nil || f.restored == restored {
				return err
			}
		}
		doubtful = nil // the tables are new, and lack the first lock
	}
	return fmt.Errorf("%w: somebody else keeps removing Herald's nftables", ErrLate)
}

// renewLock makes changes with timeouts that are proven to end before end.
func (f *Fence) renewLock(end time.Time, changes func(lasts time.Duration) []Change) error {
	var took time.Duration
	for range attempts {
		start := f.now()
		lasts := end.Sub(start) - allowance - slack
		if lasts < shortest {
			f.late++
			return fmt.Errorf("%w: it ends in %v, and that takes %v", ErrLate, end.Sub(start), allowance+slack+shortest)
		}
		if err := f.applyChanges(changes(lasts)); err != nil {
			return err
		}
		if took = f.now().Sub(start); took <= allowance {
			return nil
		}
		f.late++
	}
	return fmt.Errorf("%w: it took %v, and may take %v", ErrLate, took, allowance)
}
