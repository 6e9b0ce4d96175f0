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

type soakCmd struct {
	Time     time.Duration `default:"30m" help:"How long to go on."`
	Seed     uint64        `help:"Determines the faults; that of an earlier run repeats them. Default: a random one."`
	Out      string        `default:"bin/soak" type:"path" placeholder:"DIR" help:"Folder of the nodes' logs and of the report, soak.json."`
	Storm    time.Duration `default:"40s" help:"How long the faults of one round last."`
	Slack    time.Duration `default:"1s" help:"What is added to every bound, for a machine that is busy."`
	BFD      time.Duration `name:"bfd" default:"50ms" placeholder:"INTERVAL" help:"Interval of BFD between speakers and routers, of which three may pass in silence; 0 is none."`
	Topology string        `default:"testenv/topologies/bgp.clab.yml" type:"existingfile" placeholder:"FILE" help:"The topology to run."`
	Herald   string        `default:"bin/race/herald" type:"existingfile" placeholder:"FILE" help:"The binary under test, built with -race."`
}

var errViolated = errors.New("the VIP was announced where it should not have been, or not where it should: see above")

// Run soaks until the time is over and fails if it found a violation.
func (c *soakCmd) Run(ctx context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if c.Seed == 0 {
		c.Seed = rand.Uint64N(1 << 32)
	}
	limits := soak.DefaultLimits()
	limits.Slack = c.Slack
	report, err := soak.Run(ctx, slog.New(slog.NewTextHandler(os.Stdout, nil)), soak.Options{
		Topology: c.Topology, Herald: c.Herald, Testenv: self, Dir: c.Out,
		Time: c.Time, Storm: c.Storm, Seed: c.Seed, BFD: c.BFD, Limits: limits,
	})
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

type flatSoakCmd struct {
	Faults   int           `default:"200" help:"How many faults to make at least."`
	Seed     uint64        `help:"Determines the faults; that of an earlier run repeats them. Default: a random one."`
	Lease    time.Duration `default:"600ms" help:"The election's lease."`
	Out      string        `default:"bin/soak-flat" type:"path" placeholder:"DIR" help:"Folder of the nodes' logs and of the report, soak.json."`
	Storm    time.Duration `default:"40s" help:"How long the faults of one round last."`
	Topology string        `default:"testenv/topologies/flat.clab.yml" type:"existingfile" placeholder:"FILE" help:"The topology to run."`
	Herald   string        `default:"bin/race/herald" type:"existingfile" placeholder:"FILE" help:"The binary under test, built with -race."`
}

var errTwoHolders = errors.New("two masters had the VIP, or none where one should have: see above")

// Run soaks until there were faults enough and fails if it found a violation.
func (c *flatSoakCmd) Run(ctx context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if c.Seed == 0 {
		c.Seed = rand.Uint64N(1 << 32)
	}
	report, err := soak.RunFlat(ctx, slog.New(slog.NewTextHandler(os.Stdout, nil)), soak.FlatOptions{
		Topology: c.Topology, Herald: c.Herald, Testenv: self, Dir: c.Out,
		Faults: c.Faults, Storm: c.Storm, Seed: c.Seed, Lease: c.Lease,
	})
	if report == nil {
		return err
	}
	fmt.Println()
	err = errors.Join(err, report.WriteText(os.Stdout))
	if len(report.Violations) > 0 {
		err = errors.Join(err, errTwoHolders)
	}
	return err
}
