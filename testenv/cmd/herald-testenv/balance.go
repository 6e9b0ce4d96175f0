package main

import (
	"context"
	"encoding/json"
	"os"
	"runtime/debug"

	"github.com/herald-vip/herald/testenv/balance"
)

type balanceServerCmd struct {
	Listen string `required:"" placeholder:"HOST:PORT" help:"Address to listen on."`
	Name   string `required:"" placeholder:"NAME" help:"The server's name, which it answers with."`
}

// Run serves until ctx ends.
func (c *balanceServerCmd) Run(ctx context.Context) error {
	l, err := balance.Listen(ctx, c.Listen)
	if err != nil {
		return err
	}
	collectLate()
	return (&balance.Server{Name: c.Name}).Serve(ctx, l)
}

// collectLate puts the collection of garbage off until there is much. Each takes a core for
// as long as several connections take, and several a second would be most of what the slowest
// hundredth of connections has met.
func collectLate() {
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(256 << 20)
}

type balanceLoadCmd struct {
	Load string `arg:"" placeholder:"JSON" help:"What to do: balance.Load."`
}

// Run loads until ctx ends, if not before, and writes what came of it.
func (c *balanceLoadCmd) Run(ctx context.Context) error {
	var load balance.Load
	if err := json.Unmarshal([]byte(c.Load), &load); err != nil {
		return configError{err}
	}
	collectLate()
	r, err := load.Run(ctx)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(r)
}

type balanceBulkCmd struct {
	Bulk string `arg:"" placeholder:"JSON" help:"What to do: balance.Bulk."`
}

// Run reads for as long as it is told and writes what came of it.
func (c *balanceBulkCmd) Run(ctx context.Context) error {
	var bulk balance.Bulk
	if err := json.Unmarshal([]byte(c.Bulk), &bulk); err != nil {
		return configError{err}
	}
	r, err := bulk.Run(ctx)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(r)
}
