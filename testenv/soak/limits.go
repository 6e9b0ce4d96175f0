package soak

import "time"

// Limits are the bounds that a configuration promises: how soon a sign goes after each
// kind of fault, and returns after it is mended.
type Limits struct {
	// Interval, Timeout, Rise and Fall configure the health checks.
	Interval, Timeout time.Duration
	Rise, Fall        int
	// Silence is how long a router keeps the routes of a silent neighbour: the BGP hold time.
	Silence time.Duration
	// BFD replaces Silence if a BFD session was up; zero means no BFD.
	BFD time.Duration
	// Starved is the shortest stall that may end sessions without a fault, because their
	// ends stall too. Zero: none may.
	Starved time.Duration
	// Router is the time from a withdrawal to the removal of the router's kernel route.
	Router time.Duration
	// Lifetime is when the kernel removes an address that the speaker no longer refreshes.
	Lifetime time.Duration
	// Start is the time from a speaker's start to its first check.
	Start time.Duration
	// Reconnect is the time for a session to return after any fault.
	Reconnect time.Duration
	// HoldDown is how long a flapping VIP is held down.
	HoldDown time.Duration
	// Slack is added to all bounds, for a busy machine.
	Slack time.Duration
}

// DefaultLimits returns the limits of the configuration that [Run] gives its speakers.
func DefaultLimits() Limits {
	return Limits{
		Interval: 200 * time.Millisecond, Timeout: 300 * time.Millisecond, Rise: 2, Fall: 2,
		Silence:   3 * time.Second,
		Router:    100 * time.Millisecond,
		Lifetime:  11 * time.Second, // 10 s, and the kernel may be a fraction of a second late
		Start:     2 * time.Second,
		Reconnect: 10 * time.Second, // three times the observed time
		HoldDown:  2 * time.Second,
		Slack:     time.Second,
	}
}

// detection returns how long a failure of an apiserver or registry may go undetected.
// ok is false for other kinds.
func (l Limits) detection(k Kind) (d time.Duration, ok bool) {
	switch k {
	case APIServerKilled, RegistryKilled:
		return 50 * time.Millisecond, true // a refused connection is proof, confirmed by a fast re-probe within 30 ms
	case APIServerErrors, RegistryErrors:
		return l.Interval * time.Duration(1+l.Fall), true
	case APIServerFrozen, RegistryFrozen, APIServerHangs, APIServerSlow:
		return l.Interval + time.Duration(l.Fall)*max(l.Interval, l.Timeout), true
	}
	return 0, false
}

// gone returns how long after the fault the sign may still be present, with no other
// fault; ok is false if it may stay.
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

// excused returns until when another fault may keep the sign present despite i.
func (l Limits) excused(i, other Incident, s Sign) time.Duration {
	if !other.touches(s) {
		return 0
	}
	own, _ := l.gone(i, s)
	route := s.Router != ""
	switch other.Kind {
	case SpeakerFrozen: // it continues where it stopped, unless its session timed out
		if route {
			return min(later(other.Mended, own), other.Began+l.Silence+l.Router)
		}
		return min(later(other.Mended, own), other.Began+l.Lifetime)
	case SpeakerKilled: // its successor knows nothing until its checks complete
		if !route {
			return min(later(other.Mended, l.Start+own), other.Began+l.Lifetime)
		}
	case LinkCut, LinkCutOut, LinkCutIn, PowerCut: // packets sent meanwhile arrive in order, or the session ends
		return other.Began + l.Silence + l.Router
	case LinkDown, LinkFlaps:
		return later(other.Mended, l.Silence+l.Router)
	case BGPKilled, RouterFrozen, RouterRebooted: // it keeps its routes, and may need a hold time to notice missed messages
		return later(other.Mended, l.Silence+l.Router)
	}
	return 0
}

// back returns how long after the fault was mended the sign may still be absent; ok is
// false if it must not go at all.
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
		return healthy + l.Start, true // the server has to start too
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

// earliest returns how long the sign must stay absent after a server recovers: the
// checks have to pass Rise times. Zero if unknown, as for servers that had requests
// pending when they recovered.
func (l Limits) earliest(k Kind) time.Duration {
	switch k {
	case APIServerKilled, APIServerErrors, RegistryKilled, RegistryErrors:
		return l.Interval*time.Duration(l.Rise-1) - 20*time.Millisecond
	}
	return 0
}
