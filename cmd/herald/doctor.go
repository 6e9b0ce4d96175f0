package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"

	"github.com/herald-vip/herald/doctor"
	"github.com/herald-vip/herald/internal/probe"
)

// errBlocked makes `herald doctor` exit with 1, so that an installation can stop there.
var errBlocked = errors.New("this node is not ready for its VIPs: see the blockers")

type doctorCommand struct {
	configFlag
	outputFlag
}

// Run examines this node and prints the findings.
func (c doctorCommand) Run(ctx context.Context) error {
	parsed, err := load(c.Config, c.NodeName)
	if err != nil {
		return err
	}
	report := doctor.Examine(ctx, buildVersion(), parsed, c.Config)
	err = c.write(report, report.WriteText)
	if err == nil && report.Blockers > 0 {
		return errBlocked
	}
	return err
}

// errOutage makes `herald probe` exit with 1, so that a drill can be scripted.
var errOutage = errors.New("the target was not reachable all the time")

// errNoAttempt fails a drill that made no attempt.
var errNoAttempt = errors.New("this machine made no connection to judge the target by: see --source, its free ports and file descriptors, and its load")

type probeCommand struct {
	Prober probe.Prober `embed:""`
	Output string       `short:"o" enum:"text,json" default:"text" help:"Output format: text or json."`
}

// Validate is called by the parser.
func (c *probeCommand) Validate() error {
	if _, _, err := net.SplitHostPort(c.Prober.Target); err != nil {
		return fmt.Errorf("want HOST:PORT, such as 10.99.0.10:6443: %w", err)
	}
	if c.Prober.Interval <= 0 || c.Prober.Timeout <= 0 {
		return errors.New("--interval and --timeout must be positive")
	}
	return nil
}

func (c *probeCommand) Run(ctx context.Context) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt)
	defer stop()
	c.Prober.Keep = -1
	result, err := c.Prober.Run(ctx)
	if err != nil {
		return err
	}
	if c.Output == "json" {
		err = json.NewEncoder(os.Stdout).Encode(result)
	} else {
		err = result.WriteText(os.Stdout)
	}
	switch {
	case err != nil:
		return err
	case result.Failed > 0:
		return errOutage
	case result.Outcomes[probe.OK] == 0:
		return errNoAttempt
	}
	return nil
}
