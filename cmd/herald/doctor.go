package main

import (
	"context"
	"errors"

	"github.com/herald-vip/herald/doctor"
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
