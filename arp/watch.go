package arp

import (
	"slices"
	"time"
)

// Probing follows RFC 5227, section 2.1.1, with shorter times: otherwise a start would take up to 7 s. The section
// permits that on links known to be quick, such as links of servers: hosts answer within a millisecond.
const (
	probes     = 3
	probeEvery = 100 * time.Millisecond
	probeWait  = 200 * time.Millisecond // after the last
)

const (
	// quiet is the time without conflicting statements after which an address is Free again.
	quiet = time.Minute
	// askEvery is the time between probes of an address that is Taken. Its user seldom sends statements otherwise.
	askEvery = 15 * time.Second
	// defendEvery is the minimum time between two defences of an address. Two hosts that both
	// defend it must not flood the link (RFC 5227, section 2.4).
	defendEvery = time.Second
	// knownOffenders is the number of offenders kept for each address. It bounds the cost of forged addresses.
	knownOffenders = 8
)

// watch detects other hosts that use an address.
type watch struct {
	policy    Policy
	state     State
	reported  State // the last reported
	count     uint64
	offenders []mac     // in order of appearance since it was Taken
	last      time.Time // time of the last conflict
	asked     int       // probes sent while Unknown
	ask       time.Time // time of the next step of probing; zero for never
}

func newWatch(now time.Time, policy Policy, probe bool) *watch {
	w := &watch{policy: policy, state: Free}
	if probe {
		w.state, w.ask = Unknown, now
	}
	return w
}

func (w *watch) enter(s State) {
	w.state, w.ask = s, time.Time{}
	if s != Taken {
		w.count, w.offenders = 0, nil
	}
}

// conflict reports whether a stranger's statement is a conflict. A probe is one only while this node probes
// too (RFC 5227, section 2.1.1).
func (w *watch) conflict(c statement) bool { return !c.probe || w.state == Unknown }

// taken notes a conflict. It reports whether the address became Taken, and whether the offender is new.
func (w *watch) taken(now time.Time, by mac) (changed, stranger bool) {
	if changed = w.state != Taken; changed {
		w.enter(Taken)
		w.ask = now.Add(askEvery)
	}
	w.count++
	w.last = now
	if len(w.offenders) < knownOffenders && !slices.Contains(w.offenders, by) {
		w.offenders = append(w.offenders, by)
		stranger = true
	}
	return changed, stranger
}

// clearOffenders removes offenders that are rightful now, and reports whether that made the address Free. Call it when
// the rightful hosts change.
func (w *watch) clearOffenders(rightful func(mac) bool) bool {
	if w.state != Taken || len(w.offenders) == knownOffenders { // at the limit some offenders may be missing
		return false
	}
	w.offenders = slices.DeleteFunc(w.offenders, rightful)
	if len(w.offenders) > 0 {
		return false
	}
	w.enter(Free)
	return true
}

// announced ends probing: this node uses the address now. It reports whether the state changed.
func (w *watch) announced() (changed bool) {
	if changed = w.state == Unknown; changed {
		w.enter(Free)
	}
	return changed
}

// linkUp notes that the link is up again. The time while it was down does not count.
func (w *watch) linkUp(now time.Time) {
	switch w.state {
	case Unknown:
		w.asked, w.ask = 0, now
	case Taken:
		w.last, w.ask = now, now
	}
}

// step does the work that is due. It reports whether to send a probe, and whether the state changed.
func (w *watch) step(now time.Time) (probe, changed bool) {
	switch {
	case w.state == Taken && !now.Before(w.last.Add(quiet)):
		w.enter(Free)
		return false, true
	case w.ask.IsZero() || now.Before(w.ask):
		return false, false
	case w.state == Taken:
		w.ask = now.Add(askEvery)
		return true, false
	case w.asked == probes:
		w.enter(Free)
		return false, true
	}
	w.asked++
	w.ask = now.Add(probeEvery)
	if w.asked == probes {
		w.ask = now.Add(probeWait)
	}
	return true, false
}

// next returns the time of the next step; zero for never.
func (w *watch) next() time.Time {
	if end := w.last.Add(quiet); w.state == Taken && end.Before(w.ask) {
		return end
	}
	return w.ask
}
