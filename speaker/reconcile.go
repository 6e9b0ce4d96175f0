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

// reconcile decides every address again and applies the changes.
func (s *Speaker) reconcile() {
	now := time.Now()
	s.again = time.Time{}
	var moved []move
	for _, u := range s.order {
		checks := s.assessChecks(u)
		in := input{
			health: checks.health, leave: u.gone || s.drain.Reason() != "", linger: s.linger(now, u),
			held: u.damp.until(u.vip.HoldDown), demote: u.vip.OnFailure == Demote, unbound: !u.served,
		}
		before, fit := u.lastResort, u.claims
		if u.vip.Flat != nil {
			in, checks = s.applyLease(now, u, in, checks)
		}
		if u.vip.Keep {
			in, checks = s.applyLastResort(now, u, fit, in, checks)
		}
		next, again := decide(now, u.at, in)
		s.wakeAt(again)
		switch {
		case !in.flat || u.at.stage != Announced || next.stage != Announced: // the stage is logged below
		case u.lastResort && !before:
			moved = append(moved, move{u, "kept as the last resort", slog.LevelWarn, checks.reason})
		case before && !u.lastResort:
			moved = append(moved, move{u, "no longer the last resort", slog.LevelInfo, checks.reason})
		}
		if checks.health == health.Healthy && !in.leave && !in.unleased && next.stage != Announced {
			if checks.reason = u.damp.reason(in.held); checks.reason != u.reason {
				moved = append(moved, move{u, "held down", slog.LevelInfo, checks.reason})
			}
		}
		if next.stage != u.at.stage {
			level := slog.LevelInfo
			if u.at.stage == Announced && (next.stage == Withdrawn || next.stage == Demoted) {
				level = slog.LevelWarn
			}
			if u.unlogged = next.stage == Announced; !u.unlogged {
				moved = append(moved, move{u, string(next.stage), level, checks.reason})
			}
			u.logged = ""
		}
		if in.health == health.Unhealthy && next.stage != u.at.stage && (u.at.stage != Demoted || u.vip.Keep) {
			if next.stage == Withdrawn {
				u.last = &Withdrawal{At: checks.cause, Reason: checks.reason}
				if before { // the last resort ends now, on purpose
					u.last.At = now
				}
			}
			if u.at.stage == Announced && !in.leave && !checks.paused {
				u.damp = u.damp.failed(now, u.vip.HoldDown)
			}
		}
		if u.vip.Bridge {
			change := step{from: u.at.stage, dst: next.stage, bound: u.served, paused: checks.paused, flat: in.flat}
			if !in.unleased {
				change.lease = u.lease
			}
			if until := change.bridgeUntil(now); !until.IsZero() {
				u.bridging = bridging{until: until}
			}
		}
		u.at, u.reason = next, checks.reason
	}
	s.tellMembers(false) // before applyStages, which may wait for the kernel
	s.applyStages()
	for _, u := range s.order {
		if u.unlogged && u.err == nil {
			u.unlogged = false
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
	for _, m := range moved { // last, since a slow log must not delay a withdrawal
		s.log.Log(context.Background(), m.level, m.unit.vip.kind()+" "+m.what, "vip", m.unit.vip.Name, "address", m.unit.Addr, "reason", m.reason, "state", string(m.unit.at.stage))
	}
	s.forgetGone()
	if !slices.ContainsFunc(s.order, func(u *unit) bool { return u.at.stage != Withdrawn || u.err != nil }) {
		s.drain.Complete()
	}
	wake.Up(s.wake)
	if slices.ContainsFunc(s.order, func(u *unit) bool { return s.waits(now, u) }) {
		wake.Up(s.count)
	}
}

// move is a change for the log.
type move struct {
	unit   *unit
	what   string
	level  slog.Level
	reason string
}

// assessment sums up a unit's checks.
type assessment struct {
	health health.State // unknown: a check has no verdict yet, and none has failed
	reason string
	cause  time.Time // when the failure was first seen
	paused bool      // the cause is a pause of this process
	slow   bool      // every failing check fails slowly
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
		a.reason = "this node may no longer hold the address"
	case u.gone:
		a.reason = "no longer in the configuration"
	case s.drain.Reason() != "":
		a.reason = s.drain.Reason()
	case len(waiting) > 0:
		a.reason = "waiting for the first result of " + strings.Join(waiting, ", ")
	default:
		a.reason = strings.Join(u.vip.Checks, ", ") + " healthy"
	}
	return a
}

// wakeAt schedules a reconcile at t, unless an earlier one is due.
func (s *Speaker) wakeAt(t time.Time) {
	s.again = wake.Earlier(s.again, t)
}

// applyStages makes the kernel and the routers match the decided stages. First it withdraws all routes in one batch,
// which stops the traffic. On a flat layer 2, removing the address stops it; the fence follows, since other programs
// can delay nftables. The bridge closes before an address is bound. An address that moves to another link is on both
// for a while. It has one route, from the new link, which comes first in the order.
func (s *Speaker) applyStages() {
	now := time.Now()
	_ = s.kernel.Announce() // renews the routes before slow calls; announceRoutes reports errors
	for _, u := range s.order {
		u.err = nil
	}
	routes := s.aggregates()
	withdrawn := s.withdrawRoutes(now, routes)
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
	s.announceRoutes(routes)
}

// bindAddress puts the address on its link if the stage asks for it and the link lacks it.
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
		u.bound = perhaps // the binder keeps trying and may succeed later
		s.recordObstacle(u, err)
		s.backOff(u, err)
		return
	}
	u.bound, u.served = present, true
}

// binder returns the binder for u's address.
func (s *Speaker) binder(u *unit) Binder {
	if u.vip.Table != nil {
		return s.kernel
	}
	return s.addresses
}

// checkBound verifies that an announced address is still on its link. After [lateFor] without it, withdrawRoutes
// withdraws the route, or the node leaves the lease to others.
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
	if u.missing(now) {
		s.backOff(u, err)
	}
}

// missing reports whether the address has been away from its link for too long to announce it.
func (u *unit) missing(now time.Time) bool { return !u.lost.IsZero() && now.Sub(u.lost) >= lateFor }

// unbindAddresses removes withdrawn addresses from their links, one call per link.
func (s *Speaker) unbindAddresses() {
	links := make(map[string][]*unit)
	for _, u := range s.order {
		switch {
		case u.at.stage.Bound() || u.bound == absent:
		case u.bound == perhaps && s.undecided(u) && u.vip.Flat == nil:
			// A predecessor's address stays until the first verdicts: after a quick restart,
			// removing it would break its connections. Its lifetime in the kernel bounds the wait.
		default:
			links[u.Interface] = append(links[u.Interface], u)
		}
	}
	for link, units := range links {
		binder := s.binder(units[0])
		err := binder.Unbind(link, addressesOf(units)...)
		for _, u := range units {
			if err != nil { // find the address that failed
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

// recordObstacle records the error that blocks u's stage, logs it once, and schedules a retry.
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

// forgetGone drops units that are withdrawn and no longer configured.
func (s *Speaker) forgetGone() {
	known := len(s.order)
	gone := make(map[string]bool) // leases
	s.order = slices.DeleteFunc(s.order, func(u *unit) bool {
		if !u.gone || u.at.stage != Withdrawn || u.err != nil {
			return false
		}
		if u.vip.Flat != nil {
			for _, name := range slices.Concat(u.leases, u.vip.Flat.Leases) {
				gone[name] = true
			}
			delete(s.backoffs, u.vip.Name)
		}
		return true
	})
	if len(s.order) < known {
		s.filterAddresses()
	}
	for _, u := range s.order {
		if u.vip.Flat != nil {
			for _, name := range u.vip.Flat.Leases {
				delete(gone, name)
			}
		}
	}
	for name := range gone {
		delete(s.lapsed, name)
		s.flat.Leases.Forget(name)
	}
}

func addressesOf(units []*unit) []netip.Addr {
	addrs := make([]netip.Addr, len(units))
	for i, u := range units {
		addrs[i] = u.Addr
	}
	return addrs
}
