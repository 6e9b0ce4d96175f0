package arp

import "time"

// burst holds the times of announcements after an address has moved. The first leaves at once, the next soon, as they
// are not acknowledged. The others follow at growing distances, for slow switches and busy neighbours.
//
// RFC 5227, section 2.3, has two announcements 2 s apart, and RFC 4861, section 7.2.6, three
// announcements 1 s apart. Both are too slow for a service that waits for one.
var burst = [...]time.Duration{
	0,
	50 * time.Millisecond,
	150 * time.Millisecond,
	350 * time.Millisecond,
	750 * time.Millisecond,
	1500 * time.Millisecond,
	3 * time.Second,
}

// schedule holds the times of an address's announcements.
type schedule struct {
	start   time.Time
	sent    int // announcements of the burst
	next    time.Time
	refresh time.Duration
}

// startSchedule begins a burst.
func startSchedule(now time.Time, refresh time.Duration) schedule {
	return schedule{start: now, next: now, refresh: refresh}
}

func (s schedule) due(now time.Time) bool { return !now.Before(s.next) }

// steady reports whether the next announcement is the last of the burst or a later one. By then neighbours have
// followed, and the previous holder has released the address.
func (s schedule) steady() bool { return s.sent >= len(burst)-1 }

// done returns the schedule after an announcement. It skips announcements that are overdue.
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
