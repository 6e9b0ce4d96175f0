package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"

	"github.com/herald-vip/herald/internal/probe"
)

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
