package main

import (
	"context"
	"errors"
	"os"

	"github.com/herald-vip/herald/testenv/bench"
)

type benchBalancerCmd struct {
	Only    []string `placeholder:"PART,..." help:"Only these parts: local, remote, faults, masters, restarts."`
	Trials  int      `default:"10" placeholder:"N" help:"Trials of each fault or change; of each load there are twice as many rounds (${default})."`
	Quick   bool     `help:"Short loads and one trial: to see that all of it works; the figures mean little."`
	Out     string   `default:"bin/bench-balancer" placeholder:"DIR" help:"Write JSON and tables into this folder (${default})."`
	Page    string   `type:"existingfile" placeholder:"FILE" help:"Put the tables into this Markdown file, between its marks."`
	From    []string `type:"existingfile" placeholder:"FILE,..." help:"Measure nothing: read the JSON of an earlier run, or of its parts, and write the tables anew."`
	Herald  string   `default:"bin/herald" placeholder:"FILE" help:"The herald binary to measure (${default})."`
	HAProxy string   `name:"haproxy" default:"/usr/sbin/haproxy" placeholder:"FILE" help:"The HAProxy to measure beside it (${default})."`
	Logs    string   `placeholder:"DIR" help:"Keep the labs' configurations and logs in this folder."`
}

// Run measures, or reads what was measured, and publishes it. What was measured before
// Ctrl-C, or before an error, is published too.
func (c *benchBalancerCmd) Run(ctx context.Context) error {
	results, err := c.results(ctx)
	if results == nil || len(results.Figures) == 0 {
		return err
	}
	return errors.Join(err, publish(results, c.Out, c.Page))
}

func (c *benchBalancerCmd) results(ctx context.Context) (*bench.BalancerResults, error) {
	if len(c.From) > 0 {
		return readParts(c.From, bench.ReadBalancerJSON, (*bench.BalancerResults).Join)
	}
	self, err := selfAsRoot()
	if err != nil {
		return nil, err
	}
	return bench.RunBalancers(ctx, os.Stdout, bench.BalancerOptions{
		Herald: c.Herald, Testenv: self, HAProxy: c.HAProxy, Only: c.Only, Trials: c.Trials, Quick: c.Quick, Logs: c.Logs,
	})
}
