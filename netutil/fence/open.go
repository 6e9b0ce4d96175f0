package fence

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"
)

const (
	// allowance is the maximum time from reading the clock to the end of a lock's renewal. An
	// opening ends that much early. A renewal takes less than a millisecond; the rest allows for a
	// busy machine. A holder that cannot renew its PaxosLease gives up after 0.65 of it.
	// With allowance and slack, and a lease of 600 ms, the fence closes just after that.
	allowance = 30 * time.Millisecond

	// slack is the maximum delay of the kernel in ending a timeout. The kernel counts in ticks of
	// up to 10 ms (HZ=100): it may lag by one tick, and by another if the counting processor is late.
	slack = 20 * time.Millisecond

	// shortest is the shortest timeout to request: Linux rounds down to ticks, and zero ticks would mean no timeout.
	shortest = 20 * time.Millisecond

	// batchSize is the number of addresses in one renewal of a lock: few enough to take a small part of the allowance.
	batchSize = 100

	// attempts is the number of tries in a row for a lock before ErrLate.
	attempts = 2
)

// Open lets the host answer for addrs and accept their packets, until the given time at the
// latest; in practice 50 ms less. Opening again renews. The time must derive from time.Now,
// for its monotonic reading. Every address must be filtered.
//
// After an error some addresses may be open, but never beyond until.
func (f *Fence) Open(until time.Time, addrs ...netip.Addr) error {
	f.keeper.Lock()
	defer f.keeper.Unlock()
	return failed("open", f.openAddrs(until, distinct(addrs), answer, accept))
}

// Accept stops answering for addrs at once, and accepts their packets until the given time at the
// latest, as Open does. When it returns ErrLate the host no longer answers.
func (f *Fence) Accept(until time.Time, addrs ...netip.Addr) error {
	f.keeper.Lock()
	defer f.keeper.Unlock()
	addrs = distinct(addrs)
	for _, addr := range addrs {
		f.ends[addr] = ends{accept: f.ends[addr].accept}
	}
	err := f.installFilters(addrs, removals(addrs, answer))
	if err == nil {
		err = f.openAddrs(until, addrs, accept)
	}
	for _, addr := range addrs { // the second lock may be an earlier opening's, and last longer than the next one
		if _, ok := f.filtered[addr]; ok {
			f.filtered[addr] = true
		}
	}
	return failed("accept", err)
}

func (f *Fence) openAddrs(end time.Time, addrs []netip.Addr, permitted ...Set) error {
	asked := ends{accept: end}
	if slices.Contains(permitted, answer) {
		asked.answer = end
	}
	for _, addr := range addrs { // an earlier opening lasts until both locks are renewed
		f.ends[addr] = ends{later(f.ends[addr].answer, asked.answer), later(f.ends[addr].accept, end)}
	}
	for some := range slices.Chunk(addrs, batchSize) {
		if err := f.renewLocks(end, some, permitted); err != nil {
			return errors.Join(err, f.installFilters(addrs, nil)) // closes the addresses with a pending filter
		}
	}
	for _, addr := range addrs {
		f.ends[addr] = asked
	}
	return nil
}

// renewLocks renews both locks. The sets in permitted have the first lock.
func (f *Fence) renewLocks(end time.Time, addrs []netip.Addr, permitted []Set) error {
	var unconfirmed []netip.Addr // their second lock may last too long
	for _, addr := range addrs {
		lasting, ok := f.filtered[addr]
		if !ok {
			return fmt.Errorf("%s is not filtered", addr)
		}
		if lasting {
			unconfirmed = append(unconfirmed, addr)
		}
	}
	for range attempts {
		restored := f.restored
		if err := f.renewLock(end, func(lasts time.Duration) []Change {
			return append(insertions(lasts, addrs, permitted...), removals(unconfirmed, until)...)
		}); err != nil {
			return err
		}
		for _, addr := range addrs {
			f.filtered[addr] = true
		}
		if err := f.renewLock(end, func(lasts time.Duration) []Change { return insertions(lasts, addrs, until) }); err != nil {
			return err
		}
		for _, addr := range addrs { // a lock confirmed for accepting is not confirmed for answering
			f.filtered[addr] = !slices.Contains(permitted, answer)
		}
		if f.restored == restored {
			if err := f.installFilters(addrs, nil); err != nil || f.restored == restored {
				return err
			}
		}
		unconfirmed = nil // the tables are new, without the first lock
	}
	return fmt.Errorf("%w: another program keeps removing Herald's nftables tables", ErrLate)
}

// renewLock applies changes with timeouts that are confirmed to expire before end.
func (f *Fence) renewLock(end time.Time, changes func(lasts time.Duration) []Change) error {
	var took time.Duration
	for range attempts {
		start := f.now()
		lasts := end.Sub(start) - allowance - slack
		if lasts < shortest {
			f.late++
			return fmt.Errorf("%w: %v left, at least %v needed", ErrLate, end.Sub(start), allowance+slack+shortest)
		}
		if err := f.applyChanges(changes(lasts)); err != nil {
			return err
		}
		if took = f.now().Sub(start); took <= allowance {
			return nil
		}
		f.late++
	}
	return fmt.Errorf("%w: a renewal took %v, at most %v allowed", ErrLate, took, allowance)
}

// errNoServices is FilterServices' error without Options.Services.
var errNoServices = errors.New("this fence was made without Options.Services")

// FilterServices replaces the addresses of Services: all that any node answers for, even if
// this node may not hold them. The fence filters their ARP and neighbour discovery like that of
// VIPs. Packets to them need no opening: kube-proxy, in each of its modes, forwards them to the Service's
// endpoints from any node, even from a node that has just stopped answering.
//
// If this host has the address on a link, packets that kube-proxy does not forward would reach the
// host itself: any program that listens on all addresses, such as sshd. Unless Options.HostPorts is
// set, the fence rejects TCP with a reset and other packets with ICMP. ICMP itself passes. Packets count as
// forwarded if their destination was translated, or if IPVS takes them.
//
// After an error call FilterServices again.
func (f *Fence) FilterServices(addrs ...netip.Addr) error {
	services, err := addrSet(addrs)
	if err != nil {
		return fmt.Errorf("filter Services: %w", err)
	}
	f.keeper.Lock()
	defer f.keeper.Unlock()
	if !f.opts.Services {
		if len(addrs) == 0 {
			return nil
		}
		return fmt.Errorf("filter Services: %w", errNoServices)
	}
	return failed("filter Services", f.updateFiltered(services))
}
