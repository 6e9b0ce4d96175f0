// Package bench measures how long a control-plane VIP is out of reach after a
// fault: for Herald and for FRR as a speaker with a health script, both behind
// BGP routers, and for Herald and keepalived on a flat layer 2, in one run, on
// one machine, with one prober.
//
// The networks are labs of namespaces. In one (bench-bgp.clab.yml) two routers
// of different make see every fault at once, each with a client behind it; the
// other (bench-arp.clab.yml) is a segment with a client and an observer. What a
// trial takes from them is described at [Trial]; docs/benchmarks.md says how to
// read the result.
package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Options say what to measure.
type Options struct {
	// Topologies is the folder of bench-bgp.clab.yml and bench-arp.clab.yml.
	Topologies string
	// Herald and Testenv are the paths of the two binaries.
	Herald, Testenv string
	// Speakers are those to measure: names of [Speakers].
	Speakers []string
	// Only leaves out the faults whose name has none of these texts; empty takes all.
	Only []string
	// Trials is how many there are of each fault.
	Trials int
	// Quick leaves out the faults that take longest.
	Quick bool
	// WithoutBFD leaves out the faults that BFD finds.
	WithoutBFD bool
	// Connections is how many each client makes at least in all trials of a
	// planned change together.
	Connections int
	// Logs is a folder that is to keep the labs' configurations and logs; empty keeps none.
	Logs string
}

// Speakers are the names that Options.Speakers takes.
func Speakers() []string {
	return []string{"herald", "herald-bridge", "frr", "herald-arp", "keepalived"}
}

// fewTrials is how many there are of a fault that takes half a minute.
const fewTrials = 3

// bench is a run.
type bench struct {
	Options
	out     io.Writer
	dir     string // of the labs
	results Results
	labs    int // so far
}

// Run measures and tells on out how it goes. When ctx ends, or something cannot
// be measured, it returns what it has along with the error.
func Run(ctx context.Context, out io.Writer, o Options) (_ *Results, err error) {
	for _, s := range o.Speakers {
		if !slices.Contains(Speakers(), s) {
			return nil, fmt.Errorf("there is no speaker %q; there are %s", s, strings.Join(Speakers(), ", "))
		}
	}
	b := &bench{Options: o, out: out, dir: o.Logs}
	if b.dir == "" {
		if b.dir, err = os.MkdirTemp("", "bench-"); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(b.dir)) }()
	}
	if b.dir, err = filepath.Abs(b.dir); err != nil {
		return nil, err
	}
	b.results.Setting = Setting{Began: time.Now().UTC().Truncate(time.Second), Machine: thisMachine(), Versions: versions(ctx, o.Herald)}
	err = b.run(ctx)
	b.results.Took = time.Since(b.results.Began).Truncate(time.Second)
	return &b.results, err
}

func (b *bench) run(ctx context.Context) error {
	var failed error
	for _, name := range b.Speakers {
		var parts []func(context.Context) error // each a lab
		switch name {
		case "herald":
			parts = b.full(func() speaker { return &herald{binary: b.Herald, masters: make(map[string]heraldConf)} })
		case "herald-bridge":
			bridged := func() speaker {
				return &herald{binary: b.Herald, bridge: true, masters: make(map[string]heraldConf)}
			}
			parts = append(parts, b.bgp(bridged, 0, slices.Concat(healthFaults(), plannedFaults())))
		case "frr":
			parts = b.full(func() speaker { return &frr{script: quick()} })
			if !b.Quick {
				parts = append(parts, b.bgp(func() speaker { return &frr{script: usual()} }, 0, healthFaults()))
			}
		case "herald-arp":
			parts = append(parts, b.flat(heraldARP{binary: b.Herald}), b.flat(heraldARP{binary: b.Herald, lease: shortLease}))
		case "keepalived":
			parts = append(parts, b.flat(keepalived{tuned: true}))
			if !b.Quick {
				parts = append(parts, b.flat(keepalived{}))
			}
		}
		for _, part := range parts {
			err := part(ctx)
			if ctx.Err() != nil {
				return errors.Join(failed, err)
			}
			failed = errors.Join(failed, err)
		}
	}
	return failed
}

// full is all that there is to measure of a BGP speaker.
func (b *bench) full(s func() speaker) []func(context.Context) error {
	parts := []func(context.Context) error{b.bgp(s, 0, slices.Concat(healthFaults(), speakerFaults()))}
	if !b.WithoutBFD {
		parts = append(parts, b.bgp(s, 50, bfd50Faults()), b.bgp(s, 10, bfd10Faults()))
	}
	return parts
}

// bgp measures faults in a lab of bench-bgp.clab.yml.
func (b *bench) bgp(speaker func() speaker, bfd int, faults []fault) func(context.Context) error {
	return func(ctx context.Context) error {
		faults := slices.DeleteFunc(slices.Clone(faults), func(f fault) bool { return !b.wants(f.name) || f.slow && b.Quick })
		if len(faults) == 0 {
			return nil
		}
		var s *site
		start := func(ctx context.Context) (err error) {
			s, err = open(ctx, b.Options, speaker(), bfd, b.nextDir())
			return err
		}
		lab := &attempts{bench: b, start: start, close: func() error { return s.close() }}
		name := speaker().name()
		for _, f := range faults {
			each := func(ctx context.Context, number int) ([]Trial, error) {
				return s.trial(ctx, f, 1+(number-1)%len(masterNumbers()), b.perTrial())
			}
			if err := lab.series(ctx, name, f.name, b.Trials, each); err != nil {
				return errors.Join(err, lab.stop())
			}
		}
		return lab.stop()
	}
}

// flat measures a speaker's faults in a lab of bench-arp.clab.yml.
func (b *bench) flat(speaker flatSpeaker) func(context.Context) error {
	return func(ctx context.Context) error {
		faults := slices.DeleteFunc(speaker.faults(), func(f flatFault) bool { return !b.wants(f.name) || f.slow && b.Quick })
		if len(faults) == 0 {
			return nil
		}
		var l *flat
		start := func(ctx context.Context) (err error) {
			l, err = openFlat(ctx, b.Options, speaker, b.nextDir())
			return err
		}
		lab := &attempts{bench: b, start: start, close: func() error { return l.close() }}
		for _, f := range faults {
			trials := b.Trials
			if f.few {
				trials = min(trials, fewTrials)
			}
			each := func(ctx context.Context, _ int) ([]Trial, error) {
				t, err := l.trial(ctx, f, b.perTrial())
				return []Trial{t}, err
			}
			if err := lab.series(ctx, speaker.name(), f.name, trials, each); err != nil {
				return errors.Join(err, lab.stop())
			}
		}
		return lab.stop()
	}
}

// wants reports whether a fault is to be measured.
func (b *bench) wants(fault string) bool {
	return len(b.Only) == 0 || slices.ContainsFunc(b.Only, func(text string) bool { return strings.Contains(fault, text) })
}

// perTrial is how many connections a client makes in one trial of a planned change.
func (b *bench) perTrial() int { return (b.Connections + b.Trials - 1) / b.Trials }

// nextDir is the folder of the next lab.
func (b *bench) nextDir() string {
	b.labs++
	return filepath.Join(b.dir, fmt.Sprintf("lab%d", b.labs))
}
