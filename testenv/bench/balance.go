package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"

	"github.com/herald-vip/herald/testenv/bench/balancer"
)

type balanceServerCmd struct {
	Listen string `required:"" placeholder:"HOST:PORT" help:"Address to listen on."`
	Name   string `required:"" placeholder:"NAME" help:"The server's name, which it answers with."`
}

// Run serves until ctx ends.
func (c *balanceServerCmd) Run(ctx context.Context) error {
	l, err := balancer.Listen(ctx, c.Listen)
	if err != nil {
		return err
	}
	collectLate()
	return (&balancer.Server{Name: c.Name}).Serve(ctx, l)
}

// collectLate delays garbage collection until there is much garbage. A collection
// takes a core for as long as several connections. Several a second would dominate the
// slowest hundredth of connections.
func collectLate() {
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(256 << 20)
}

type balanceClientCmd struct {
	Kind string `arg:"" enum:"load,bulk" help:"Kind of the task."`
	Task string `arg:"" placeholder:"JSON" help:"The task as JSON: balancer.Load or balancer.Bulk."`
}

// Run does the task until it is complete or ctx ends, and writes its result.
func (c *balanceClientCmd) Run(ctx context.Context) error {
	var task balancer.Task = new(balancer.Load)
	if c.Kind == "bulk" {
		task = new(balancer.Bulk)
	}
	if err := json.Unmarshal([]byte(c.Task), task); err != nil {
		return fmt.Errorf("parse the task: %w", err)
	}
	collectLate()
	result, err := task.Run(ctx)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(result)
}
