package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"time"

	"github.com/herald-vip/herald/testenv/soak"
)

// soakFlags are the flags of both soaks.
type soakFlags struct {
	Seed   uint64        `help:"Determines the faults; an earlier run's seed repeats them. Default: random."`
	Storm  time.Duration `default:"40s" help:"How long the faults of one round last."`
	Herald string        `default:"bin/race/herald" type:"existingfile" placeholder:"FILE" help:"The binary under test, built with -race."`
}

type soakCmd struct {
	soakFlags
	Time     time.Duration `default:"30m" help:"How long to go on."`
	Out      string        `default:"bin/soak" type:"path" placeholder:"DIR" help:"Folder of the nodes' logs and of the report, soak.json."`
	Slack    time.Duration `default:"1s" help:"Slack added to every bound, for a busy machine."`
	BFD      time.Duration `name:"bfd" default:"50ms" placeholder:"INTERVAL" help:"Interval of BFD between speakers and routers, with a multiplier of three; 0 disables BFD."`
	Topology string        `default:"testenv/topologies/bgp.clab.yml" type:"existingfile" placeholder:"FILE" help:"The topology to run."`
}

// Run soaks until the time is over and fails if it found a violation.
func (c *soakCmd) Run(ctx context.Context) error {
	return c.run(ctx, soak.Options{Topology: c.Topology, Dir: c.Out, Time: c.Time, BFD: c.BFD, Slack: c.Slack})
}

type flatSoakCmd struct {
	soakFlags
	Faults   int           `default:"200" help:"How many faults to make at least."`
	Lease    time.Duration `default:"600ms" help:"The election's lease."`
	Join     bool          `help:"Have the masters join, and install them anew, instead of listing them."`
	Out      string        `default:"bin/soak-flat" type:"path" placeholder:"DIR" help:"Folder of the nodes' logs and of the report, soak.json."`
	Topology string        `default:"testenv/topologies/flat.clab.yml" type:"existingfile" placeholder:"FILE" help:"The topology to run."`
}

// Run soaks until there were enough faults and fails if it found a violation.
func (c *flatSoakCmd) Run(ctx context.Context) error {
	return c.run(ctx, soak.Options{Flat: true, Topology: c.Topology, Dir: c.Out, Faults: c.Faults, Lease: c.Lease, Join: c.Join})
}

var errViolated = errors.New("the VIP was announced wrongly, or was missing: see above")

func (c *soakFlags) run(ctx context.Context, o soak.Options) (err error) {
	if o.Testenv, err = os.Executable(); err != nil {
		return err
	}
	o.Seed, o.Storm, o.Herald = c.Seed, c.Storm, c.Herald
	if o.Seed == 0 {
		o.Seed = rand.Uint64N(1 << 32)
	}
	report, err := soak.Run(ctx, slog.New(slog.NewTextHandler(os.Stdout, nil)), o)
	if report == nil {
		return err
	}
	fmt.Println()
	err = errors.Join(err, report.WriteText(os.Stdout))
	if len(report.Violations) > 0 {
		err = errors.Join(err, errViolated)
	}
	return err
}
