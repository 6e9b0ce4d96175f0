package speaker

import (
	"maps"
	"time"

	"github.com/herald-vip/herald/health"
)

// Members are the other nodes that may serve a VIP; the daemon implements it on the members' advertisements. Its
// methods wait neither for the network nor for the speaker. When the result of Heard may have changed, call
// [Speaker.MembersChanged].
type Members interface {
	// Tell advertises the VIPs with [VIP.Keep] that this node serves in good health.
	Tell(serves map[string]bool)
	// Heard returns when a member last advertised that it serves a VIP. For a member that does not advertise VIPs, that all
	// the named checks pass there counts instead. Zero means that no such member is known.
	Heard(vip string, checks []string) time.Time
}

const (
	// sureAfter is how long another member has to advertise a VIP before this failing node gives it up. It exceeds the
	// delay of an advertisement, so that two nodes that fail at once do not rely on each other. By then routers have the
	// other member's route.
	sureAfter = 500 * time.Millisecond
	// listenAgain is the interval of looking at advertisements while this node is about to leave: repeated ones wake no goroutine.
	listenAgain = 100 * time.Millisecond
)

// mustKeep reports whether no other member has served a VIP for long enough to leave it to that member. since is when a
// member was first known to serve it, zero if none was yet; heard is the result of [Members].Heard.
func mustKeep(now, since, heard time.Time) (from time.Time, ok bool) {
	switch {
	case heard.IsZero():
		return time.Time{}, true
	case since.IsZero():
		return now, true
	}
	return since, heard.Sub(since) < sureAfter
}

// applyLastResort keeps an address that fails slowly while no other member is known to serve it. Over BGP its route is
// demoted. On a flat layer 2 the node stays a candidate for each address that it was fit to hold.
func (s *Speaker) applyLastResort(now time.Time, u *unit, fit bool, in input, checks assessment) (input, assessment) {
	there := u.at.stage.Advertised()
	if in.flat {
		_, candidate := s.candidacies[u.vip.Name]
		there = u.lastResort || candidate && (there || fit)
	}
	if !u.lastResort {
		u.other = time.Time{}
	}
	if u.lastResort = checks.health == health.Unhealthy && checks.slow && there && !in.leave; u.lastResort {
		if u.other, u.lastResort = mustKeep(now, u.other, s.members.Heard(u.vip.Name, u.vip.Checks)); !u.other.IsZero() {
			s.wakeAt(now.Add(listenAgain))
		}
	}
	switch {
	case !u.lastResort:
	case u.other.IsZero():
		checks.reason = "kept as the last resort, since no other member is known to serve it: " + checks.reason
	default:
		checks.reason = "kept as the last resort, until another member is sure to serve it: " + checks.reason
	}
	switch {
	case !in.flat:
		in.demote = in.demote || u.lastResort || checks.health != health.Unhealthy // may still be held down
	case u.lastResort:
		in.health, u.claims = health.Healthy, !now.Before(s.backoffs[u.vip.Name].until)
	}
	return in, checks
}

// tellMembers advertises changes of the VIPs that this node serves. Without more, it only takes VIPs back.
func (s *Speaker) tellMembers(more bool) {
	serves := make(map[string]bool)
	for _, u := range s.order {
		if !u.vip.Keep || u.gone {
			continue
		}
		ok := u.at.stage == Announced
		if u.vip.Flat != nil {
			_, ok = s.candidacies[u.vip.Name]
		}
		before, several := serves[u.vip.Name]
		serves[u.vip.Name] = ok && u.err == nil && !u.lastResort && (before || !several) && (more || s.serves[u.vip.Name])
	}
	if !maps.Equal(serves, s.serves) {
		s.serves = serves
		s.members.Tell(serves)
	}
}
