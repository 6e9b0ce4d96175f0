package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"

	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/daemon"
	"github.com/herald-vip/herald/doctor"
)

// errBlocked makes `herald doctor` exit with 1, so that an installation can stop there.
var errBlocked = errors.New("this node is not ready for its VIPs: see the blockers")

type doctorCommand struct {
	configFlag
	Output string `short:"o" enum:"text,json" default:"text" help:"Output format: text or json."`
}

// Run examines this node and prints what it found.
func (c doctorCommand) Run(ctx context.Context) error {
	parsed, err := config.Load(c.Config, config.NodeName(c.NodeName))
	if err != nil {
		return &daemon.ConfigError{Err: err}
	}
	facts := doctor.Gather(ctx, parsed, c.Config)
	report := doctor.NewReport(buildVersion(), c.Config, parsed, facts.Now, doctor.Examine(parsed, facts))
	if c.Output == "json" {
		encoder := json.NewEncoder(os.Stdout)
		encoder.SetIndent("", "  ")
		err = encoder.Encode(report)
	} else {
		err = report.WriteText(os.Stdout)
	}
	if err == nil && report.Blockers > 0 {
		return errBlocked
	}
	return err
}
