package admin

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/herald-vip/herald/internal/text"
)

// Assess works out what is so of v, of which Stage, Since (when it was decided), Error and Peers
// are known. blocked is since when Error stands in the way, zero if it does not; peers are all
// sessions, and sent the names of those that were sent the address's route.
func (v *VIP) Assess(blocked time.Time, peers []Peer, sent []string) {
	v.State = v.Stage
	if !blocked.IsZero() {
		v.State, v.Since = Blocked, later(v.Since, blocked)
	}
	if !v.routed() {
		return
	}
	var first, last time.Time // of the sessions that were sent it, of the others
	var lacks []string
	for _, p := range peers {
		switch {
		case !slices.Contains(v.Peers, p.Name):
		case slices.Contains(sent, p.Name):
			v.Sent = append(v.Sent, p.Name)
			if first.IsZero() || p.Since.Before(first) {
				first = p.Since
			}
		default:
			last = later(last, p.Since)
			lacks = append(lacks, fmt.Sprintf("not sent to %s, which is %s", p.Name, p.state()))
		}
	}
	if len(lacks) > 0 {
		v.Reason += "; " + lacks[0]
	}
	if more := len(lacks) - 1; more > 0 {
		v.Reason += fmt.Sprintf(", and to %d more", more)
	}
	switch {
	case v.State == Blocked:
	case len(v.Sent) > 0:
		v.Since = later(later(v.Since, first), last)
	default:
		v.State, v.Since = Unsent, later(v.Since, last)
	}
}

// routed says whether peers are to have its route in its stage.
func (v VIP) routed() bool {
	return v.Announce == ByBGP && (v.Stage == Announced || v.Stage == Draining || v.Stage == Demoted)
}

// Told is the state of v for people: with to how many peers, if not to all.
func (v VIP) Told() string {
	if v.State != Blocked && v.routed() && (len(v.Sent) < len(v.Peers) || len(v.Sent) == 0) {
		return fmt.Sprintf("%s to %d of %d peers", v.Stage, len(v.Sent), len(v.Peers))
	}
	return string(v.State)
}

// quiet is for how long a router, or a switch, may send nothing before that is worth a word.
const quiet = time.Minute

// Quiet is for how long nobody is known to have begun a connection to v while it was announced. It is 0 for
// less than a minute.
func (v VIP) Quiet(now time.Time) time.Duration {
	if v.Arrivals == nil || v.State != Announced {
		return 0
	}
	since := now.Sub(later(v.Since, later(v.Arrivals.Since, v.Arrivals.Last))).Truncate(time.Second)
	if since < quiet {
		return 0
	}
	return since
}

// Why is why v is in its state, for people, and what is odd about it now.
func (v VIP) Why(now time.Time) string {
	why := cmp.Or(v.Error, v.Reason)
	if v.Prefix.IsValid() {
		why += "; announced as " + v.Prefix.String()
	}
	if v.Table != 0 {
		why += fmt.Sprintf("; by the kernel's table %d", v.Table)
	}
	if v.Restored > 0 {
		why += fmt.Sprintf(" (put back %d×)", v.Restored)
	}
	if v.Conflict != "" {
		why += "; ALSO USED BY " + v.Conflict
	}
	if v.Rival != "" {
		why += "; ALSO HELD BY THE MEMBER AT " + v.Rival
	}
	if v.Bridge != "" {
		why += "; " + v.Bridge
	}
	if since := v.Quiet(now); since > 0 {
		why += fmt.Sprintf("; no new TCP connection for %v", since)
	}
	return why
}

// state is that of the session, with the reason for it.
func (p Peer) state() string {
	if p.Reason == "" {
		return string(p.State)
	}
	return fmt.Sprintf("%s: %s", p.State, text.OneLine(p.Reason))
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
