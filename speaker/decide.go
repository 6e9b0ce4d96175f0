package speaker

import (
	"time"

	"github.com/herald-vip/herald/bgp/gracefulshutdown"
	"github.com/herald-vip/herald/health"
)

// Stage is the state of an address's announcement.
type Stage = gracefulshutdown.Stage

// The stages of an address.
const (
	Withdrawn = gracefulshutdown.Withdrawn
	Announced = gracefulshutdown.Announced
	Draining  = gracefulshutdown.Draining
	Lingering = gracefulshutdown.Lingering
	Demoted   = gracefulshutdown.Demoted
)

// position is an address's stage and the time of the last change.
type position struct {
	stage Stage
	since time.Time
}

// input holds everything that decides the stage of one address.
type input struct {
	health   health.State // of all checks of the VIP together
	leave    bool         // drained, transferred, or no longer configured
	linger   time.Duration
	flat     bool      // a flat layer 2, where no notice precedes the withdrawal
	unleased bool      // this node does not hold the lease
	held     time.Time // end of the hold-down; zero means none

	demote  bool // on failure, demote an advertised route instead of withdrawing it
	unbound bool // the address never was on its link, so no client knows it
}

// decide returns the stage that follows from the current one. again is the time at which time
// alone changes the result; zero means never.
//
// Failing health withdraws from any stage. A hold-down delays the next announcement. A lost lease withdraws as well,
// except in Lingering, where the node gave the lease up on purpose. With demote, an advertised route is demoted
// instead: decide never announces an address that has not been healthy since its last withdrawal. A planned change
// passes Draining and Lingering, so that it drops no packet; an address that was never bound skips them. When leave
// ends, the address returns to Announced from any stage.
func decide(now time.Time, at position, in input) (next position, again time.Time) {
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
		case at.stage == Demoted && !in.demote: // the configuration has changed
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

// depart ends the announcement of an address in a planned change.
func depart(now time.Time, in input) (next position, again time.Time) {
	if in.linger == 0 {
		return position{stage: Withdrawn, since: now}, time.Time{}
	}
	return position{stage: Lingering, since: now}, now.Add(in.linger)
}
