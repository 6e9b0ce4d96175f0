package bench

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Target is something that is wanted of Herald on a flat layer 2, or of its bridge, and
// what came of it in a run.
type Target struct {
	Fault, Speaker string
	// Wanted and Measured say it in words; Met says whether the one is as good as the other.
	Wanted, Measured string
	Met              bool
}

const (
	// nearlyAtOnce is for a fault that announces itself.
	nearlyAtOnce = 40 * time.Millisecond
	// silently is for one that does not, with the default lease: its end, and a successor to notice.
	silently = 800 * time.Millisecond
	// afterLease is how much longer than its lease a holder without a majority may be missed.
	afterLease = 200 * time.Millisecond
	// bridgedWithin is for a fault that announces itself, whatever the router needs.
	bridgedWithin = 15 * time.Millisecond
)

// Targets compares Herald on the flat layer 2 with what is wanted of it. The
// short lease is measured against the tuned keepalived of the same run. What was
// not measured is left out.
func (r *Results) Targets() (list []Target) {
	var flat []Summary
	for _, s := range r.Summaries() {
		if s.Router == NoRouter {
			flat = append(flat, s)
		}
	}
	for _, s := range flat {
		switch s.Speaker {
		case heraldARPName(defaultLease):
			list = append(list, s.targets(defaultLease, silently, "")...)
		case heraldARPName(shortLease):
			rival := slices.IndexFunc(flat, func(k Summary) bool { return k.Speaker == keepalivedName(true) && k.Fault == s.Fault })
			if rival < 0 {
				list = append(list, s.targets(shortLease, 0, "")...)
				continue
			}
			limit, _ := flat[rival].without().Median()
			list = append(list, s.targets(shortLease, limit, ", as "+keepalivedName(true))...)
		}
	}
	for _, lease := range []time.Duration{defaultLease, shortLease} {
		all := Summary{Fault: "all of them", Speaker: heraldARPName(lease)}
		for _, s := range flat {
			if s.Speaker == all.Speaker {
				all.Trials, all.Splits = all.Trials+s.Trials, all.Splits+s.Splits
			}
		}
		if all.Trials > 0 {
			list = append(list, all.target("never two holders", fmt.Sprintf("in %d of %d trials", all.Splits, all.Trials), all.Splits == 0))
		}
	}
	return list
}

// targets are those of one fault. limit is for faults that do not announce
// themselves, 0 if there is nothing to compare them with; whose says where it is from.
func (s Summary) targets(lease, limit time.Duration, whose string) []Target {
	switch s.Fault {
	case drained, terminated, upgraded:
		return []Target{s.target("0 failed", fmt.Sprintf("%d of %d", s.Failed, s.Attempts), s.Failed == 0)}
	case apiserverKilled:
		return []Target{s.within(nearlyAtOnce, "")}
	case speakerKilled, speakerFrozen, powerLoss:
		if limit == 0 {
			return nil
		}
		return []Target{s.within(limit, whose)}
	case cutOff, parted:
		worst, ok := s.After.Max()
		return []Target{
			s.within(lease+afterLease, ""),
			s.target("no outage after it", ms(worst)+" ms at most", ok && worst == 0),
		}
	}
	return nil
}

// without is how long there was no holder whom the clients could reach: until
// another master claimed the VIP, or their outage where that was longer. A
// server whose speaker is dead may answer on for a while.
func (s Summary) without() Sample {
	taken, claimed := s.Taken.Median()
	out, ended := s.Outage.Median()
	if claimed && (!ended || out > taken) {
		return s.Outage
	}
	return s.Taken
}

// within compares the median time without a holder with a limit.
func (s Summary) within(limit time.Duration, whose string) Target {
	d := s.without()
	median, ok := d.Median()
	return s.target(fmt.Sprintf("≤ %s ms%s", ms(limit), whose), d.String()+" ms", ok && median <= limit)
}

func (s Summary) target(wanted, measured string, met bool) Target {
	return Target{Fault: s.Fault, Speaker: s.Speaker, Wanted: wanted, Measured: measured, Met: met}
}

// BridgeTargets compares Herald with a bridge with what is wanted of it behind a router.
// What was not measured is left out.
func (r *Results) BridgeTargets(router string) (list []Target) {
	for _, s := range r.Summaries() {
		if s.Speaker != heraldBridge || s.Router != router {
			continue
		}
		switch s.Fault {
		case apiserverKilled:
			median, ok := s.Outage.Median()
			list = append(list, s.target(fmt.Sprintf("≤ %s ms", ms(bridgedWithin)), s.Outage.String()+" ms", ok && median <= bridgedWithin))
		case drained, terminated, upgraded:
			list = append(list, s.target("0 failed", fmt.Sprintf("%d of %d", s.Failed, s.Attempts), s.Failed == 0))
		}
	}
	return list
}

// writeTargets writes what is wanted of Herald, if any of it was measured; by says which figures count.
func writeTargets(b *strings.Builder, targets []Target, by string) {
	rows := [][]string{{"fault", "speaker", "wanted", "measured", "met"}}
	fault := ""
	for _, t := range targets {
		row := []string{"", t.Speaker, t.Wanted, t.Measured, "yes"}
		if t.Fault != fault {
			fault, row[0] = t.Fault, t.Fault
		}
		if !t.Met {
			row[4] = "**no**"
		}
		rows = append(rows, row)
	}
	if len(rows) == 1 {
		return
	}
	fmt.Fprintf(b, "\nWhat is wanted of Herald here, by the median: %s.\n\n", by)
	align(b, rows)
}
