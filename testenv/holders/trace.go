package holders

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"
)

// Act is what a frame shows that its sender does for a VIP.
type Act string

// The acts. All but Accepts teach others the sender's MAC address.
const (
	Answers   Act = "answers"     // a question of the observer's, by ARP or NDP
	Announces Act = "announces"   // gratuitous ARP, unsolicited neighbour advertisement
	Asks      Act = "asks as it"  // an ARP request or neighbour solicitation from the VIP
	Accepts   Act = "accepts for" // it answered an echo request to the VIP
)

// Sighting is one frame in which a master acts for a VIP. Times are since the
// start of the observation.
type Sighting struct {
	// At is when the frame came in.
	At time.Duration
	// Asked is when the question went out that it answers: the master acted
	// between the two. It is At if nobody asked.
	Asked  time.Duration
	VIP    netip.Addr
	Master string
	Act    Act
}

// claims reports whether the sighting is of one that says it is the holder.
func (s Sighting) claims() bool { return s.Act != Accepts }

// String tells the sighting in one line.
func (s Sighting) String() string {
	return fmt.Sprintf("%s %s %s %s", clock(s.At), s.Master, s.Act, s.VIP)
}

// Move is a planned change of the holder: from its beginning until Linger after
// its end the master that it is taken from may accept packets.
type Move struct {
	Master   string
	From, To time.Duration
}

// Trace is what was seen on a LAN, and what was done that excuses some of it.
type Trace struct {
	// Sightings are in the order of At.
	Sightings []Sighting
	// Moves are the planned changes.
	Moves []Move
	// Questions are when the observer asked for each VIP.
	Questions map[netip.Addr][]time.Duration
	// Strangers counts the frames that claimed a VIP and came from no master, by MAC address.
	Strangers map[string]int
	// End is when the observation ended.
	End time.Duration
}

// of returns the sightings of one VIP.
func (t *Trace) of(vip netip.Addr) (list []Sighting) {
	for _, s := range t.Sightings {
		if s.VIP == vip {
			list = append(list, s)
		}
	}
	return list
}

// vips are all that anybody acted for.
func (t *Trace) vips() (list []netip.Addr) {
	for _, s := range t.Sightings {
		if !slices.Contains(list, s.VIP) {
			list = append(list, s.VIP)
		}
	}
	slices.SortFunc(list, netip.Addr.Compare)
	return list
}

// Reign is a time in which one master was seen to hold a VIP.
type Reign struct {
	VIP    netip.Addr
	Master string
	// First and Last are its first and last claim.
	First, Last Sighting
}

// Reigns returns who held the VIP, one after the other.
func (t *Trace) Reigns(vip netip.Addr, l Limits) []Reign {
	reigns, _ := l.reigns(t.of(vip), t.End)
	return reigns
}

// Silence is a time in which nobody answered for a VIP: from the first question
// of a row to the last.
type Silence struct{ From, To time.Duration }

// Silences returns the rows of at least that many questions for a VIP which
// nobody answered. Questions that were not asked, because the observer did not
// get to run, are no silence.
func (t *Trace) Silences(vip netip.Addr, least int) (list []Silence) {
	answered := make(map[time.Duration]bool)
	for _, s := range t.Sightings {
		if s.VIP == vip && s.Act == Answers {
			answered[s.Asked] = true
		}
	}
	row := 0
	for i, q := range t.Questions[vip] {
		if answered[q] {
			row = 0
			continue
		}
		if row++; row == least {
			list = append(list, Silence{From: t.Questions[vip][i-row+1]})
		}
		if row >= least {
			list[len(list)-1].To = q
		}
	}
	return list
}

// around lists the changes of the masters' acts in the time around an instant.
func (t *Trace) around(vip netip.Addr, at time.Duration) (lines []string) {
	const before, after, most = time.Second, 500 * time.Millisecond, 60
	list := slices.DeleteFunc(t.of(vip), func(s Sighting) bool { return s.At < at-before || s.At > at+after })
	type deed struct {
		master string
		act    Act
	}
	last := make(map[deed]time.Duration)
	for i, s := range list {
		d := deed{s.Master, s.Act}
		// Of a row of the same only its beginning and its end are told.
		next := slices.IndexFunc(list[i+1:], func(o Sighting) bool { return deed{o.Master, o.Act} == d })
		ends := next < 0 || list[i+1+next].At-s.At > 50*time.Millisecond
		prev, told := last[d]
		if s.Act == Announces || s.Act == Asks || ends || !told || s.At-prev > 50*time.Millisecond {
			lines = append(lines, s.String())
		}
		last[d] = s.At
	}
	if len(lines) > most {
		lines = append(lines[:most], "…")
	}
	return lines
}

func sortByTime(list []Sighting) {
	slices.SortStableFunc(list, func(a, b Sighting) int { return cmp.Compare(a.At, b.At) })
}

// clock writes a time since the start of the observation.
func clock(d time.Duration) string { return fmt.Sprintf("+%.4fs", d.Seconds()) }
