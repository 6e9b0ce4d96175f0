// Package doctor examines a node against its configuration, before Herald is started
// there and while it runs: whether the links, ports, rights, neighbours, routers,
// servers and certificates are such that its VIPs can be announced and used.
//
// [facts.Gather] looks and asks, within ten seconds and changing nothing; what it saw are
// facts. examine is a pure function of them, so that each finding can be read and
// tested by itself. A [Report] has the findings for people or programs.
package doctor

import (
	"context"
	"slices"
	"time"

	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/doctor/facts"
)

// Severity is what a finding means for the VIPs.
type Severity string

// The severities, the gravest first.
const (
	// Blocker: a VIP cannot be announced, or clients cannot use it.
	Blocker Severity = "blocker"
	// Warning: it works less well than it could, or not in every fault, or cannot be told.
	Warning Severity = "warning"
	// OK: as it should be.
	OK Severity = "ok"
)

// Finding is one thing that was examined.
type Finding struct {
	Severity Severity `json:"severity"`
	// Topic is the kind of thing: herald, configuration, process, node, software, vip,
	// balancer, port, member, peer, check, certificate or tenant.
	Topic string `json:"topic"`
	// Subject is the thing itself, such as an address.
	Subject string `json:"subject"`
	// Seen is how it is.
	Seen string `json:"seen"`
	// Why says what follows from that; empty if it is OK.
	Why string `json:"why,omitempty"`
	// Cure says what to do: a command, a line to write, or where to look; empty if it is OK.
	Cure string `json:"cure,omitempty"`
}

// Report is what an examination found. Its JSON form is what `herald doctor -o json`
// prints.
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

// Examine looks at the node of c, which was read from file, with the given version of Herald.
func Examine(ctx context.Context, version string, c *config.Config, file string) Report {
	c, f := facts.Gather(ctx, c, file)
	return newReport(version, file, c, f.Now, examine(c, f))
}

// newReport orders and counts findings about the node of c, seen at a time.
func newReport(version, file string, c *config.Config, at time.Time, findings []Finding) Report {
	r := Report{Version: version, Node: c.NodeName, Config: file, At: at.UTC().Truncate(time.Second), Findings: []Finding{}}
	for _, s := range []Severity{Blocker, Warning, OK} {
		r.Findings = append(r.Findings, of(s, findings)...)
	}
	r.Blockers, r.Warnings, r.Fine = len(of(Blocker, findings)), len(of(Warning, findings)), len(of(OK, findings))
	return r
}

// of are the findings of a severity.
func of(s Severity, findings []Finding) []Finding {
	return slices.DeleteFunc(slices.Clone(findings), func(f Finding) bool { return f.Severity != s })
}

// examine examines what was gathered about the node of c. What could not be gathered
// is a warning at most.
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

// findings are all so far; those to come are of a topic.
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
