package admin

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/herald-vip/herald/election/lease"
	"github.com/herald-vip/herald/internal/text"
	"github.com/herald-vip/herald/speaker"
)

// table writes times as durations up to now.
type table struct {
	text.Table
	now time.Time
}

func newTable(w io.Writer, now time.Time) table {
	return table{text.NewTable(w), now}
}

// head begins another part with its header.
func (t table) head(cells ...string) {
	fmt.Fprintln(t)
	t.Row(cells...)
}

func (t table) ago(at time.Time) string {
	if at.IsZero() {
		return "-"
	}
	return t.now.Sub(at).Truncate(time.Second).String()
}

// warn writes a problem, if there is one.
func (t table) warn(about, what string) {
	if what != "" {
		fmt.Fprintf(t, "%s: %s\n", about, text.OneLine(what))
	}
}

// WriteText renders s for people as of now.
func (s Status) WriteText(w io.Writer, now time.Time) error {
	t := newTable(w, now)
	fmt.Fprintf(t, "herald %s on %s, up %s, configuration %s generation %d\n",
		s.Version, s.Node, t.ago(s.Started), s.Config.File, s.Config.Generation)
	if s.Realtime != RealtimeOn {
		t.warn("NOT IN REAL TIME", s.Realtime)
	}
	t.warn("DRAINING", s.Drained())
	if s.Config.Error != "" {
		fmt.Fprintf(t, "CONFIGURATION NOT IN FORCE, the last one still runs:\n%s\n", s.Config.Error)
	}

	if len(s.VIPs) > 0 {
		t.head("VIP", "ADDRESS", "LINK", "STATE", "FOR", "WHY")
	}
	for _, v := range s.VIPs {
		t.Row(v.Name, v.Address.String(), v.Interface, v.Told(), t.ago(v.Since), v.Why(now))
	}

	if p := s.Passing; p != nil {
		t.head("PASSES ON TO", "PACKETS", "ANSWERED", "REFUSED", "WHY")
		t.Row(strings.Join(p.Members, ", "), fmt.Sprint(p.Passed), fmt.Sprint(p.Answered), fmt.Sprint(p.Refused), p.Error)
	}

	if len(s.Checks) > 0 {
		t.head("CHECK", "STATE", "FOR", "LATENCY", "WHY")
	}
	for _, c := range s.Checks {
		why := c.Reason
		if c.Warning != "" {
			why += "; warning: " + c.Warning
		}
		latency := time.Duration(c.Latency).Round(10 * time.Microsecond)
		t.Row(c.Name, c.State.String(), t.ago(c.Since), latency.String(), why)
	}

	s.writeBalancers(t)
	s.writeElection(t)
	if s.Services != nil {
		s.Services.write(t)
	}

	if len(s.Peers) == 0 {
		return t.Flush()
	}
	t.head("PEER", "ASN", "STATE", "FOR", "BFD", "SENT", "WHY")
	for _, p := range s.Peers {
		sent := make([]string, len(p.Advertised))
		for i, prefix := range p.Advertised {
			sent[i] = prefix.String()
		}
		const few = 4
		sent = sent[:min(few, len(sent))]
		if more := p.Sent() - len(sent); more > 0 {
			sent = append(sent, fmt.Sprintf("%d more", more))
		}
		path, why := "", p.Reason
		if p.BFD != nil {
			path = p.BFD.State.String()
			if p.BFD.Reason != "" && why == "" {
				why = "BFD: " + p.BFD.Reason
			}
		}
		t.Row(p.Name, p.AS(), string(p.State), t.ago(p.Since), path, strings.Join(sent, ", "), why)
	}
	return t.Flush()
}

// writeElection renders the leases on a flat layer 2 and the members.
func (s Status) writeElection(t table) {
	e := s.Election
	if e == nil {
		return
	}
	fmt.Fprintln(t)
	t.warn("NO PART IN THE ELECTION", e.Problem)
	t.warn("ELECTORATE CHANGING", e.Change)
	if e.Insecure {
		fmt.Fprintln(t, "INSECURE: anybody on the network can take the VIPs, set election.keyFile")
	}
	t.warn("KEY EXPOSED", e.Exposed)
	mayHold := s.Services != nil || slices.ContainsFunc(s.VIPs, func(v VIP) bool { return v.Announce == speaker.ByARP })
	if e.Fence != FenceOn && mayHold {
		t.warn("NO FENCE", e.Fence)
	}
	if len(e.Leases) > 0 {
		t.Row("LEASE", "HOLDER", "EPOCH", "VOTES", "LEFT", "WHY")
	}
	for _, l := range e.Leases {
		votes, left := "", ""
		if len(l.Votes) > 0 {
			votes = fmt.Sprintf("%s (%d needed)", strings.Join(l.Votes, " "), l.Needed)
		}
		if l.Holder != "" {
			left = time.Duration(l.Left).Round(time.Millisecond).String()
		}
		t.Row(l.Lease, l.Holder, fmt.Sprint(l.Epoch), votes, left, l.Reason)
	}
	if len(e.Leases) > 0 {
		fmt.Fprintln(t)
	}
	e.writeMembers(t)
	e.writeOffers(t)
}

// WriteMembers renders the members of the election and whether they vote.
func (e *Election) WriteMembers(w io.Writer, now time.Time) error {
	t := newTable(w, now)
	t.warn("NO PART IN THE ELECTION", e.Problem)
	t.warn("ELECTORATE CHANGING", e.Change)
	e.writeMembers(t)
	return t.Flush()
}

func (e *Election) writeMembers(t table) {
	t.Row("MEMBER", "ADDRESS", "VOTES", "STATE", "HEARD", "STANDS FOR", "WHY")
	for _, m := range e.Members {
		state, heard := "silent", t.ago(m.Received)
		switch {
		case m.Self:
			state, heard = "this node", "-"
		case e.Hears(m):
			state = "alive"
		}
		if !m.Received.IsZero() && !m.Self {
			heard += " ago"
		}
		address := ""
		if m.Address.IsValid() {
			address = m.Address.String()
		}
		votes := "no"
		if m.Voter {
			votes = "yes"
		}
		t.Row(m.Name, address, votes, state, heard, fmt.Sprint(m.Campaigns), m.Problem)
	}
}

// Hears reports whether packets of a member arrive. A member without fresh advertisements counts as silent, long before
// missing votes would show it.
func (e *Election) Hears(m lease.Member) bool {
	return m.Alive && !slices.ContainsFunc(e.Offers, func(o Offer) bool { return o.Member == m.Name && (o.TimedOut || o.Left) })
}
