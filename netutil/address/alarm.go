package address

import "time"

// alarm is a timer for the earliest of several times.
type alarm struct {
	*time.Timer
	at time.Time // zero for never
}

func newAlarm() alarm {
	t := time.NewTimer(0)
	t.Stop()
	return alarm{Timer: t}
}

// setWithin makes the alarm fire in d at the latest.
func (a *alarm) setWithin(d time.Duration) {
	if at := time.Now().Add(d); a.at.IsZero() || at.Before(a.at) {
		a.at = at
		a.Reset(d)
	}
}

// clear forgets the time after the alarm has fired.
func (a *alarm) clear() { a.at = time.Time{} }
