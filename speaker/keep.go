package speaker

import (
	"maps"
	"time"

	"github.com/herald-vip/herald/health"
)

// Members are the other nodes that may serve a VIP; the daemon builds it on what they offer. None of
// its methods waits for the network, or for the speaker. When what Heard says may have changed,
// [Speaker.MembersChanged] is to be called.
type Members interface {
	// Tell tells them which VIPs this node serves, in good health, of those with [VIP.Keep].
	Tell(serves map[string]bool)
	// Heard is when one of them last said that it serves a VIP, or if it says nothing of that, that all of the VIP's checks, by
	// their names, pass there; zero if none of those that are heard does.
	Heard(vip string, checks []string) time.Time
}

const (
	// sureAfter is how long another member has to have said that it serves a VIP before this one, which fails, leaves it to that one.
	// It is longer than what was said before may be on its way: of two that fail at once neither is to rely on the other. And
	// routers have the other's route by then.
	sureAfter = 500 * time.Millisecond
	// listenAgain is how soon what members say is looked at anew while this one is about to leave: what they repeat wakes nobody.
	listenAgain = 100 * time.Millisecond
)

// alone says whether no other member has been serving a VIP for long enough to leave it to that one. since is when
// one was first known to, zero if none was yet, and heard is as [Members] has it.
func alone(now, since, heard time.Time) (from time.Time, ok bool) {
	switch {
	case heard.IsZero():
		return time.Time{}, true
	case since.IsZero():
		return now, true
	}
	return since, heard.Sub(since) < sureAfter
}

// applyKeeping has an address that fails slowly stay while no other member is known to serve it: demoted if it is announced by
// a route, and on a flat layer 2 as a candidate if this node stands for its lease, for each address that it was fit to hold.
func (s *Speaker) applyKeeping(now time.Time, u *unit, fit bool, in input, is assessment) (input, assessment) {
	there := u.at.stage.Advertised()
	if in.flat {
		_, stands := s.stands[u.vip.Name]
		there = u.kept || stands && (there || fit)
	}
	if !u.kept {
		u.other = time.Time{}
	}
	if u.kept = is.health == health.Unhealthy && is.slow && there && !in.leave; u.kept {
		if u.other, u.kept = alone(now, u.other, s.members.Heard(u.vip.Name, u.vip.Checks)); !u.other.IsZero() {
			s.wakeAt(now.Add(listenAgain))
		}
	}
	switch {
	case !u.kept:
	case u.other.IsZero():
		is.reason = "kept though failing slowly, as no other member is known to serve it: " + is.reason
	default:
		is.reason = "kept though failing slowly, until another member is sure to serve it: " + is.reason
	}
	switch {
	case !in.flat:
		in.demote = in.demote || u.kept || is.health != health.Unhealthy // which may be held down
	case u.kept:
		in.health, u.claims = health.Healthy, !now.Before(s.backoffs[u.vip.Name].until)
	}
	return in, is
}

// tellMembers tells the others what this node serves, if that has changed; of what it did not serve before only with more.
func (s *Speaker) tellMembers(more bool) {
	serves := make(map[string]bool)
	for _, u := range s.order {
		if !u.vip.Keep || u.gone {
			continue
		}
		ok := u.at.stage == Announced
		if u.vip.Flat != nil {
			_, ok = s.stands[u.vip.Name]
		}
		before, several := serves[u.vip.Name]
		serves[u.vip.Name] = ok && u.err == nil && !u.kept && (before || !several) && (more || s.serves[u.vip.Name])
	}
	if !maps.Equal(serves, s.serves) {
		s.serves = serves
		s.members.Tell(serves)
	}
}
