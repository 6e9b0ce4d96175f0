package main

import (
	"context"
	"errors"
	"os"

	"github.com/herald-vip/herald/testenv/bench"
)

type benchServicesCmd struct {
	Announcers []string `default:"herald,metallb" placeholder:"NAME,..." help:"What to measure: ${default}."`
	Only       []string `placeholder:"PART,..." help:"Only these parts: bgp, growth, arp, curve."`
	Quick      bool     `help:"Few Services and one trial: to see that all of it works; the figures mean little."`
	Assigned   bool     `help:"Give the Services their addresses beforehand, to measure the announcing alone."`
	Out        string   `default:"bin/bench-services" placeholder:"DIR" help:"Write JSON and tables into this folder (${default})."`
	Page       string   `type:"existingfile" placeholder:"FILE" help:"Put the tables into this Markdown file, between its marks."`
	From       []string `type:"existingfile" placeholder:"FILE,..." help:"Measure nothing: read the JSON of an earlier run, or of its parts, and write the tables anew."`
	Herald     string   `default:"bin/herald" placeholder:"FILE" help:"The herald binary to measure (${default})."`
	MetalLB    string   `name:"metallb" default:"testenv/realparts/bin/metallb" placeholder:"DIR" help:"The folder of MetalLB's programs (${default})."`
	APIServer  string   `name:"kube-apiserver" default:"testenv/realparts/bin/kube-apiserver" placeholder:"FILE" help:"The kube-apiserver to run (${default})."`
	Etcd       string   `default:"/usr/bin/etcd" placeholder:"FILE" help:"The etcd to run (${default})."`
	CRDs       string   `name:"crds" default:"manifests/crds" placeholder:"DIR" help:"The folder of Herald's CRDs (${default})."`
	Logs       string   `placeholder:"DIR" help:"Keep the labs' configurations and logs in this folder."`
}

// Run measures, or reads what was measured, and publishes it. What was measured before
// Ctrl-C, or before an error, is published too.
func (c *benchServicesCmd) Run(ctx context.Context) error {
	results, err := c.results(ctx)
	if results == nil || len(results.Measurements) == 0 {
		return err
	}
	return errors.Join(err, publish(results, c.Out, c.Page))
}

func (c *benchServicesCmd) results(ctx context.Context) (*bench.ServiceResults, error) {
	if len(c.From) > 0 {
		return readParts(c.From, bench.ReadServiceJSON, (*bench.ServiceResults).Join)
	}
	self, err := selfAsRoot()
	if err != nil {
		return nil, err
	}
	return bench.RunServices(ctx, os.Stdout, bench.ServiceOptions{
		Herald: c.Herald, Testenv: self, APIServer: c.APIServer, Etcd: c.Etcd, MetalLB: c.MetalLB, CRDs: c.CRDs,
		Announcers: c.Announcers, Only: c.Only, Assigned: c.Assigned, Quick: c.Quick, Logs: c.Logs,
	})
}
