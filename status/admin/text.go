package admin

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/herald-vip/herald/status/text"
)

// table writes rows to w in columns, with times as how long ago they were.
func table(w io.Writer, now time.Time) (tw *tabwriter.Writer, row func(...string), ago func(time.Time) string) {
	ago = func(t time.Time) string {
		if t.IsZero() {
			return "-"
		}
		return now.Sub(t).Truncate(time.Second).String()
	}
	tw = tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	row = func(cells ...string) {
		for i, c := range cells {
			cells[i] = cmp.Or(text.OneLine(c), "-")
		}
		fmt.Fprintln(tw, strings.Join(cells, "\t"))
	}
	return tw, row, ago
}

// warn tells what is wrong, if anything is.
func warn(w io.Writer, about, what string) {
	if what != "" {
		fmt.Fprintf(w, "%s: %s\n", about, text.OneLine(what))
	}
}

// WriteText renders s for people as of now.
func (s Status) WriteText(w io.Writer, now time.Time) error {
	tw, row, ago := table(w, now)
	fmt.Fprintf(tw, "herald %s on %s, up %s, configuration %s generation %d\n",
		s.Version, s.Node, ago(s.Started), s.Config.File, s.Config.Generation)
	if s.Realtime != "" && s.Realtime != RealtimeOn {
		fmt.Fprintf(tw, "NOT IN REAL TIME: %s\n", text.OneLine(s.Realtime))
	}
	warn(tw, "DRAINING", s.Drained())
	if s.Config.Error != "" {
		fmt.Fprintf(tw, "CONFIGURATION NOT IN FORCE, the last one still runs:\n%s\n", s.Config.Error)
	}

	if len(s.VIPs) > 0 {
		fmt.Fprintln(tw)
		row("VIP", "ADDRESS", "LINK", "STATE", "FOR", "WHY")
	}
	for _, v := range s.VIPs {
		row(v.Name, v.Address.String(), v.Interface, v.Told(), ago(v.Since), v.Why())
	}

	if len(s.Checks) > 0 {
		fmt.Fprintln(tw)
		row("CHECK", "STATE", "FOR", "LATENCY", "WHY")
	}
	for _, c := range s.Checks {
		why := c.Reason
		if c.Warning != "" {
			why += "; warning: " + c.Warning
		}
		latency := time.Duration(c.Latency * float64(time.Second))
		row(c.Name, string(c.State), ago(c.Since), latency.Round(10*time.Microsecond).String(), why)
	}

	s.writeBalancers(row, tw, ago)
	s.writeElection(row, tw, ago)
	if s.Services != nil {
		s.Services.write(row, tw, ago)
	}

	if len(s.Peers) == 0 {
		return tw.Flush()
	}
	fmt.Fprintln(tw)
	row("PEER", "ASN", "STATE", "FOR", "BFD", "SENT", "WHY")
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
			path = string(p.BFD.State)
			if p.BFD.Reason != "" && why == "" {
				why = "BFD: " + p.BFD.Reason
			}
		}
		row(p.Name, fmt.Sprint(p.ASN), string(p.State), ago(p.Since), path, strings.Join(sent, ", "), why)
	}
	return tw.Flush()
}

// writeElection renders who may answer on a flat layer 2, and why nobody does.
func (s Status) writeElection(row func(...string), w io.Writer, ago func(time.Time) string) {
	e := s.Election
	if e == nil {
		return
	}
	fmt.Fprintln(w)
	warn(w, "NO PART IN THE ELECTION", e.Problem)
	warn(w, "ELECTORATE CHANGING", e.Change)
	if e.Insecure {
		fmt.Fprintln(w, "INSECURE: anybody on the network can take the VIPs, set election.keyFile")
	}
	warn(w, "KEY EXPOSED", e.Exposed)
	warn(w, "ASKS AS A VIP", e.AsksAsVIP)
	if e.Fence != FenceOn && s.answers() {
		fmt.Fprintf(w, "NO FENCE: %s\n", text.OneLine(e.Fence))
	}
	if len(e.Leases) > 0 {
		row("LEASE", "HOLDER", "EPOCH", "VOTES", "LEFT", "WHY")
	}
	for _, l := range e.Leases {
		votes, left := "", ""
		if len(l.Votes) > 0 {
			votes = fmt.Sprintf("%s (%d needed)", strings.Join(l.Votes, " "), l.Needed)
		}
		if l.Holder != "" {
			left = time.Duration(l.Left * float64(time.Second)).Round(time.Millisecond).String()
		}
		row(l.VIP, l.Holder, fmt.Sprint(l.Epoch), votes, left, l.Reason)
	}
	if len(e.Leases) > 0 {
		fmt.Fprintln(w)
	}
	row("MEMBER", "ADDRESS", "STATE", "HEARD", "STANDS FOR", "WHY")
	for _, m := range e.Members {
		state, heard := "silent", ago(m.Heard)
		switch {
		case m.Self:
			state, heard = "this node", "-"
		case m.Alive && !e.fellSilent(m.Name):
			state = "alive"
		}
		if !m.Heard.IsZero() && !m.Self {
			heard += " ago"
		}
		address := ""
		if m.Address.IsValid() {
			address = m.Address.String()
		}
		row(m.Name, address, state, heard, fmt.Sprint(m.Stands), m.Reason)
	}
	e.writeOffers(row, w, ago)
}

// answers reports whether this node may have to answer for an address on a flat layer 2.
func (s Status) answers() bool {
	return s.Services != nil || slices.ContainsFunc(s.VIPs, func(v VIP) bool { return v.Announce == ByARP })
}

// fellSilent reports whether a member that offered something does so no more, which shows long before it
// counts as gone where no votes are to be heard.
func (e *Election) fellSilent(member string) bool {
	return slices.ContainsFunc(e.Offers, func(o Offer) bool { return o.Member == member && (o.Silent || o.Left) })
}
