package holders

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"
)

// Act is an act of a frame's sender for a VIP.
type Act string

// The acts. All except Accepts teach other hosts the sender's MAC address.
const (
	Answers   Act = "answers"     // a question of the observer, by ARP or NDP
	Announces Act = "announces"   // gratuitous ARP, unsolicited neighbour advertisement.
	Asks      Act = "asks as it"  // an ARP request or neighbour solicitation from the VIP
	Accepts   Act = "accepts for" // it answered an echo request to the VIP
)

// Observation is one frame of a master acting for a VIP. Times are since the start of the
// observation.
type Observation struct {
	// At is when the frame arrived.
	At time.Duration
	// Asked is when the answered question went out: the master acted between the two. It
	// equals At for an unsolicited frame.
	Asked  time.Duration
	VIP    netip.Addr
	Master string
	Act    Act
}

// claims reports whether the master claims to be the holder.
func (s Observation) claims() bool { return s.Act != Accepts }

// String returns the observation as one line.
func (s Observation) String() string {
	return fmt.Sprintf("%s %s %s %s", clock(s.At), s.Master, s.Act, s.VIP)
}

// Move is a planned change of holder. From its beginning until Linger after its end,
// the previous holder may accept packets.
type Move struct {
	Master   string
	From, To time.Duration
}

// Trace holds the observations on a LAN, and the planned changes that excuse some of them.
type Trace struct {
	// Observations are in the order of At.
	Observations []Observation
	// Moves are the planned changes.
	Moves []Move
	// Questions are when the observer asked for each VIP.
	Questions map[netip.Addr][]time.Duration
	// Strangers counts the frames that claimed a VIP but came from no master, by MAC address.
	Strangers map[string]int
	// End is when the observation ended.
	End time.Duration
}

// ofVIP returns the observations of one VIP.
func (t *Trace) ofVIP(vip netip.Addr) (list []Observation) {
	for _, s := range t.Observations {
		if s.VIP == vip {
			list = append(list, s)
		}
	}
	return list
}

// vips returns the VIPs of all observations.
func (t *Trace) vips() (list []netip.Addr) {
	for _, s := range t.Observations {
		if !slices.Contains(list, s.VIP) {
			list = append(list, s.VIP)
		}
	}
	slices.SortFunc(list, netip.Addr.Compare)
	return list
}

// Reign is a span during which one master was seen to hold a VIP.
type Reign struct {
	VIP    netip.Addr
	Master string
	// First and Last are its first and last claim.
	First, Last Observation
}

// Reigns returns the successive holders of the VIP.
func (t *Trace) Reigns(vip netip.Addr, l Limits) []Reign {
	reigns, _ := l.reigns(t.ofVIP(vip), t.End)
	return reigns
}

// Silence is a span without answers for a VIP, from the first unanswered question to the last.
type Silence struct{ From, To time.Duration }

// Silences returns the rows of at least that many unanswered questions for a VIP. Gaps
// without questions, when the observer did not run, are no silence.
func (t *Trace) Silences(vip netip.Addr, least int) (list []Silence) {
	answered := make(map[time.Duration]bool)
	for _, s := range t.Observations {
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

// around lists the changes of the masters' acts near an instant.
func (t *Trace) around(vip netip.Addr, at time.Duration) (lines []string) {
	const before, after, most = time.Second, 500 * time.Millisecond, 60
	list := slices.DeleteFunc(t.ofVIP(vip), func(s Observation) bool { return s.At < at-before || s.At > at+after })
	type deed struct {
		master string
		act    Act
	}
	last := make(map[deed]time.Duration)
	for i, s := range list {
		d := deed{s.Master, s.Act}
		// Of equal consecutive acts, list only the first and the last.
		next := slices.IndexFunc(list[i+1:], func(o Observation) bool { return deed{o.Master, o.Act} == d })
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

func sortByTime(list []Observation) {
	slices.SortStableFunc(list, func(a, b Observation) int { return cmp.Compare(a.At, b.At) })
}

// clock formats a time since the start of the observation.
func clock(d time.Duration) string { return fmt.Sprintf("+%.4fs", d.Seconds()) }
