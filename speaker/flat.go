package speaker

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/herald-vip/herald/health"
	"github.com/herald-vip/herald/netutil/fence"
)

// Flat is a node's claim to a VIP on a flat layer 2.
type Flat struct {
	// Priority decides who gets a VIP that is free, the highest first.
	Priority int
	// Preempt has the VIP move here from a holder of lower priority.
	Preempt bool
	// Lifetime is how long its addresses outlive this process, in whole seconds from
	// 1s to 60s, should the fence go with it. It should be no less than a lease: a
	// node that is paused for less than that keeps the VIP.
	Lifetime time.Duration
}

// Lease is how the lease of a VIP stands, as this node sees it.
type Lease struct {
	// Until is when this node has to have stopped answering; zero if it does not hold the lease.
	Until time.Time
	// Yield is why the holder is to hand the lease over; empty if it is not.
	Yield string
	// Reason says who holds the lease, or why nobody does.
	Reason string
	// Lost is why this node lost the lease; empty if it never held it.
	Lost string
}

// Leases decides, with the other nodes, who may answer for a VIP; the daemon
// builds it on package election. None of its methods waits for the network.
// When a lease has changed [Speaker.LeasesChanged] is to be called, not from
// within these methods.
type Leases interface {
	// Stand makes this node a candidate for the VIP.
	Stand(vip string, claim Flat)
	// Resign ends that, and lets others have the lease at once if this node holds it.
	Resign(vip string)
	// Forget is Resign for a VIP that is no longer configured.
	Forget(vip string)
	Lease(vip string) Lease
}

// Fence is the kernel's own guard over who answers; [fence.Fence] is.
type Fence interface {
	// Guard makes addrs, and no others, the ones that need an opening.
	Guard(addrs ...netip.Addr) error
	// Open lets the kernel answer for addrs, and take their packets, until a time at the
	// latest. What comes too late for that, and may be in time when it is tried again, is a
	// [fence.ErrLate].
	Open(until time.Time, addrs ...netip.Addr) error
	// Try says why an opening would fail now.
	Try() error
	// Accept lets it take their packets only.
	Accept(until time.Time, addrs ...netip.Addr) error
	Close(addrs ...netip.Addr) error
}

// Announcer tells the neighbours on a link that an address is here; [arp.Announcer] does.
type Announcer interface {
	// Announce says so until a time at the latest, which Limit moves.
	Announce(until time.Time, link string, addrs ...netip.Addr) error
	// Try says why nothing could be announced on any link.
	Try() error
	Withdraw(link string, addrs ...netip.Addr)
	// Limit ends announcements by themselves at a time.
	Limit(until time.Time, link string, addrs ...netip.Addr)
}

// FlatParts are what VIPs on a flat layer 2 need.
type FlatParts struct {
	Leases    Leases
	Announcer Announcer
	// Fence is nil where the kernel has none. Then a VIP that leaves on purpose
	// does not linger: what is bound is answered for.
	Fence Fence
}

const (
	// afterLinger is what the fence lets through longer than an address lingers, so that it does not close too early.
	afterLinger = 500 * time.Millisecond
	// firstBackoff is how long a node that could not answer for a VIP it held leaves it to
	// others; twice as long each time that happens again, up to longestBackoff, until it could.
	firstBackoff   = 2 * time.Second
	longestBackoff = time.Minute
	// lateFor is how long a holder tries to open a fence that is too busy to do so in time, to
	// tell the neighbours, or to put back an address that was taken away, before it leaves the
	// VIP to others: a few renewals of the lease. Many addresses that come at once keep a
	// node busy; to pass them on would keep all of them busy.
	lateFor = time.Second
)

// fencing is what of an address the neighbours and the fence have been told.
type fencing struct {
	state fenceState
	until time.Time // when the fence closes by itself
	told  bool      // neighbours were
	limit time.Time // until when they may be told again
}

// backoff keeps a node from contesting a VIP that it cannot answer for.
type backoff struct {
	until time.Time
	next  time.Duration // how long the next one is to be
	err   error
}

// fenceState is what the fence lets through.
type fenceState int

const (
	closed fenceState = iota
	accepting
	answering
	doubtful // it was answering, and may have closed
)

// open says whether the kernel may answer until the fence closes by itself.
func (f fencing) open() bool { return f.state == answering || f.state == doubtful }

// applyLease adds to what bears on an address what its lease does.
func (s *Speaker) applyLease(now time.Time, u *unit, in input, is assessment) (input, assessment) {
	lease := s.flat.Leases.Lease(u.vip.Name)
	in.flat = true
	if s.flat.Fence == nil {
		in.linger = 0
	}
	if lease.Yield != "" && !in.leave {
		in.leave, is.reason = true, lease.Yield
	}
	in.unleased = !now.Before(lease.Until)
	switch {
	case !in.unleased:
		s.wakeAt(lease.Until)
		delete(s.lapsed, u.vip.Name)
	case u.at.stage == Announced:
		s.lapsed[u.vip.Name] = true
	}
	u.lease = lease.Until
	u.claims = is.health == health.Healthy && !in.leave && !now.Before(in.held)
	if u.claims && in.unleased {
		is.reason = lease.Reason
		if u.at.stage == Announced && lease.Lost != "" {
			is.reason = "lease lost: " + lease.Lost + "; " + lease.Reason
		}
	}
	if b := s.backoffs[u.vip.Name]; now.Before(b.until) {
		if in.unleased = true; u.claims {
			u.claims, is.reason = false, fmt.Sprintf("left to others for a while: %v", b.err)
		}
		s.wakeAt(b.until)
	}
	return in, is
}

// updateCandidacies stands for the VIPs that this node could serve and resigns from the
// others, but not before the kernel has stopped answering for them. It does not stand for what
// it could not answer for: the others would lose the VIP to it.
//
// A lease that lapsed is resigned from as well, to stand for it anew: a node that
// can only not hear has been granted more than it knows of, which the others
// would wait for.
func (s *Speaker) updateCandidacies(now time.Time) {
	claims := make(map[string]Flat)
	unable := make(map[string]bool) // of those that it would stand for
	inability := sync.OnceValue(func() error { return s.inability(now) })
	open := make(map[string]bool)
	for _, u := range s.order {
		if u.vip.Flat == nil {
			continue
		}
		if _, stands := s.stands[u.vip.Name]; u.claims && !stands {
			if err := cmp.Or(inability(), s.addresses.Try(u.Interface, u.Addr)); err != nil {
				s.recordObstacle(u, err)
				unable[u.vip.Name] = true
			}
		}
		if u.claims {
			claims[u.vip.Name] = *u.vip.Flat
		}
		open[u.vip.Name] = open[u.vip.Name] || u.answers(now, s.flat.Fence != nil)
	}
	for name := range unable {
		delete(claims, name)
	}
	for name := range s.stands {
		if _, ok := claims[name]; (!ok || s.lapsed[name]) && !open[name] {
			delete(s.stands, name)
			delete(s.lapsed, name)
			s.flat.Leases.Resign(name)
		}
	}
	for name, claim := range claims {
		if stands, ok := s.stands[name]; !ok || stands != claim {
			s.stands[name] = claim
			s.flat.Leases.Stand(name, claim)
		}
	}
}

// answers says whether the neighbours may get an answer from the kernel.
func (u *unit) answers(now time.Time, fenced bool) bool {
	if fenced && (!u.fence.open() || !now.Before(u.fence.until)) {
		return false
	}
	return u.bound != absent
}

// guardAddresses tells the fence which addresses there are.
func (s *Speaker) guardAddresses() {
	if s.flat.Fence == nil {
		return
	}
	var addrs []netip.Addr
	for _, u := range s.order {
		if u.vip.Flat != nil {
			addrs = append(addrs, u.Addr)
		}
	}
	s.unguarded = s.flat.Fence.Guard(addrs...)
}

// closeFence ends the answers for addresses that are no longer announced.
func (s *Speaker) closeFence() {
	if s.unguarded != nil {
		s.guardAddresses()
	}
	if s.unguarded != nil {
		s.wakeAt(time.Now().Add(retryAfter))
	}
	var closing, leaving []*unit
	var until time.Time
	announced := make(map[netip.Addr]*unit) // on whichever link: the fence knows addresses only
	for _, u := range s.order {
		if u.vip.Flat != nil && u.at.stage == Announced {
			announced[u.Addr] = u
		}
	}
	for _, u := range s.order {
		if u.fence.told && u.at.stage != Announced {
			s.flat.Announcer.Withdraw(u.Interface, u.Addr)
			u.fence.told = false
		}
		switch {
		case s.flat.Fence == nil:
		case announced[u.Addr] != nil && u.at.stage != Announced:
			if to := announced[u.Addr]; u.fence.open() && !to.fence.open() {
				to.fence.state, to.fence.until = u.fence.state, u.fence.until // it has moved to another link
			}
			u.fence = fencing{}
		case u.at.stage == Withdrawn && u.fence.state != closed:
			closing = append(closing, u)
		case u.vip.Flat != nil && u.at.stage == Lingering && u.fence.state != accepting: // it was answering, or the fence was made anew
			leaving = append(leaving, u)
			if end := u.at.since.Add(u.vip.Linger + afterLinger); end.After(until) {
				until = end
			}
		}
	}
	s.moveFence(closed, time.Time{}, closing, func(addrs ...netip.Addr) error { return s.flat.Fence.Close(addrs...) })
	s.moveFence(accepting, until, leaving, func(addrs ...netip.Addr) error { return s.flat.Fence.Accept(until, addrs...) })
}

// openFence lets the kernel answer for what is announced for as long as the lease
// lasts, all addresses whose leases end together in one go: in the order of VIPs, so
// that those of Services, which may be many, come last.
func (s *Speaker) openFence() {
	if s.flat.Fence == nil {
		return
	}
	var ends []time.Time
	ending := make(map[time.Time][]*unit)
	for _, u := range s.order {
		if u.vip.Flat == nil || u.at.stage != Announced {
			continue
		}
		if u.fence.state != answering || !u.fence.until.Equal(u.lease) {
			if ending[u.lease] == nil {
				ends = append(ends, u.lease)
			}
			ending[u.lease] = append(ending[u.lease], u)
		}
	}
	for _, until := range ends {
		s.moveFence(answering, until, ending[until], func(addrs ...netip.Addr) error {
			if s.unguarded != nil {
				return s.unguarded
			}
			return s.flat.Fence.Open(until, addrs...)
		})
	}
}

// moveFence moves the fence of units to a state by one call of the fence.
func (s *Speaker) moveFence(state fenceState, until time.Time, units []*unit, call func(...netip.Addr) error) {
	if len(units) == 0 {
		return
	}
	err := call(addressesOf(units)...)
	now := time.Now()
	for _, u := range units {
		switch {
		case err == nil:
			u.fence.state, u.fence.until = state, until
		case state == answering && u.fence.state == answering && now.Before(u.fence.until):
			// The next renewal comes before it closes.
			u.err = nil
		case state == answering && errors.Is(err, fence.ErrLate) && !u.blockedFor(now, lateFor):
			u.err = err // not logged: a busy node has enough to do, and hundreds may be late
			s.wakeAt(now.Add(retryAfter))
		default:
			s.recordObstacle(u, err)
			if u.at.stage == Announced {
				s.backOff(u, err)
			}
		}
	}
}

// blockedFor says whether something has been in the way for so long.
func (u *unit) blockedFor(now time.Time, d time.Duration) bool {
	return !u.blocked.IsZero() && now.Sub(u.blocked) >= d
}

// backOff leaves a VIP that this node cannot answer for to the others.
func (s *Speaker) backOff(u *unit, err error) {
	if u.vip.Flat == nil {
		return
	}
	now := time.Now()
	last := s.backoffs[u.vip.Name]
	if now.Before(last.until) {
		return // another of its addresses has raised it
	}
	wait := max(last.next, firstBackoff)
	s.backoffs[u.vip.Name] = backoff{until: now.Add(wait), next: min(2*wait, longestBackoff), err: err}
	s.wakeAt(now)
}

// backOffLater is backOff once a holder has been blocked for a while.
func (s *Speaker) backOffLater(u *unit, err error) {
	if u.blockedFor(time.Now(), lateFor) {
		s.backOff(u, err)
	}
}

// inability is why this node could not answer for any address if it had the lease. What is in
// the way is looked at again after a while, and not at every decision.
func (s *Speaker) inability(now time.Time) error {
	if s.unable == nil || now.Sub(s.tried) >= retryAfter {
		s.unable, s.tried = s.try(), now
	}
	return s.unable
}

func (s *Speaker) try() error {
	if s.unguarded != nil {
		return s.unguarded
	}
	if s.flat.Fence != nil {
		if err := s.flat.Fence.Try(); err != nil {
			return err
		}
	}
	return s.flat.Announcer.Try()
}

// announceToNeighbours tells the neighbours of what has just been bound, and has that repeated for
// no longer than the lease lasts: the announcer's frames pass the fence.
func (s *Speaker) announceToNeighbours(u *unit) {
	if u.vip.Flat == nil || u.at.stage != Announced || u.bound != present || u.err != nil {
		return
	}
	if !u.fence.told {
		if !time.Now().Before(u.lease) {
			return // binding took too long; the next look at the lease is due
		}
		if err := s.flat.Announcer.Announce(u.lease, u.Interface, u.Addr); err != nil {
			// The announcer would make up for it when it can, be the lease held or not.
			s.flat.Announcer.Withdraw(u.Interface, u.Addr)
			s.recordObstacle(u, err)
			s.backOffLater(u, err)
			return
		}
		u.fence.told, u.fence.limit = true, u.lease
		delete(s.backoffs, u.vip.Name) // it can be answered for
	}
	if !u.fence.limit.Equal(u.lease) {
		s.flat.Announcer.Limit(u.lease, u.Interface, u.Addr)
		u.fence.limit = u.lease
	}
}
