package main

import (
	"context"
	"errors"
	"os"

	"github.com/herald-vip/herald/testenv/bench"
)

type benchCmd struct {
	Speakers    []string `default:"herald,herald-bridge,frr,herald-arp,keepalived" placeholder:"NAME,..." help:"What to measure: ${default}."`
	Only        []string `placeholder:"TEXT,..." help:"Only the faults whose name has one of these texts."`
	Trials      int      `default:"10" placeholder:"N" help:"Trials of each fault (${default})."`
	Connections int      `default:"5000" placeholder:"N" help:"Connections that each client makes at least in all trials of a planned change (${default})."`
	Quick       bool     `help:"One trial, without the faults that take longest: to see that all of it works; the figures mean little."`
	WithoutBFD  bool     `name:"without-bfd" help:"Leave out what needs BFD."`
	Out         string   `default:"bin/bench" placeholder:"DIR" help:"Write JSON, tables and chart into this folder (${default})."`
	Page        string   `type:"existingfile" placeholder:"FILE" help:"Put tables and chart into this Markdown file, between its marks."`
	From        string   `type:"existingfile" placeholder:"FILE" help:"Measure nothing: read the JSON of an earlier run and write tables and chart anew."`
	Topologies  string   `default:"testenv/topologies" type:"existingdir" placeholder:"DIR" help:"The folder of the topologies (${default})."`
	Herald      string   `default:"bin/herald" placeholder:"FILE" help:"The herald binary to measure (${default})."`
	Logs        string   `placeholder:"DIR" help:"Keep the labs' configurations and logs in this folder."`
}

// Run measures, or reads what was measured, and publishes it. What was measured
// before Ctrl-C, or before an error, is published too.
func (c *benchCmd) Run(ctx context.Context) error {
	results, err := c.results(ctx)
	if results == nil || len(results.Trials) == 0 {
		return err
	}
	return errors.Join(err, publish(results, c.Out, c.Page))
}

func (c *benchCmd) results(ctx context.Context) (*bench.Results, error) {
	if c.From != "" {
		f, err := os.Open(c.From)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		return bench.ReadJSON(f)
	}
	self, err := selfAsRoot()
	if err != nil {
		return nil, err
	}
	if c.Quick {
		c.Trials, c.Connections = 1, 500
	}
	return bench.Run(ctx, os.Stdout, bench.Options{
		Topologies: c.Topologies, Herald: c.Herald, Testenv: self, Logs: c.Logs,
		Speakers: c.Speakers, Only: c.Only, Trials: c.Trials, Quick: c.Quick, Connections: c.Connections, WithoutBFD: c.WithoutBFD,
	})
}
