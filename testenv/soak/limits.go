package soak

import "time"

// Limits are what a configuration promises: how soon a sign is gone after each
// kind of fault, and back after it is mended.
type Limits struct {
	// Interval, Timeout, Rise and Fall are those of the checks.
	Interval, Timeout time.Duration
	Rise, Fall        int
	// Silence is how long a router keeps the routes of a neighbour that it hears
	// nothing of: the BGP hold time.
	Silence time.Duration
	// BFD is how long it does if BFD had been up between the two; zero if there
	// is none.
	BFD time.Duration
	// Starved is how long a stall is that may end sessions with nothing wrong,
	// because those at their ends did not get to run either; zero if none may.
	Starved time.Duration
	// Router is what a router takes from a withdrawal to its kernel's route.
	Router time.Duration
	// Lifetime is after which time the kernel removes the address of a speaker
	// that no longer refreshes it.
	Lifetime time.Duration
	// Start is what a speaker's process takes until its checks run.
	Start time.Duration
	// Reconnect is what a session takes to come back, whatever had ended it.
	Reconnect time.Duration
	// HoldDown is how long a VIP that came and went too often is held down.
	HoldDown time.Duration
	// Slack is added to all of these, for a machine that is busy.
	Slack time.Duration
}

// DefaultLimits are those of the configuration that [Run] gives its speakers.
func DefaultLimits() Limits {
	return Limits{
		Interval: 200 * time.Millisecond, Timeout: 300 * time.Millisecond, Rise: 2, Fall: 2,
		Silence:   3 * time.Second,
		Router:    100 * time.Millisecond,
		Lifetime:  11 * time.Second, // 10 s, which the kernel may exceed by a fraction of one
		Start:     2 * time.Second,
		Reconnect: 10 * time.Second, // three times what it is seen to take
		HoldDown:  2 * time.Second,
		Slack:     time.Second,
	}
}

// detection is how long an apiserver or a registry may be ill until its
// speaker knows; ok is false for what is no illness.
func (l Limits) detection(k Kind) (d time.Duration, ok bool) {
	switch k {
	case APIServerKilled, RegistryKilled:
		return 50 * time.Millisecond, true // a refused connection is proof, hunted for within 30 ms
	case APIServerErrors, RegistryErrors:
		return l.Interval * time.Duration(1+l.Fall), true
	case APIServerFrozen, RegistryFrozen, APIServerHangs, APIServerSlow:
		return l.Interval + time.Duration(l.Fall)*max(l.Interval, l.Timeout), true
	}
	return 0, false
}

// gone is how long after the fault the sign may still be there, all else being
// well; ok is false if it may stay.
func (l Limits) gone(i Incident, s Sign) (d time.Duration, ok bool) {
	if !i.touches(s) {
		return 0, false
	}
	route := s.Router != ""
	if d, ok := l.detection(i.Kind); ok {
		if route {
			d += l.Router
		}
		return d, true
	}
	switch {
	case i.Kind == SpeakerStopped, i.Kind == SpeakerDrained, i.Kind == LinkDown, i.Kind == SpeakerKilled && route:
		return l.Router, true
	case i.Kind == SpeakerKilled, i.Kind == SpeakerFrozen && !route:
		return l.Lifetime, true
	case i.Kind == SpeakerFrozen, i.Kind == LinkCut, i.Kind == LinkCutOut, i.Kind == LinkCutIn, i.Kind == PowerCut && route:
		return l.Silence + l.Router, true
	}
	return 0, false
}

// excused is until when another fault beside i may keep the sign there.
func (l Limits) excused(i, other Incident, s Sign) time.Duration {
	if !other.touches(s) {
		return 0
	}
	own, _ := l.gone(i, s)
	route := s.Router != ""
	switch other.Kind {
	case SpeakerFrozen: // it goes on where it stood, unless it has been given up
		if route {
			return min(later(other.Mended, own), other.Began+l.Silence+l.Router)
		}
		return min(later(other.Mended, own), other.Began+l.Lifetime)
	case SpeakerKilled: // its successor knows nothing until its checks have spoken
		if !route {
			return min(later(other.Mended, l.Start+own), other.Began+l.Lifetime)
		}
	case LinkCut, LinkCutOut, LinkCutIn, PowerCut: // what is sent meanwhile arrives in order, or the session ends
		return other.Began + l.Silence + l.Router
	case LinkDown, LinkFlaps:
		return later(other.Mended, l.Silence+l.Router)
	case BGPKilled, RouterFrozen, RouterRebooted: // it keeps what it has, and what it missed may take it a hold time
		return later(other.Mended, l.Silence+l.Router)
	}
	return 0
}

// back is how long after the fault was mended the sign may still be away; ok
// is false if it must not go away at all.
func (l Limits) back(i Incident, s Sign) (d time.Duration, ok bool) {
	if !i.touches(s) {
		return 0, false
	}
	healthy := l.HoldDown + l.Timeout + time.Duration(l.Rise)*l.Interval
	route := s.Router != ""
	if route {
		healthy += l.Router
	}
	if _, ill := l.detection(i.Kind); ill {
		return healthy + l.Start, true // the server, too, has to start
	}
	switch i.Kind {
	case Recoloured, BadFile, RegistryLogin:
		return 0, false
	case MEDRaised:
		return l.Router, route
	case SpeakerDrained:
		return healthy, true
	case AddressDeleted, AddressesGone:
		return l.Interval, !route
	}
	if route {
		return l.Start + healthy + l.Reconnect, true
	}
	return l.Start + healthy, true
}

// earliest is how long after an illness has ended the sign stays away at
// least: the checks have to pass Rise times. It is known only of servers that
// had no request under way when they came back.
func (l Limits) earliest(k Kind) time.Duration {
	switch k {
	case APIServerKilled, APIServerErrors, RegistryKilled, RegistryErrors:
		return l.Interval*time.Duration(l.Rise-1) - 20*time.Millisecond
	}
	return 0
}
