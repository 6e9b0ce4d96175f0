package speaker

import (
	"time"

	"github.com/herald-vip/herald/bgp/gracefulshutdown"
	"github.com/herald-vip/herald/health"
)

// Stage is how far the announcement of an address has come.
type Stage = gracefulshutdown.Stage

// The stages of an address.
const (
	Withdrawn = gracefulshutdown.Withdrawn
	Announced = gracefulshutdown.Announced
	Draining  = gracefulshutdown.Draining
	Lingering = gracefulshutdown.Lingering
	Demoted   = gracefulshutdown.Demoted
)

// position is an address's stage and since when it is there.
type position struct {
	stage Stage
	since time.Time
}

// input is all that bears on one address.
type input struct {
	health   health.State  // what all checks of the VIP come to
	leave    bool          // drained, handed over, or no longer in the configuration
	linger   time.Duration // how long to stay in Lingering
	flat     bool          // a flat layer 2: nobody is to be told before it leaves
	unleased bool          // it needs a lease that this node does not hold
	held     time.Time     // not to be announced anew before; zero is no matter
	demote   bool          // what peers have is demoted, not withdrawn
	unbound  bool          // the address never got onto its link, so nobody has been told of it
}

// decide moves an address on: from where it is, to where it ought to be at
// now. If time alone will change that, again is when; otherwise it is zero.
//
// Failing health withdraws everything from any stage; what it withdrew is not
// announced again while it is held down. So does the loss of the lease, but
// for what is lingering and has given it up on purpose. With demote, what peers have is
// demoted instead: nothing is ever announced that was not healthy since it was
// last withdrawn. Leaving on purpose goes through Draining and Lingering, so
// that nothing on its way is dropped, unless the address could never be bound; it
// is undone from any stage by not leaving any more.
func decide(now time.Time, at position, in input) (to position, again time.Time) {
	move := func(s Stage) position {
		if s == at.stage {
			return at
		}
		return position{stage: s, since: now}
	}
	if in.health == health.Unhealthy {
		if in.demote && !in.leave && at.stage.Advertised() {
			return move(Demoted), time.Time{}
		}
		return move(Withdrawn), time.Time{}
	}
	if in.unleased {
		if end := at.since.Add(in.linger); at.stage == Lingering && now.Before(end) {
			return at, end
		}
		if now.Before(in.held) {
			again = in.held
		}
		return move(Withdrawn), again
	}
	if !in.leave {
		failed := at.stage == Withdrawn || at.stage == Demoted
		switch {
		case !failed, in.health == health.Healthy && !now.Before(in.held):
			return move(Announced), time.Time{}
		case at.stage == Demoted && !in.demote: // it has just been changed
			at = move(Withdrawn)
		}
		if in.health == health.Healthy {
			again = in.held
		}
		return at, again
	}
	switch at.stage {
	case Announced, Demoted:
		if in.unbound {
			break
		}
		if in.flat {
			return depart(now, in)
		}
		return move(Draining), now.Add(gracefulshutdown.Notice)
	case Draining:
		if end := at.since.Add(gracefulshutdown.Notice); now.Before(end) {
			return at, end
		}
		return depart(now, in)
	case Lingering:
		if end := at.since.Add(in.linger); now.Before(end) {
			return at, end
		}
	}
	return move(Withdrawn), time.Time{}
}

// depart ends the announcement of an address that leaves on purpose.
func depart(now time.Time, in input) (to position, again time.Time) {
	if in.linger == 0 {
		return position{stage: Withdrawn, since: now}, time.Time{}
	}
	return position{stage: Lingering, since: now}, now.Add(in.linger)
}
