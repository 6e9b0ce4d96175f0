package speaker

import (
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/herald-vip/herald/health"
	"github.com/herald-vip/herald/internal/seconds"
	"github.com/herald-vip/herald/internal/wake"
)

// reconcile decides for every address anew and brings the changes about.
func (s *Speaker) reconcile() {
	now := time.Now()
	s.again = time.Time{}
	var moved []move
	for _, u := range s.order {
		is := s.assessChecks(u)
		in := input{
			health: is.health, leave: u.gone || s.drain.Reason() != "", linger: s.linger(now, u),
			held: u.damp.until(u.vip.HoldDown), demote: u.vip.OnFailure == Demote, unbound: !u.served,
		}
		wasKept, fit := u.kept, u.claims
		if u.vip.Flat != nil {
			in, is = s.applyLease(now, u, in, is)
		}
		if u.vip.Keep {
			in, is = s.applyKeeping(now, u, fit, in, is)
		}
		to, again := decide(now, u.at, in)
		s.wakeAt(again)
		switch {
		case !in.flat || u.at.stage != Announced || to.stage != Announced: // which is logged by its stage
		case u.kept && !wasKept:
			moved = append(moved, move{u, "kept", slog.LevelWarn, is.reason})
		case wasKept && !u.kept:
			moved = append(moved, move{u, "no longer kept", slog.LevelInfo, is.reason})
		}
		if is.health == health.Healthy && !in.leave && !in.unleased && to.stage != Announced {
			if is.reason = u.damp.reason(in.held); is.reason != u.reason {
				moved = append(moved, move{u, "held down", slog.LevelInfo, is.reason})
			}
		}
		if to.stage != u.at.stage {
			level := slog.LevelInfo
			if u.at.stage == Announced && (to.stage == Withdrawn || to.stage == Demoted) {
				level = slog.LevelWarn
			}
			if u.unsaid = to.stage == Announced; !u.unsaid {
				moved = append(moved, move{u, string(to.stage), level, is.reason})
			}
			u.logged = ""
		}
		if in.health == health.Unhealthy && to.stage != u.at.stage && (u.at.stage != Demoted || u.vip.Keep) {
			if to.stage == Withdrawn {
				u.last = &Withdrawal{At: is.cause, Reason: is.reason}
				if wasKept { // until now, on purpose
					u.last.At = now
				}
			}
			if u.at.stage == Announced && !in.leave && !is.paused {
				u.damp = u.damp.failed(now, u.vip.HoldDown)
			}
		}
		if u.vip.Bridge {
			way := step{from: u.at.stage, to: to.stage, bound: u.served, paused: is.paused, flat: in.flat}
			if !in.unleased {
				way.lease = u.lease
			}
			if until := way.bridgeUntil(now); !until.IsZero() {
				u.bridging = bridging{until: until}
			}
		}
		u.at, u.reason = to, is.reason
	}
	s.tellMembers(false) // what the kernel takes long to do is over already
	s.applyStages()
	for _, u := range s.order {
		if u.unsaid && u.err == nil {
			u.unsaid = false
			moved = append(moved, move{u, "announcing", slog.LevelInfo, u.reason})
		}
	}
	s.updateCandidacies(now)
	for _, u := range s.order {
		switch {
		case u.err == nil:
			u.blocked = time.Time{}
		case u.blocked.IsZero():
			u.blocked = time.Now()
		}
	}
	s.openBridge()
	s.tellMembers(true)
	for _, m := range moved { // a log that is slow, or stuck, must not hold up a withdrawal
		s.log.Log(context.Background(), m.level, m.of.vip.kind()+" "+m.what, "vip", m.of.vip.Name, "address", m.of.Addr, "reason", m.reason, "state", string(m.of.at.stage))
	}
	s.forgetGone()
	if s.allWithdrawn() {
		s.drain.Complete()
	}
	wake.Up(s.wake)
	if slices.ContainsFunc(s.order, func(u *unit) bool { return s.waits(now, u) }) {
		wake.Up(s.count)
	}
}

// move is a change to be logged.
type move struct {
	of     *unit
	what   string
	level  slog.Level
	reason string
}

// assessment is what a unit's checks come to.
type assessment struct {
	health health.State // unknown: a check has no verdict yet, and none has failed
	reason string
	cause  time.Time // when the failure was first seen
	paused bool      // it is this process that failed, by standing still
	slow   bool      // each check that fails is slow
}

func (s *Speaker) assessChecks(u *unit) assessment {
	var waiting []string
	var a assessment
	for _, name := range u.vip.Checks {
		v, ok := s.verdicts[name]
		switch {
		case ok && v.State == health.Unhealthy:
			if a.health != health.Unhealthy || a.slow && !v.Slow {
				a = assessment{health: health.Unhealthy, reason: name + ": " + v.Reason, cause: v.Cause, paused: v.Paused, slow: v.Slow}
			}
		case !ok || v.State == health.Unknown:
			waiting = append(waiting, name)
		}
	}
	if a.health == health.Unhealthy {
		return a
	}
	if a.health = health.Healthy; len(waiting) > 0 {
		a.health = health.Unknown
	}
	switch {
	case u.gone && u.vip.Service:
		a.reason = "this node may no longer hold it"
	case u.gone:
		a.reason = "no longer in the configuration"
	case s.drain.Reason() != "":
		a.reason = s.drain.Reason()
	case len(waiting) > 0:
		a.reason = "waiting for the first verdict of " + strings.Join(waiting, ", ")
	default:
		a.reason = strings.Join(u.vip.Checks, ", ") + " healthy"
	}
	return a
}

// wakeAt asks for another reconcile at t, unless one is due before.
func (s *Speaker) wakeAt(t time.Time) {
	s.again = wake.Earlier(s.again, t)
}

// applyStages brings kernel and routers in line with the decided stages. Routes are
// withdrawn first, and all in one go: that is what stops traffic. On a flat layer
// 2 that is the address; the fence comes after it, as nftables may be held up
// by others. The bridge is closed before anything is bound. An address
// that moves to another link is on both for a while, with one route: that of
// the new link, which comes first in the order, once the address is there.
func (s *Speaker) applyStages() {
	now := time.Now()
	_ = s.kernel.Announce() // this process goes on, whatever takes its time below; an error comes again with each route
	for _, u := range s.order {
		u.err = nil
	}
	covers := s.covers()
	withdrawn := s.withdrawRoutes(now, covers)
	s.unbindAddresses()
	s.closeFence()
	s.closeBridge()
	s.openFence()
	for _, u := range s.order {
		if withdrawn != nil && u.vip.Flat == nil && !u.at.stage.Advertised() {
			s.recordObstacle(u, withdrawn)
		}
		s.bindAddress(u)
		s.checkBound(now, u)
		s.announceToNeighbours(u)
		if u.at.stage == Withdrawn && u.err == nil && u.last != nil && u.last.Done.IsZero() {
			u.last.Done = time.Now()
			u.last.Took = seconds.Duration(u.last.Done.Sub(u.last.At))
		}
	}
	s.announceRoutes(covers)
}

// bindAddress puts the address on its link if it is not there and the stage says so.
func (s *Speaker) bindAddress(u *unit) {
	if !u.at.stage.Bound() || u.bound == present || u.err != nil {
		return
	}
	var err error
	if flat := u.vip.Flat; flat != nil {
		err = s.addresses.BindFor(u.Interface, u.Addr, flat.Lifetime)
	} else {
		err = s.binder(u).Bind(u.Interface, u.Addr)
	}
	if err != nil {
		u.bound = perhaps // it goes on being wanted, and may yet get there
		s.recordObstacle(u, err)
		s.backOff(u, err)
		return
	}
	u.bound, u.served = present, true
}

// binder has the host answer for u's address.
func (s *Speaker) binder(u *unit) Binder {
	if u.vip.Table != nil {
		return s.kernel
	}
	return s.addresses
}

// checkBound makes sure that an address is there still while this node announces it. When it has not been
// for a while, a route is withdrawn that leads nowhere, and a lease left to others.
func (s *Speaker) checkBound(now time.Time, u *unit) {
	if !u.at.stage.Advertised() || u.bound != present {
		u.lost = time.Time{}
		return
	}
	s.wakeAt(now.Add(retryAfter))
	if u.err != nil {
		return
	}
	err := s.binder(u).Try(u.Interface, u.Addr)
	switch {
	case err == nil:
		u.lost = time.Time{}
		return
	case u.lost.IsZero():
		u.lost = now
	}
	s.recordObstacle(u, err)
	if u.astray(now) {
		s.backOff(u, err)
	}
}

// astray says whether an address has been away from its link for too long to be announced.
func (u *unit) astray(now time.Time) bool { return !u.lost.IsZero() && now.Sub(u.lost) >= lateFor }

// unbindAddresses takes away the addresses that are to go, all of a link at once.
func (s *Speaker) unbindAddresses() {
	links := make(map[string][]*unit)
	for _, u := range s.order {
		switch {
		case u.at.stage.Bound() || u.bound == absent:
		case u.bound == perhaps && s.undecided(u) && u.vip.Flat == nil:
			// A predecessor's address stays until the checks have spoken: if this
			// is a quick restart, taking it away would break its connections. The
			// kernel removes it if they do not speak soon.
		default:
			links[u.Interface] = append(links[u.Interface], u)
		}
	}
	for link, units := range links {
		binder := s.binder(units[0])
		err := binder.Unbind(link, addressesOf(units)...)
		for _, u := range units {
			if err != nil { // which one is it?
				if err := binder.Unbind(link, u.Addr); err != nil {
					s.recordObstacle(u, err)
					continue
				}
			}
			u.bound, u.served = absent, false
		}
	}
}

func (s *Speaker) undecided(u *unit) bool {
	return s.assessChecks(u).health == health.Unknown && !u.gone && s.drain.Reason() == ""
}

// recordObstacle records that err stands in the way, and has it tried again.
func (s *Speaker) recordObstacle(u *unit, err error) {
	if u.logged != err.Error() {
		u.logged = err.Error()
		what := "not " + string(u.at.stage) + " yet"
		if u.at.stage == Withdrawn && u.claims {
			what = "cannot be announced here"
		}
		s.log.Error(u.vip.kind()+" "+what, "vip", u.vip.Name, "address", u.Addr, "err", err)
	}
	u.err = err
	s.wakeAt(time.Now().Add(retryAfter))
}

// forgetGone drops the units that are out of the configuration and withdrawn.
func (s *Speaker) forgetGone() {
	known := len(s.order)
	gone := make(map[string]bool) // VIPs on a flat layer 2 that lost an address
	s.order = slices.DeleteFunc(s.order, func(u *unit) bool {
		if !u.gone || u.at.stage != Withdrawn || u.err != nil {
			return false
		}
		if u.vip.Flat != nil {
			gone[u.vip.Name] = true
		}
		return true
	})
	if len(s.order) < known {
		s.guardAddresses()
	}
	for name := range gone {
		if !slices.ContainsFunc(s.order, func(u *unit) bool { return u.vip.Name == name }) {
			delete(s.backoffs, name)
			delete(s.lapsed, name)
			s.flat.Leases.Forget(name)
		}
	}
}

func (s *Speaker) allWithdrawn() bool {
	return !slices.ContainsFunc(s.order, func(u *unit) bool { return u.at.stage != Withdrawn || u.err != nil })
}

func addressesOf(units []*unit) []netip.Addr {
	addrs := make([]netip.Addr, len(units))
	for i, u := range units {
		addrs[i] = u.Addr
	}
	return addrs
}
