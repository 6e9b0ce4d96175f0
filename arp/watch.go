package arp

import (
	"slices"
	"time"
)

// The probe is that of RFC 5227, section 2.1.1, with other times: with those a boot would
// last up to 7 s. The section allows shorter ones on links that are known to be quick,
// as those of servers are; their hosts answer within a millisecond.
const (
	probes     = 3
	probeEvery = 100 * time.Millisecond
	probeWait  = 200 * time.Millisecond // after the last
)

const (
	// quiet is how long nobody else may have been seen before an address counts as Free again.
	quiet = time.Minute
	// askEvery is the time between probes of an address that is Taken: who uses it is
	// seldom heard of otherwise.
	askEvery = 15 * time.Second
	// defendEvery is the least time between two defences of an address. Two hosts that
	// both defend it should not fill the link (RFC 5227, section 2.4).
	defendEvery = time.Second
	// knownOffenders are told apart for each address. Forged addresses cost no more.
	knownOffenders = 8
)

// watch judges who else uses an address.
type watch struct {
	policy    Policy
	state     State
	told      State // last
	count     uint64
	offenders []mac     // in order of appearance since then
	last      time.Time // statement of an offender
	asked     int       // probes sent of this round, while Unknown
	ask       time.Time // when the next step of probing is due; zero for never
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

// conflict is whether a stranger's statement is one: a probe is only while this node probes
// too (RFC 5227, section 2.1.1).
func (w *watch) conflict(c statement) bool { return !c.probe || w.state == Unknown }

// taken takes in a conflict. It returns whether the address was not Taken before, and
// whether the offender is one not seen before.
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

// clearOffenders is to be called when others than before count as rightful. It returns
// whether that made the address Free.
func (w *watch) clearOffenders(rightful func(mac) bool) bool {
	if w.state != Taken || len(w.offenders) == knownOffenders { // else some may not be among them
		return false
	}
	w.offenders = slices.DeleteFunc(w.offenders, rightful)
	if len(w.offenders) > 0 {
		return false
	}
	w.enter(Free)
	return true
}

// announced ends probing: the address is used now, and who asks is answered.
func (w *watch) announced() (changed bool) {
	if changed = w.state == Unknown; changed {
		w.enter(Free)
	}
	return changed
}

// linkUp says that the link can be heard again. What it was silent for counts for nothing.
func (w *watch) linkUp(now time.Time) {
	switch w.state {
	case Unknown:
		w.asked, w.ask = 0, now
	case Taken:
		w.last, w.ask = now, now
	}
}

// step does what is due. It returns whether to send a probe, and whether the state changed.
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

// next is when step is due; zero for never.
func (w *watch) next() time.Time {
	if end := w.last.Add(quiet); w.state == Taken && end.Before(w.ask) {
		return end
	}
	return w.ask
}
