package arp

import "time"

// burst is when announcements leave after an address has moved: at once, again soon
// because nobody acknowledges one, and then ever later, for switches that learn slowly
// and neighbours that were busy.
//
// RFC 5227, section 2.3, has two announcements 2 s apart, and RFC 4861, section 7.2.6,
// three that are 1 s apart. Neither has a service in mind that stands still until one arrives.
var burst = [...]time.Duration{
	0,
	50 * time.Millisecond,
	150 * time.Millisecond,
	350 * time.Millisecond,
	750 * time.Millisecond,
	1500 * time.Millisecond,
	3 * time.Second,
}

// schedule is when an address is to be announced.
type schedule struct {
	start   time.Time
	sent    int // of the burst
	next    time.Time
	refresh time.Duration
}

// startSchedule begins a burst.
func startSchedule(now time.Time, refresh time.Duration) schedule {
	return schedule{start: now, next: now, refresh: refresh}
}

// due is whether to announce now.
func (s schedule) due(now time.Time) bool { return !now.Before(s.next) }

// steady is whether the next announcement is the last of the burst or comes after it:
// neighbours have followed by then, and the host that held the address before has let go of it.
func (s schedule) steady() bool { return s.sent >= len(burst)-1 }

// done moves on after an announcement. A process that was late does not catch up.
func (s schedule) done(now time.Time) schedule {
	for s.sent++; s.sent < len(burst); s.sent++ {
		if s.next = s.start.Add(burst[s.sent]); s.next.After(now) {
			return s
		}
	}
	s.sent = len(burst)
	s.next = now.Add(s.refresh)
	return s
}
