// Package failover measures how long a control-plane VIP is unreachable after a fault,
// in one run, on one machine, with one prober. Behind BGP routers it compares Herald
// with its own sessions, Herald with FRR beside it, FRR with a health script, and
// ExaBGP with its healthcheck. On a flat layer 2 it compares Herald and keepalived.
//
// The networks are labs of namespaces. In bench-bgp.clab.yml two routers of different
// make see every fault at once, each with a client behind it. bench-arp.clab.yml is
// one link with a client and an observer. docs/benchmarks.md explains how to read the
// result.
package failover

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/herald-vip/herald/testenv/bench/observe"
	"github.com/herald-vip/herald/testenv/bench/record"
	"github.com/herald-vip/herald/testenv/bench/suite"
	"github.com/herald-vip/herald/testenv/step"
)

// connections is the least number of connections of each client in all trials of a
// planned change; quickly replaces it with Options.Quick.
const connections, quickly = 5000, 500

// fewTrials is the number of trials of a fault that takes half a minute.
const fewTrials = 3

// bench is a run.
type bench struct {
	suite.Options
	*record.Recorder
	labs int // labs started so far
}

// part is a set of faults of one speaker in one network, made in one lab after the other.
type part struct {
	speaker speaker
	flat    bool // instead of behind routers
	bfd     int  // milliseconds, 0 for none
	faults  []fault
}

// RunBGP measures speakers behind routers. It records results until ctx ends.
func RunBGP(ctx context.Context, rec *record.Recorder, o suite.Options) error {
	return run(ctx, rec, o, routedParts)
}

// RunFlat measures speakers on a flat layer 2.
func RunFlat(ctx context.Context, rec *record.Recorder, o suite.Options) error {
	return run(ctx, rec, o, flatParts)
}

func routedParts(o suite.Options) (parts []part) {
	binary := o.Programs["herald"]
	for _, s := range []speaker{herald(binary), frr(quick())} {
		parts = append(parts,
			part{speaker: s, faults: named(slices.Concat(healthFaults(), plannedFaults(), []string{speakerKilled, powerLoss + byHoldTime, cutOff + byHoldTime})...)},
			part{speaker: s, bfd: 50, faults: named(speakerFrozen+byBFD50, powerLoss+byBFD50, cutOff+byBFD50)},
			part{speaker: s, bfd: 10, faults: named(powerLoss + byBFD10)})
	}
	parts = append(parts,
		part{speaker: bridging(binary), faults: named(slices.Concat(healthFaults(), plannedFaults())...)},
		part{speaker: heraldAndFRR(binary), faults: named(healthFaults()...)},
		part{speaker: exabgp(asHerald()), faults: named(healthFaults()...)})
	if !o.Quick {
		slowly := part{speaker: exabgp(asShipped()), faults: named(healthFaults()...)}
		for i := range slowly.faults {
			slowly.faults[i].limit = slowLimit
		}
		parts = append(parts, part{speaker: frr(usual()), faults: named(healthFaults()...)}, slowly)
	}
	return parts
}

func flatParts(o suite.Options) (parts []part) {
	for _, lease := range []time.Duration{defaultLease, shortLease} {
		// Other speakers have no command to drain.
		faults := named(slices.Insert(flatFaults(), 2, drained)...)
		parts = append(parts, part{speaker: heraldARP(o.Programs["herald"], lease), flat: true, faults: faults})
	}
	parts = append(parts, part{speaker: keepalived(true), flat: true, faults: named(flatFaults()...)})
	if !o.Quick {
		// kubeadm's check takes half a minute to detect a failure, so one fault that it must
		// detect is enough.
		faults := slices.DeleteFunc(named(flatFaults()...), func(f fault) bool { return f.name == apiserverFrozen })
		faults[0].limit = documentedLimit
		parts = append(parts, part{speaker: keepalived(false), flat: true, faults: faults})
	}
	return parts
}

func run(ctx context.Context, rec *record.Recorder, o suite.Options, list func(suite.Options) []part) error {
	b := &bench{Options: o, Recorder: rec}
	var parts []part
	failed := step.Run(func() { parts = list(o) })
	for _, p := range parts {
		p.faults = slices.DeleteFunc(p.faults, func(f fault) bool { return !b.wants(f.name) || f.slow && b.Quick })
		failed = errors.Join(failed, step.Run(func() { b.measure(ctx, p) }))
		if ctx.Err() != nil {
			break
		}
	}
	return failed
}

// wants reports whether to measure a fault.
func (b *bench) wants(fault string) bool {
	return len(b.Only) == 0 || slices.ContainsFunc(b.Only, func(text string) bool { return strings.Contains(fault, text) })
}

// perTrial returns the number of connections of a client in one trial of a planned change.
func (b *bench) perTrial() int {
	if b.Quick {
		return quickly / b.Trials
	}
	return (connections + b.Trials - 1) / b.Trials
}

// maxDiscarded bounds the discarded trials of a series.
const maxDiscarded = 5

// measure makes a series of trials of each fault, in a lab that it starts when there
// is none. It records a failed trial as inconclusive, with the reason, and repeats it
// in a new lab, because the state of the old one is unknown.
func (b *bench) measure(ctx context.Context, p part) {
	var s *site
	stop := func() (err error) {
		if s != nil {
			err, s = s.close(), nil
		}
		return err
	}
	defer step.Close(stop)
	for _, f := range p.faults {
		trials, discarded, name := b.Trials, 0, f.result(p.speaker.name, "")
		if p.flat {
			name = f.result(p.speaker.name, layer2)
		}
		if f.limit >= documentedLimit {
			trials = min(trials, fewTrials)
		}
		for number := 1; number <= trials; {
			err := step.Run(func() {
				if s == nil {
					b.labs++
					s = open(ctx, b.Options, p, filepath.Join(b.Dir, fmt.Sprintf("lab%d", b.labs)))
				}
				b.try(ctx, s, f, number)
			})
			if ctx.Err() != nil {
				step.Do(context.Cause(ctx))
			}
			if err == nil {
				number++
				continue
			}
			b.Discard(name, err)
			if discarded++; discarded > maxDiscarded {
				step.Do(fmt.Errorf("%s: given up after %d discarded trials: %w", name, discarded, err))
			}
			if !errors.Is(err, observe.ErrDisturbed) { // after a disturbance the lab is still usable
				step.Do(stop())
			}
		}
	}
}

// try makes one trial, and records it unless the prober was starved.
func (b *bench) try(ctx context.Context, s *site, f fault, number int) {
	made := s.try(ctx, f, number, b.perTrial())
	for _, t := range made {
		if t.Starved*20 > t.Attempts {
			step.Do(fmt.Errorf("%w: the prober was starved in %d of %d attempts", observe.ErrDisturbed, t.Starved, t.Attempts+t.Starved))
		}
	}
	for _, t := range made {
		b.Add(f.result(s.speaker.name, t.router), t.values()...)
	}
}
