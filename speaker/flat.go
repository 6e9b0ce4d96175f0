package speaker

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/herald-vip/herald/election/lease"
	"github.com/herald-vip/herald/health"
	"github.com/herald-vip/herald/internal/wake"
	"github.com/herald-vip/herald/netutil/fence"
)

// Flat holds the settings of a candidate for a VIP on a flat layer 2.
type Flat struct {
	// Priority orders the candidates for a free VIP, highest first.
	Priority int
	// Preempt moves the VIP here from a holder of lower priority.
	Preempt bool
	// Lifetime is the lifetime of the addresses in the kernel, in whole seconds from 1s to 60s. It
	// removes them after the death of this process, should the fence be gone too. Use at least the
	// lease time, so that a node that pauses for less keeps the VIP.
	Lifetime time.Duration
	// Leases names the leases that this node needs to answer: of each address by its text, and others. It takes them in
	// this order, and the order of any two is the same for all VIPs on all nodes.
	Leases []string
}

// Lease is the state of a VIP's leases together, as this node sees them.
type Lease struct {
	// Until is the time at which this node stops answering; zero if it does not hold all of them.
	Until time.Time
	// Partial reports that this node holds the lease of one address, and another node that of another.
	Partial bool
	// Transfer is the reason to hand the lease over; empty if the holder keeps it.
	Transfer string
	// Reason names the holder, or explains why there is none.
	Reason string
	// Lost is the reason why this node lost the lease; empty if it never held it.
	Lost string
}

// Leases decides, with the other nodes, which node may answer for a VIP; the daemon implements it on
// package election. Its methods do not wait for the network. After a change of a lease, call
// [Speaker.LeasesChanged], but not from within these methods.
type Leases interface {
	// Campaign makes this node a candidate.
	Campaign(...lease.Candidacy)
	// StepDown ends candidacies. Leases that this node holds are free for others at once.
	StepDown(leases ...string)
	// Forget is StepDown for leases that no VIP here needs any more.
	Forget(leases ...string)
	Lease(leases ...string) Lease
}

// Fence limits the kernel's answers to the time of a lease; [fence.Fence] implements it.
type Fence interface {
	// Filter sets the addresses that the fence filters. The kernel answers for them only after Open.
	Filter(addrs ...netip.Addr) error
	// Open lets the kernel answer for addrs, and accept their packets, until a time. It returns
	// [fence.ErrLate] if the call took too long and another try may succeed.
	Open(until time.Time, addrs ...netip.Addr) error
	// Try returns the error that Open would return now.
	Try() error
	// Accept lets the kernel accept packets to addrs without answering for them.
	Accept(until time.Time, addrs ...netip.Addr) error
	Close(addrs ...netip.Addr) error
}

// Announcer announces addresses to the neighbours on a link; [arp.Announcer] implements it.
type Announcer interface {
	// Announce announces addrs, and repeats that until a time. Limit moves the time.
	Announce(until time.Time, link string, addrs ...netip.Addr) error
	// Try returns the error that would prevent announcements on every link.
	Try() error
	Withdraw(link string, addrs ...netip.Addr)
	// Limit sets the time at which announcements end.
	Limit(until time.Time, link string, addrs ...netip.Addr)
}

// FlatParts are the parts that VIPs on a flat layer 2 need.
type FlatParts struct {
	Leases    Leases
	Announcer Announcer
	// Fence is nil on kernels without one. Then a VIP does not linger in a planned change,
	// since the kernel answers for each bound address.
	Fence Fence
}

const (
	// afterLinger is how long the fence stays open after a linger, so that it does not close too early.
	afterLinger = 500 * time.Millisecond
	// lateFor is how long a holder retries before it leaves the VIP to others: a few renewals of the
	// lease. It may retry to open a busy fence, to reach the neighbours or to restore a removed
	// address. Many addresses at once keep a node busy; passing them on would keep all nodes busy.
	lateFor = time.Second
)

// fencing is the state of the fence and of the neighbour announcements for one address.
type fencing struct {
	state fenceState
	until time.Time // when the fence closes by itself
	told  bool      // the neighbours know of the address
	limit time.Time // end of the repeated announcements
}

// backoff keeps a node from campaigning for a VIP that it cannot answer for.
type backoff struct {
	until    time.Time
	failures int // since this node last answered
	err      error
}

// backoffPauses are the times that a holder leaves the VIP to others after it could not answer.
var backoffPauses = wake.Backoff{Min: 2 * time.Second, Max: time.Minute}

// fenceState is the traffic that the fence lets through.
type fenceState int

const (
	closed fenceState = iota
	accepting
	answering
	unconfirmed // it was answering and may have closed
)

// open reports whether the kernel may answer until the fence closes by itself.
func (f fencing) open() bool { return f.state == answering || f.state == unconfirmed }

// applyLease adds the state of the lease to the input of a decision.
func (s *Speaker) applyLease(now time.Time, u *unit, in input, checks assessment) (input, assessment) {
	state := s.flat.Leases.Lease(u.vip.Flat.Leases...)
	switch {
	case now.Before(state.Until):
		u.leases = u.vip.Flat.Leases
	case u.at.stage == Announced && len(u.leases) > 0 && u.leases[0] == u.vip.Flat.Leases[0]: // the VIP has got another address
		state = s.flat.Leases.Lease(u.leases...)
	}
	s.watchPartial(now, u, state)
	in.flat = true
	if s.flat.Fence == nil {
		in.linger = 0
	}
	if state.Transfer != "" && !in.leave {
		in.leave, checks.reason = true, state.Transfer
	}
	in.unleased = !now.Before(state.Until)
	if !in.unleased {
		s.wakeAt(state.Until)
	}
	if !in.unleased || u.at.stage == Announced {
		for _, name := range u.vip.Flat.Leases {
			s.lapsed[name] = in.unleased
		}
	}
	u.lease = state.Until
	u.claims = checks.health == health.Healthy && !in.leave && !now.Before(in.held)
	if u.claims && in.unleased {
		checks.reason = state.Reason
		if u.at.stage == Announced && state.Lost != "" {
			checks.reason = "lease lost: " + state.Lost + "; " + state.Reason
		}
	}
	if b := s.backoffs[u.vip.Name]; now.Before(b.until) {
		if in.unleased = true; u.claims {
			u.claims, checks.reason = false, fmt.Sprintf("left to others for a while: %v", b.err)
		}
		s.wakeAt(b.until)
	}
	return in, checks
}

// watchPartial leaves a VIP to others for a while if this node has held some of its addresses' leases for [lateFor], but
// not all. Other nodes may have files with these addresses in different VIPs. With no more than the lease of the VIP's
// name, the node waits: it must be ready when the addresses become free.
func (s *Speaker) watchPartial(now time.Time, u *unit, state Lease) {
	switch {
	case !state.Partial:
		u.partial = time.Time{}
		return
	case u.partial.IsZero():
		u.partial = now
	}
	serves := func(o *unit) bool { return o.vip.Name == u.vip.Name && o.at.stage == Announced }
	if end := u.partial.Add(lateFor); now.Before(end) {
		s.wakeAt(end)
	} else if !slices.ContainsFunc(s.order, serves) {
		s.backOff(u, errors.New(state.Reason))
	}
}

// updateCandidacies campaigns for the leases of the VIPs that this node can serve. It steps down from the others
// once the kernel has stopped answering for their VIPs. A node that could not answer does not campaign, since
// the others would lose the VIP to it.
//
// The node also steps down after a lease has lapsed, and campaigns again. A node that sends but does not
// receive may hold grants it never saw; it steps down so that others need not wait them out.
func (s *Speaker) updateCandidacies(now time.Time) {
	unable := make(map[string]bool) // VIPs that this node would campaign for
	inability := sync.OnceValue(func() error { return s.inability(now) })
	open := make(map[string]bool)
	for _, u := range s.order {
		if u.vip.Flat == nil {
			continue
		}
		if _, candidate := s.candidacies[u.vip.Flat.Leases[0]]; u.claims && !candidate {
			if err := cmp.Or(inability(), s.addresses.Try(u.Interface, u.Addr)); err != nil {
				s.recordObstacle(u, err)
				unable[u.vip.Name] = true
			}
		}
		if u.answers(now, s.flat.Fence != nil) {
			for _, name := range slices.Concat(u.leases, u.vip.Flat.Leases) {
				open[name] = true
			}
		}
	}
	claims := make(map[string]lease.Candidacy)
	for _, u := range s.order {
		if u.vip.Flat == nil || !u.claims || unable[u.vip.Name] {
			continue
		}
		after := ""
		for _, name := range u.vip.Flat.Leases {
			claims[name] = lease.Candidacy{Lease: name, Priority: u.vip.Flat.Priority, Preempt: u.vip.Flat.Preempt && after == "", After: after}
			after = name
		}
	}
	s.stepDown(func(name string) bool { return s.lapsed[name] && !open[name] })
	var changed []lease.Candidacy
	for name, claim := range claims {
		if present, ok := s.candidacies[name]; !ok || present != claim {
			s.candidacies[name] = claim
			changed = append(changed, claim)
		}
	}
	if len(changed) > 0 {
		s.flat.Leases.Campaign(changed...)
	}
	s.stepDown(func(name string) bool { _, ok := claims[name]; return !ok && !open[name] })
}

// stepDown ends the candidacies that match. The first lease of each VIP comes first, and names the successor for all.
func (s *Speaker) stepDown(match func(lease string) bool) {
	leases := slices.SortedFunc(maps.Keys(s.candidacies), func(a, b string) int {
		return cmp.Compare(s.candidacies[a].After, s.candidacies[b].After)
	})
	if leases = slices.DeleteFunc(leases, func(name string) bool { return !match(name) }); len(leases) == 0 {
		return
	}
	for _, name := range leases {
		delete(s.candidacies, name)
		delete(s.lapsed, name)
	}
	s.flat.Leases.StepDown(leases...)
}

// answers reports whether the kernel may answer the neighbours.
func (u *unit) answers(now time.Time, fenced bool) bool {
	if fenced && (!u.fence.open() || !now.Before(u.fence.until)) {
		return false
	}
	return u.bound != absent
}

// filterAddresses passes all flat addresses to the fence.
func (s *Speaker) filterAddresses() {
	if s.flat.Fence == nil {
		return
	}
	var addrs []netip.Addr
	for _, u := range s.order {
		if u.vip.Flat != nil {
			addrs = append(addrs, u.Addr)
		}
	}
	s.unfiltered = s.flat.Fence.Filter(addrs...)
}

// closeFence ends the kernel's answers for addresses that are no longer announced.
func (s *Speaker) closeFence() {
	if s.unfiltered != nil {
		s.filterAddresses()
	}
	if s.unfiltered != nil {
		s.wakeAt(time.Now().Add(retryAfter))
	}
	var closing, leaving []*unit
	var until time.Time
	announced := make(map[netip.Addr]*unit) // on any link: the fence knows addresses only
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
			if moved := announced[u.Addr]; u.fence.open() && !moved.fence.open() { // to another link
				moved.fence.state, moved.fence.until = u.fence.state, u.fence.until
			}
			u.fence = fencing{}
		case u.at.stage == Withdrawn && u.fence.state != closed:
			closing = append(closing, u)
		case u.vip.Flat != nil && u.at.stage == Lingering && u.fence.state != accepting: // it was answering, or the fence was recreated
			leaving = append(leaving, u)
			if end := u.at.since.Add(u.vip.Linger + afterLinger); end.After(until) {
				until = end
			}
		}
	}
	s.moveFence(closed, time.Time{}, closing, func(addrs ...netip.Addr) error { return s.flat.Fence.Close(addrs...) })
	s.moveFence(accepting, until, leaving, func(addrs ...netip.Addr) error { return s.flat.Fence.Accept(until, addrs...) })
}

// openFence lets the kernel answer for announced addresses until the lease ends. One call handles all
// addresses with the same end of lease. Services can be many, so they come last.
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
			if s.unfiltered != nil {
				return s.unfiltered
			}
			return s.flat.Fence.Open(until, addrs...)
		})
	}
}

// moveFence moves units to a state by one call of the fence.
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
			u.err = err // not logged: on a busy node hundreds may be late
			s.wakeAt(now.Add(retryAfter))
		default:
			s.recordObstacle(u, err)
			if u.at.stage == Announced {
				s.backOff(u, err)
			}
		}
	}
}

// blockedFor reports whether an error has blocked the unit for d.
func (u *unit) blockedFor(now time.Time, d time.Duration) bool {
	return !u.blocked.IsZero() && now.Sub(u.blocked) >= d
}

// backOff leaves a VIP to the other nodes if this node cannot answer for it.
func (s *Speaker) backOff(u *unit, err error) {
	if u.vip.Flat == nil {
		return
	}
	now := time.Now()
	last := s.backoffs[u.vip.Name]
	if now.Before(last.until) {
		return // another of its addresses has raised it
	}
	failures := last.failures + 1
	s.backoffs[u.vip.Name] = backoff{until: now.Add(backoffPauses.After(failures)), failures: failures, err: err}
	s.wakeAt(now)
}

// inability returns the error that would keep this node from answering for any address. It repeats the
// check at most once per [retryAfter] while the error lasts.
func (s *Speaker) inability(now time.Time) error {
	if s.unable == nil || now.Sub(s.tried) >= retryAfter {
		s.unable, s.tried = s.unfiltered, now
		if s.unable == nil && s.flat.Fence != nil {
			s.unable = s.flat.Fence.Try()
		}
		if s.unable == nil {
			s.unable = s.flat.Announcer.Try()
		}
	}
	return s.unable
}

// announceToNeighbours announces a newly bound address and limits repetitions to the lease, since the
// announcer's frames bypass the fence.
func (s *Speaker) announceToNeighbours(u *unit) {
	if u.vip.Flat == nil || u.at.stage != Announced || u.bound != present || u.err != nil {
		return
	}
	if !u.fence.told {
		if !time.Now().Before(u.lease) {
			return // binding took too long; the next look at the lease is due
		}
		if err := s.flat.Announcer.Announce(u.lease, u.Interface, u.Addr); err != nil {
			// Without this the announcer would retry later, even after the lease has ended.
			s.flat.Announcer.Withdraw(u.Interface, u.Addr)
			s.recordObstacle(u, err)
			if u.blockedFor(time.Now(), lateFor) {
				s.backOff(u, err)
			}
			return
		}
		u.fence.told, u.fence.limit = true, u.lease
		delete(s.backoffs, u.vip.Name) // this node can answer
	}
	if !u.fence.limit.Equal(u.lease) {
		s.flat.Announcer.Limit(u.lease, u.Interface, u.Addr)
		u.fence.limit = u.lease
	}
}
