package admin

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/herald-vip/herald/arp"
	"github.com/herald-vip/herald/bgp"
	"github.com/herald-vip/herald/internal/text"
	"github.com/herald-vip/herald/netutil/address"
	"github.com/herald-vip/herald/speaker"
)

// States of an address that falls short of its stage.
const (
	Blocked speaker.Stage = "blocked" // something prevents the stage
	Unsent  speaker.Stage = "unsent"  // it is announced by BGP, and no peer was sent the route
)

// NewVIP composes the status of an address from that of the speaker, of the address on its link, and of the hosts that use
// it. sent are the names of the peers that were sent its route.
func NewVIP(s speaker.Status, link address.Status, conflict arp.Finding, sessions []bgp.Session, sent []string) VIP {
	v := VIP{Status: s, Restored: link.Restored}
	if v.Error == "" && link.Err != nil {
		v.Error = link.Err.Error()
	}
	blocked := s.Blocked
	if link.Err != nil && !link.Bound && blocked.IsZero() {
		blocked = link.Since
	}
	v.Peers = nil
	switch s.Announce {
	case speaker.ByARP:
		v.Conflicts = conflict.Count
		if conflict.State == arp.Taken {
			v.Conflict = conflict.MAC.String()
		}
		v.Rival = conflict.Rival.String()
	case speaker.ByBGP:
		for _, p := range sessions {
			if slices.Contains(s.Peers, p.Name) && (s.Address.Is4() && p.IPv4 || s.Address.Is6() && p.IPv6) {
				v.Peers = append(v.Peers, p.Name)
			}
		}
	}
	v.Assess(blocked, sessions, sent)
	return v
}

// Assess sets State, Since and Sent of v, and completes Reason, from Stage, Since (of the stage), Error and Peers.
// blocked is the time from which Error prevents the stage, zero if it does not. peers are all sessions, and sent the
// names of the peers that were sent the route.
func (v *VIP) Assess(blocked time.Time, peers []bgp.Session, sent []string) {
	v.State = v.Stage
	if !blocked.IsZero() {
		v.State, v.Since = Blocked, later(v.Since, blocked)
	}
	if !v.routed() {
		return
	}
	var first, last time.Time // of the sessions with the route, of the others
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
			lacks = append(lacks, fmt.Sprintf("not sent to %s, which is %s", p.Name, state(p)))
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

// routed reports whether peers should have the route in this stage.
func (v VIP) routed() bool {
	return v.Announce == speaker.ByBGP && (v.Stage == speaker.Announced || v.Stage == speaker.Draining || v.Stage == speaker.Demoted)
}

// Told returns the state for people: with the number of peers, if not all were sent the route.
func (v VIP) Told() string {
	if v.State != Blocked && v.routed() && (len(v.Sent) < len(v.Peers) || len(v.Sent) == 0) {
		return fmt.Sprintf("%s to %d of %d peers", v.Stage, len(v.Sent), len(v.Peers))
	}
	return string(v.State)
}

// Quiet returns the time since the last new connection while v is announced; 0 if it is less than a minute or unknown.
func (v VIP) Quiet(now time.Time) time.Duration {
	if v.Arrivals == nil || v.State != speaker.Announced {
		return 0
	}
	since := now.Sub(later(v.Since, later(v.Arrivals.Since, v.Arrivals.Last))).Truncate(time.Second)
	if since < time.Minute {
		return 0
	}
	return since
}

// Why returns the reason of the state for people, and oddities.
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

// state returns the state of the session and its reason.
func state(p bgp.Session) string {
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

// lasts says which event ends the drain, and when it began.
func (s Status) lasts() string {
	end := "undrain or a restart"
	if s.UntilUndrain {
		end = "undrain"
	}
	return fmt.Sprintf("until %s, since %s", end, s.DrainingSince.UTC().Format(time.RFC3339))
}

// Drained returns the reason, the end and the start of the drain; empty without a drain.
func (s Status) Drained() string {
	if s.Draining == "" {
		return ""
	}
	return fmt.Sprintf("%s (%s)", s.Draining, s.lasts())
}

// Left lists the addresses that a drain has yet to withdraw.
func (s Status) Left() (left []string) {
	for _, v := range s.VIPs {
		if v.Stage != speaker.Withdrawn || v.State == Blocked {
			left = append(left, v.Name+" "+v.Address.String())
		}
	}
	if s.Services != nil && s.Services.Routes+s.Services.Held > 0 {
		left = append(left, fmt.Sprintf("%d routes and %d held addresses of Services", s.Services.Routes, s.Services.Held))
	}
	return left
}

// WriteDrain renders the result of a drain for people; before is the status before it.
func (s Status) WriteDrain(w io.Writer, before Status) error {
	complete := len(s.Left()) == 0
	if complete && before.Draining != "" {
		_, err := fmt.Fprintf(w, "drained already, %s: %s\n", s.lasts(), text.OneLine(s.Draining))
		return err
	}
	t := newTable(w, time.Time{})
	if len(s.VIPs) > 0 {
		t.Row("VIP", "ADDRESS", "LINK", "WAS", "IS")
	}
	for _, v := range s.VIPs {
		i := slices.IndexFunc(before.VIPs, func(b VIP) bool { return b.Address == v.Address && b.Interface == v.Interface })
		previous := ""
		if i >= 0 {
			previous = before.VIPs[i].Told()
		}
		current := cmp.Or(v.Error, string(v.Stage))
		if holder := s.Election.Holder(v.Name); current == string(speaker.Withdrawn) && previous == string(speaker.Announced) && holder != "" && holder != s.Node {
			current = "handed over to " + holder
		}
		t.Row(v.Name, v.Address.String(), v.Interface, previous, current)
	}
	if b := before.Services; b != nil && s.Services != nil {
		fmt.Fprintf(t, "Services: %d of %d routes and %d of %d held addresses withdrawn\n",
			b.Routes-s.Services.Routes, b.Routes, b.Held-s.Services.Held, b.Held)
	}
	if complete {
		fmt.Fprintf(t, "drained %s: %s\n", s.lasts(), text.OneLine(s.Draining))
	}
	return t.Flush()
}

// Holder returns the holder of a VIP's lease; empty if it is not known.
func (e *Election) Holder(vip string) string {
	if e != nil {
		for _, l := range e.Leases {
			if l.Lease == vip {
				return l.Holder
			}
		}
	}
	return ""
}
