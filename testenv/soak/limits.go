package soak

import "time"

// The times of herald.yaml.tmpl, of FRR and of the kernel.
const (
	checkInterval, checkTimeout = 200 * time.Millisecond, 300 * time.Millisecond
	rise, fall                  = 2, 2
	holdDown                    = 2 * time.Second
	holdTime                    = 3 * time.Second        // of BGP: a router keeps the routes of a silent neighbour for so long
	withdrawal                  = 100 * time.Millisecond // until the router's kernel route is gone
	lifetime                    = 11 * time.Second       // of an address that the speaker no longer refreshes: 10 s, and the kernel may be late
	start                       = 2 * time.Second        // from a speaker's start to its first check
	reconnect                   = 10 * time.Second       // of a session after any fault: three times the observed time
)

// Limits are the bounds of a run: how soon a sign goes after each kind of fault, and
// returns after it is mended.
type Limits struct {
	// Silence is how long a router keeps the routes of a silent neighbour.
	Silence time.Duration
	// BFD replaces Silence if a BFD session was up; zero means no BFD.
	BFD time.Duration
	// Starved is the shortest stall that may end sessions without a fault, because their
	// ends stall too. Zero: none may.
	Starved time.Duration
	// Slack is added to all bounds, for a busy machine.
	Slack time.Duration
}

// DefaultLimits returns the limits without BFD.
func DefaultLimits() Limits { return Limits{Silence: holdTime, Slack: time.Second} }

// detection returns how long a failure of an apiserver or registry may go undetected.
// ok is false for other kinds.
func detection(k Kind) (d time.Duration, ok bool) {
	switch k {
	case APIServerKilled, RegistryKilled:
		return 50 * time.Millisecond, true // a refused connection is proof, confirmed by a fast re-probe within 30 ms
	case APIServerErrors, RegistryErrors:
		return (1 + fall) * checkInterval, true
	case APIServerFrozen, RegistryFrozen, APIServerHangs, APIServerSlow:
		return checkInterval + fall*max(checkInterval, checkTimeout), true
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
	if d, ok := detection(i.Kind); ok {
		if route {
			d += withdrawal
		}
		return d, true
	}
	switch {
	case i.Kind == SpeakerStopped, i.Kind == SpeakerDrained, i.Kind == LinkDown, i.Kind == SpeakerKilled && route:
		return withdrawal, true
	case i.Kind == SpeakerKilled, i.Kind == SpeakerFrozen && !route:
		return lifetime, true
	case i.Kind == SpeakerFrozen, i.Kind == LinkCut, i.Kind == LinkCutOut, i.Kind == LinkCutIn, i.Kind == PowerCut && route:
		return l.Silence + withdrawal, true
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
			return min(later(other.Mended, own), other.Began+l.Silence+withdrawal)
		}
		return min(later(other.Mended, own), other.Began+lifetime)
	case SpeakerKilled: // its successor knows nothing until its checks complete
		if !route {
			return min(later(other.Mended, start+own), other.Began+lifetime)
		}
	case LinkCut, LinkCutOut, LinkCutIn, PowerCut: // packets sent meanwhile arrive in order, or the session ends
		return other.Began + l.Silence + withdrawal
	case LinkDown, LinkFlaps:
		return later(other.Mended, l.Silence+withdrawal)
	case BGPKilled, RouterFrozen, RouterRebooted: // it keeps its routes, and may need a hold time to notice missed messages
		return later(other.Mended, l.Silence+withdrawal)
	}
	return 0
}

// back returns how long after the fault was mended the sign may still be absent; ok is
// false if it must not go at all.
func back(i Incident, s Sign) (d time.Duration, ok bool) {
	if !i.touches(s) {
		return 0, false
	}
	healthy := holdDown + checkTimeout + rise*checkInterval
	route := s.Router != ""
	if route {
		healthy += withdrawal
	}
	if _, ill := detection(i.Kind); ill {
		return healthy + start, true // the server has to start too
	}
	switch i.Kind {
	case Recoloured, BadFile, RegistryLogin:
		return 0, false
	case MEDRaised:
		return withdrawal, route
	case SpeakerDrained:
		return healthy, true
	case AddressDeleted, AddressesGone:
		return checkInterval, !route
	}
	if route {
		return start + healthy + reconnect, true
	}
	return start + healthy, true
}

// earliest returns how long the sign must stay absent after a server recovers: the
// checks have to pass Rise times. Zero if unknown, as for servers that had requests
// pending when they recovered.
func earliest(k Kind) time.Duration {
	switch k {
	case APIServerKilled, APIServerErrors, RegistryKilled, RegistryErrors:
		return (rise-1)*checkInterval - 20*time.Millisecond
	}
	return 0
}
