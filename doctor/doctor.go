// Package doctor examines a node against its configuration, before Herald starts and while it runs.
// It finds problems of links, ports, capabilities, neighbours, routers, servers and certificates that
// keep VIPs from being announced or used.
//
// [facts.Gather] collects facts within ten seconds, without changing anything. examine is a pure function of them, so
// each finding can be tested by itself. A [Report] holds the findings, as text or JSON.
package doctor

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/doctor/facts"
	"github.com/herald-vip/herald/health"
	"github.com/herald-vip/herald/internal/text"
)

// Severity grades the consequence of a finding for the VIPs.
type Severity string

// The severities, the gravest first.
const (
	// Blocker: a VIP cannot be announced, or clients cannot use it.
	Blocker Severity = "blocker"
	// Warning: it works less well than it could, or fails with a further fault, or is unknown.
	Warning Severity = "warning"
	// OK: nothing to do.
	OK Severity = "ok"
)

// Finding is the result of one examination.
type Finding struct {
	Severity Severity `json:"severity"`
	// Topic is the kind of thing: herald, configuration, process, node, software, vip,
	// balancer, port, member, peer, check, certificate or tenant.
	Topic string `json:"topic"`
	// Subject is the thing itself, such as an address.
	Subject string `json:"subject"`
	// Seen is its state.
	Seen string `json:"seen"`
	// Why is the consequence; empty if OK.
	Why string `json:"why,omitempty"`
	// Cure is a command, a line to write, or a place to look; empty if OK.
	Cure string `json:"cure,omitempty"`
}

// Report is the result of an examination. `herald doctor -o json` prints its JSON form.
type Report struct {
	Version string    `json:"version"`
	Node    string    `json:"node"`
	Config  string    `json:"config"` // the file
	At      time.Time `json:"at"`
	// Blockers, Warnings and Fine count the findings.
	Blockers int `json:"blockers"`
	Warnings int `json:"warnings"`
	Fine     int `json:"fine"`
	// Findings are ordered by severity, the gravest first, and then by topic.
	Findings []Finding `json:"findings"`
}

// Examine examines this node against c, which was read from file. The report names version, Herald's own.
func Examine(ctx context.Context, version string, c *config.Config, file string) Report {
	c, f := facts.Gather(ctx, c, file)
	return newReport(version, file, c, f.Now, examine(c, f))
}

// newReport orders and counts the findings about the node of c at the time at.
func newReport(version, file string, c *config.Config, at time.Time, findings []Finding) Report {
	r := Report{Version: version, Node: c.NodeName, Config: file, At: at.UTC().Truncate(time.Second), Findings: []Finding{}}
	counts := map[Severity]int{}
	for _, s := range []Severity{Blocker, Warning, OK} {
		graded := slices.DeleteFunc(slices.Clone(findings), func(f Finding) bool { return f.Severity != s })
		r.Findings, counts[s] = append(r.Findings, graded...), len(graded)
	}
	r.Blockers, r.Warnings, r.Fine = counts[Blocker], counts[Warning], counts[OK]
	return r
}

// examine derives the findings from the facts about the node of c. A missing fact is at most a warning.
func examine(c *config.Config, f *facts.Facts) []Finding {
	var out findings
	for _, section := range []struct {
		topic   string
		examine func(*config.Config, *facts.Facts, *findings)
	}{
		{"herald", examineHerald},
		{"configuration", examineFiles},
		{"process", examineRights},
		{"node", examineRealtime},
		{"node", examineClock},
		{"node", examineIPv6},
		{"node", examineReversePath},
		{"node", examineARPAnswers},
		{"node", examineStrictARP},
		{"node", examineNeighbourTable},
		{"node", examineFence},
		{"software", examineSoftware},
		{"vip", examineVIPs},
		{"node", examineKernel},
		{"node", examineForwarding},
		{"balancer", examineBalancers},
		{"node", examineFilters},
		{"port", examinePorts},
		{"port", examineOwnAddresses},
		{"member", examineMembers},
		{"member", examinePassing},
		{"peer", examinePeers},
		{"check", examineChecks},
		{"certificate", examineCertificates},
		{"tenant", examineTenants},
	} {
		out.topic = section.topic
		section.examine(c, f, &out)
	}
	return out.all
}

// findings collects findings; new ones get the topic.
type findings struct {
	all   []Finding
	topic string
}

func (f *findings) fine(subject, seen string) { f.add(OK, subject, seen, "", "") }

func (f *findings) warning(subject, seen, why, cure string) { f.add(Warning, subject, seen, why, cure) }

func (f *findings) blocker(subject, seen, why, cure string) { f.add(Blocker, subject, seen, why, cure) }

func (f *findings) add(s Severity, subject, seen, why, cure string) {
	f.all = append(f.all, Finding{Severity: s, Topic: f.topic, Subject: subject, Seen: seen, Why: why, Cure: cure})
}

// examineChecks reports the result of one probe of each check.
func examineChecks(c *config.Config, f *facts.Facts, out *findings) {
	for _, v := range f.Checks {
		switch {
		case v.State == health.Healthy && v.Warning == "":
			out.fine(v.Name, v.Reason)
		case v.State == health.Healthy:
			out.warning(v.Name, v.Warning, "The check still passes.", "see the server, or the files of the check")
		case v.State == health.Unknown && v.Warning != "":
			out.warning(v.Name, v.Warning, withheld, "find the load on the server")
		case v.State == health.Unknown:
			out.warning(v.Name, "no answer during this examination", withheld, "try again; check the server")
		case f.Absent[v.Name] && len(f.Endpoints[v.Name].Chain) == 0:
			// Neither file nor server exists yet, as before kubeadm init or join.
			out.warning(v.Name, v.Reason, withheld, "nothing, if the file is created with the server, as by kubeadm: Herald waits for both; otherwise correct the path")
		case v.OwnFault:
			out.blocker(v.Name, v.Reason, "The fault is on this node, not in the server: the check cannot pass.", "correct the file that it names")
		case slices.ContainsFunc(c.Checks, func(k health.Check) bool { return k.Name == v.Name && k.Link != nil }):
			out.warning(v.Name, v.Reason, withheld, "set the link up, or correct its name; Herald waits for it")
		default:
			out.warning(v.Name, v.Reason, withheld, "start or repair the server; Herald waits for it")
		}
	}
}

const withheld = "The VIP is not announced from this node while it fails."

// WriteText writes r as text: blockers and warnings with reason and cure, then the fine findings, then
// a line of counts. It replaces control characters in foreign text, such as names in certificates.
func (r Report) WriteText(w io.Writer) error {
	tw := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintf(tw, "herald %s examines %s with %s\n\n", r.Version, r.Node, r.Config)
	for _, f := range r.Findings {
		label := string(f.Severity)
		switch f.Severity {
		case OK:
			continue
		case Blocker:
			label = strings.ToUpper(label)
		}
		fmt.Fprintf(tw, "%s  %s %s: %s\n", label, f.Topic, text.OneLine(f.Subject), text.OneLine(f.Seen))
		fmt.Fprintf(tw, "  why    %s\n", wrap(f.Why))
		fmt.Fprintf(tw, "  do     %s\n\n", wrap(f.Cure))
	}
	for _, f := range r.Findings {
		if f.Severity == OK {
			fmt.Fprintf(tw, "fine\t%s\t%s\t%s\n", f.Topic, text.OneLine(f.Subject), text.OneLine(f.Seen))
		}
	}
	if r.Fine > 0 {
		fmt.Fprintln(tw)
	}
	fmt.Fprintf(tw, "%s, %s, %d fine\n", count(r.Blockers, "blocker"), count(r.Warnings, "warning"), r.Fine)
	return tw.Flush()
}

// wrap breaks s into indented lines for a terminal of 100 columns.
func wrap(s string) string {
	const width, indent = 91, "\n         "
	var out strings.Builder
	column := 0
	for i, word := range strings.Fields(text.OneLine(s)) {
		n := len([]rune(word))
		switch {
		case i == 0:
		case column+1+n > width:
			out.WriteString(indent)
			column = 0
		default:
			out.WriteByte(' ')
			column++
		}
		out.WriteString(word)
		column += n
	}
	return out.String()
}

// count formats a number of things, in the plural unless n is 1.
func count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
