package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"time"

	"github.com/herald-vip/herald/internal/probe"
)

// errOutage makes `herald probe` exit with 1, so that a drill can be scripted.
var errOutage = errors.New("the target was not reachable all the time")

// errNoAttempt fails a drill that made no attempt.
var errNoAttempt = errors.New("this machine made no connection to judge the target by: see --source, its free ports and file descriptors, and its load")

type probeCommand struct {
	Target   string        `arg:"" placeholder:"HOST:PORT" help:"The address to connect to."`
	Interval time.Duration `default:"5ms" help:"Time between two attempts."`
	Timeout  time.Duration `default:"100ms" help:"The timeout of an attempt."`
	Duration time.Duration `default:"0s" help:"How long to probe; 0 means until Ctrl-C."`
	Source   netip.Addr    `help:"Local address to connect from."`
	Identify bool          `help:"GET / on each connection and count the answers by their X-Served-By header."`
	Output   string        `short:"o" enum:"text,json" default:"text" help:"Output format: text or json."`
}

// Validate is called by the parser.
func (c probeCommand) Validate() error {
	if _, _, err := net.SplitHostPort(c.Target); err != nil {
		return fmt.Errorf("want HOST:PORT, such as 10.99.0.10:6443: %w", err)
	}
	if c.Interval <= 0 || c.Timeout <= 0 {
		return errors.New("--interval and --timeout must be positive")
	}
	return nil
}

func (c probeCommand) Run(ctx context.Context) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt)
	defer stop()
	if c.Duration > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.Duration)
		defer cancel()
	}
	prober := probe.Prober{
		Target: c.Target, Interval: c.Interval, Timeout: c.Timeout, Source: c.Source, Identify: c.Identify, Keep: -1,
	}
	result, err := prober.Run(ctx)
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
