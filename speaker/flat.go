package speaker

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

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
	// Accept lets it take their packets only.
	Accept(until time.Time, addrs ...netip.Addr) error
	Close(addrs ...netip.Addr) error
}

// Announcer tells the neighbours on a link that an address is here; [arp.Announcer] does.
type Announcer interface {
	Announce(link string, addrs ...netip.Addr) error
	Withdraw(link string, addrs ...netip.Addr)
	// Limit ends announcements by themselves at a time.
	Limit(until time.Time, link string, addrs ...netip.Addr)
}

// Segment is what VIPs on a flat layer 2 need.
type Segment struct {
	Leases    Leases
	Announcer Announcer
	// Fence is nil where the kernel has none. Then a VIP that leaves on purpose
	// does not linger: what is bound is answered for.
	Fence Fence
}

const (
	// afterLinger is what the fence lets through longer than an address lingers, lest it close too early.
	afterLinger = 500 * time.Millisecond
	// barFor is how long a node that could not answer for a VIP it held leaves it to
	// others; twice as long each time that happens again, up to longestBar, until it could.
	barFor     = 2 * time.Second
	longestBar = time.Minute
	// lateFor is how long a node tries to open the fence that is too busy to do so in time,
	// before it leaves the VIP to others: a few renewals of the lease. Many addresses
	// that come at once keep a node busy; to pass them on would keep all of them busy.
	lateFor = time.Second
)

// gate is what of an address the neighbours and the fence have been told.
type gate struct {
	state passage
	until time.Time // when the fence closes by itself
	told  bool      // neighbours were
	limit time.Time // until when they may be told again
}

// bar keeps a node from contesting a VIP that it held and could not answer for.
type bar struct {
	until time.Time
	next  time.Duration // how long the next one is to be
	err   error
}

// passage is what the fence lets through.
type passage int

const (
	shut passage = iota
	accepting
	answering
)

// contest adds to what bears on an address what its lease does.
func (s *Speaker) contest(now time.Time, u *unit, in input, is assessment) (input, assessment) {
	lease := s.segment.Leases.Lease(u.vip.Name)
	in.flat = true
	if s.segment.Fence == nil {
		in.linger = 0
	}
	if lease.Yield != "" && !in.leave {
		in.leave, is.reason = true, lease.Yield
	}
	in.barred = !now.Before(lease.Until)
	switch {
	case !in.barred:
		s.remind(lease.Until)
		delete(s.lapsed, u.vip.Name)
	case u.at.stage == Announced:
		s.lapsed[u.vip.Name] = true
	}
	u.lease = lease.Until
	u.claims = is.health == Healthy && !in.leave && !now.Before(in.held)
	if u.claims && in.barred {
		is.reason = lease.Reason
		if u.at.stage == Announced && lease.Lost != "" {
			is.reason = "lease lost: " + lease.Lost + "; " + lease.Reason
		}
	}
	if bar := s.bars[u.vip.Name]; now.Before(bar.until) {
		in.barred, u.claims = true, false
		is.reason = fmt.Sprintf("left to others for a while: %v", bar.err)
		s.remind(bar.until)
	}
	return in, is
}

// contend stands for the VIPs that this node could serve and resigns from the
// others, but not before the kernel has stopped answering for them.
//
// A lease that lapsed is resigned from as well, to stand for it anew: a node that
// can only not hear has been granted more than it knows of, which the others
// would wait for.
func (s *Speaker) contend(now time.Time) {
	claims := make(map[string]Flat)
	open := make(map[string]bool)
	for _, b := range s.order {
		u := s.units[b]
		if u.vip.Flat == nil {
			continue
		}
		if u.claims {
			claims[u.vip.Name] = *u.vip.Flat
		}
		open[u.vip.Name] = open[u.vip.Name] || u.answers(now, s.segment.Fence != nil)
	}
	for name := range s.stands {
		if _, ok := claims[name]; (!ok || s.lapsed[name]) && !open[name] {
			delete(s.stands, name)
			delete(s.lapsed, name)
			s.segment.Leases.Resign(name)
		}
	}
	for name, claim := range claims {
		if stands, ok := s.stands[name]; !ok || stands != claim {
			s.stands[name] = claim
			s.segment.Leases.Stand(name, claim)
		}
	}
}

// answers says whether the neighbours may get an answer from the kernel.
func (u *unit) answers(now time.Time, fenced bool) bool {
	if fenced && (u.gate.state != answering || !now.Before(u.gate.until)) {
		return false
	}
	return u.bound != absent
}

// guard tells the fence which addresses there are.
func (s *Speaker) guard() {
	if s.segment.Fence == nil {
		return
	}
	var addrs []netip.Addr
	for _, b := range s.order {
		if s.units[b].vip.Flat != nil {
			addrs = append(addrs, b.Addr)
		}
	}
	s.unguarded = s.segment.Fence.Guard(addrs...)
}

// shut ends the answers for addresses that are no longer announced.
func (s *Speaker) shut() {
	if s.unguarded != nil {
		s.guard()
	}
	if s.unguarded != nil {
		s.remind(time.Now().Add(retryAfter))
	}
	var closing, leaving []binding
	var until time.Time
	announced := make(map[netip.Addr]*unit) // on whichever link: the fence knows addresses only
	for _, b := range s.order {
		if u := s.units[b]; u.vip.Flat != nil && u.at.stage == Announced {
			announced[b.Addr] = u
		}
	}
	for _, b := range s.order {
		u := s.units[b]
		if u.at.stage != Announced {
			u.late = time.Time{}
		}
		if u.gate.told && u.at.stage != Announced {
			s.segment.Announcer.Withdraw(b.Interface, b.Addr)
			u.gate.told = false
		}
		switch {
		case s.segment.Fence == nil:
		case announced[b.Addr] != nil && u.at.stage != Announced:
			if to := announced[b.Addr]; u.gate.state == answering && to.gate.state != answering {
				to.gate.state, to.gate.until = u.gate.state, u.gate.until // it has moved to another link
			}
			u.gate = gate{}
		case u.at.stage == Withdrawn && u.gate.state != shut:
			closing = append(closing, b)
		case u.at.stage == Lingering && u.gate.state != accepting: // it was answering, or the fence was made anew
			leaving = append(leaving, b)
			until = latest(until, u.at.since.Add(u.vip.Linger+afterLinger))
		}
	}
	s.pass(shut, time.Time{}, closing, func(addrs ...netip.Addr) error { return s.segment.Fence.Close(addrs...) })
	s.pass(accepting, until, leaving, func(addrs ...netip.Addr) error { return s.segment.Fence.Accept(until, addrs...) })
}

// open lets the kernel answer for what is announced for as long as the lease
// lasts, all addresses whose leases end together in one go: in the order of VIPs, so
// that those of Services, which may be many, come last.
func (s *Speaker) open() {
	if s.segment.Fence == nil {
		return
	}
	var ends []time.Time
	ending := make(map[time.Time][]binding)
	for _, b := range s.order {
		u := s.units[b]
		if u.vip.Flat == nil || u.at.stage != Announced {
			continue
		}
		if u.gate.state != answering || !u.gate.until.Equal(u.lease) {
			if ending[u.lease] == nil {
				ends = append(ends, u.lease)
			}
			ending[u.lease] = append(ending[u.lease], b)
		}
	}
	for _, until := range ends {
		s.pass(answering, until, ending[until], func(addrs ...netip.Addr) error {
			if s.unguarded != nil {
				return s.unguarded
			}
			return s.segment.Fence.Open(until, addrs...)
		})
	}
}

// pass moves the gates of bindings to a state by one call of the fence.
func (s *Speaker) pass(state passage, until time.Time, bindings []binding, call func(...netip.Addr) error) {
	if len(bindings) == 0 {
		return
	}
	addrs := make([]netip.Addr, len(bindings))
	for i, b := range bindings {
		addrs[i] = b.Addr
	}
	err := call(addrs...)
	now := time.Now()
	for _, b := range bindings {
		u := s.units[b]
		switch {
		case err == nil:
			u.gate.state, u.gate.until, u.late = state, until, time.Time{}
		case state == answering && u.gate.state == answering && now.Before(u.gate.until):
			// The next renewal comes before it closes.
			u.err = nil
		case state == answering && errors.Is(err, fence.ErrLate) && u.tries(now):
			u.err = err // not logged: a busy node has enough to do, and hundreds may be late
			s.remind(now.Add(retryAfter))
		default:
			s.obstruct(b, u, err)
			s.bar(u, err)
		}
	}
}

// tries says whether to go on trying to open the fence in time.
func (u *unit) tries(now time.Time) bool {
	if u.late.IsZero() {
		u.late = now
	}
	return now.Sub(u.late) < lateFor
}

// bar leaves a VIP that this node cannot answer for to the others.
func (s *Speaker) bar(u *unit, err error) {
	if u.vip.Flat != nil && u.at.stage == Announced {
		now := time.Now()
		last := s.bars[u.vip.Name]
		if now.Before(last.until) {
			return // another of its addresses has raised it
		}
		wait := max(last.next, barFor)
		s.bars[u.vip.Name] = bar{until: now.Add(wait), next: min(2*wait, longestBar), err: err}
		s.remind(now)
	}
}

// proclaim tells the neighbours of what has just been bound, and has that repeated for
// no longer than the lease lasts: the announcer's frames pass the fence.
func (s *Speaker) proclaim(b binding, u *unit) {
	if u.vip.Flat == nil || u.at.stage != Announced || u.bound != present || u.err != nil {
		return
	}
	if !u.gate.told {
		if !time.Now().Before(u.lease) {
			return // binding took too long; the next look at the lease is due
		}
		if err := s.segment.Announcer.Announce(b.Interface, b.Addr); err != nil {
			// The announcer would make up for it when it can, be the lease held or not.
			s.segment.Announcer.Withdraw(b.Interface, b.Addr)
			s.obstruct(b, u, err)
			return
		}
		u.gate.told, u.gate.limit = true, time.Time{}
	}
	if u.gate.told && u.gate.limit.IsZero() {
		delete(s.bars, u.vip.Name) // it can be answered for
	}
	if !u.gate.limit.Equal(u.lease) {
		s.segment.Announcer.Limit(u.lease, b.Interface, b.Addr)
		u.gate.limit = u.lease
	}
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
