// Package doctor examines a node against its configuration, before Herald starts and while it runs.
// It finds problems of links, ports, capabilities, neighbours, routers, servers and certificates that
// keep VIPs from being announced or used.
//
// [facts.Gather] collects facts within ten seconds, without changing anything. examine is a pure
// function of them, so each finding can be tested by itself. A [Report] holds the findings, as text
// or JSON.
package doctor

import (
	"context"
	"slices"
	"time"

	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/doctor/facts"
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
	for _, s := range []Severity{Blocker, Warning, OK} {
		r.Findings = append(r.Findings, withSeverity(s, findings)...)
	}
	r.Blockers, r.Warnings, r.Fine = len(withSeverity(Blocker, findings)), len(withSeverity(Warning, findings)), len(withSeverity(OK, findings))
	return r
}

// withSeverity returns the findings of severity s.
func withSeverity(s Severity, findings []Finding) []Finding {
	return slices.DeleteFunc(slices.Clone(findings), func(f Finding) bool { return f.Severity != s })
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
