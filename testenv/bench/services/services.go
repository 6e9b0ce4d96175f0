// Package services compares how fast, and at what cost, Herald and MetalLB announce Services.
package services

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/herald-vip/herald/testenv/bench/observe"
	"github.com/herald-vip/herald/testenv/bench/record"
	"github.com/herald-vip/herald/testenv/routes"
	cluster "github.com/herald-vip/herald/testenv/services"
)

// Options select the measurements.
type Options struct {
	// Herald and Testenv are the paths of the two binaries, APIServer and Etcd the paths
	// of kube-apiserver and etcd, and MetalLB the folder of MetalLB's binaries.
	Herald, Testenv, APIServer, Etcd, MetalLB string
	// CRDs is the folder of Herald's definitions.
	CRDs string
	// Announcers are the programs to measure; empty means herald and metallb.
	Announcers []string
	// Only limits the parts to names that contain one of these texts; empty means all.
	Only []string
	// Quick measures everything with few Services and few trials.
	Quick bool
	// Dir is an existing folder for the labs' configurations and logs.
	Dir string
}

// scale is the extent of the measurements.
type scale struct {
	trials      int   // of an endpoint's change, in each direction
	sizes       []int // numbers of Services to measure memory and restarts at
	curve       []int // numbers of Services to measure the cost of an event at.
	nodes       int   // for the curve
	faults      int   // trials of a fault
	rests       int   // restarts at each size
	parted      time.Duration
	healed      time.Duration // observation after a partition
	quiet       time.Duration // before memory is read
	steady      time.Duration // while requests are counted
	connections int           // in all trials of a planned change
}

func (o Options) scale(announcer string) scale {
	if o.Quick {
		return scale{trials: 2, sizes: []int{1, 21, 61}, curve: []int{20, 60}, nodes: 3, faults: 1, rests: 1, parted: 3 * time.Second,
			healed: 2 * time.Second, quiet: time.Second, steady: 3 * time.Second, connections: 200}
	}
	s := scale{trials: 30, sizes: []int{1, 1001, 3001}, curve: []int{100, 1000, 10000}, nodes: 5, faults: 10, rests: 5, parted: 15 * time.Second,
		healed: 15 * time.Second, quiet: 15 * time.Second, steady: time.Minute, connections: 5000}
	if announcer != "herald" {
		// Each of these takes minutes.
		s.faults, s.rests, s.curve = 5, 2, []int{100, 1000, 3000}
	}
	return s
}

// Run takes the measurements of each announcer.
func Run(ctx context.Context, rec *record.Recorder, o Options) (err error) {
	if len(o.Announcers) == 0 {
		o.Announcers = []string{"herald", "metallb"}
	}
	for _, part := range []struct {
		name string
		run  func(*stage, context.Context) error
	}{
		{"bgp", (*stage).bgpPart},
		{"growth", (*stage).growthPart},
		{"arp", (*stage).arpPart},
		{"curve", (*stage).curvePart},
	} {
		if len(o.Only) > 0 && !slices.Contains(o.Only, part.name) {
			continue
		}
		for _, a := range o.Announcers {
			if e := o.stage(ctx, rec, a, part.name, part.run); e != nil {
				err = errors.Join(err, fmt.Errorf("%s, %s: %w", a, part.name, e))
			}
			if ctx.Err() != nil {
				return err
			}
		}
	}
	return err
}

// stage is a lab with an announcer.
type stage struct {
	*cluster.Lab
	scale
	rec    *record.Recorder
	name   string // of the announcer
	audit  string // the path of the API server's audit log
	have   int    // Services in the BGP pool, without those for planned changes
	routes *routes.Watch
	wire   *observe.Wire
}

// stage starts a lab, measures one part in it, and closes it.
func (o Options) stage(ctx context.Context, rec *record.Recorder, announcer, part string, run func(*stage, context.Context) error) (err error) {
	var a cluster.Announcer = &cluster.Herald{Binary: o.Herald, CRDs: o.CRDs}
	if announcer == "metallb" {
		a = &metalLB{dir: o.MetalLB}
	}
	size, nodes := o.scale(announcer), 3
	if part == "curve" {
		nodes = size.nodes
	}
	dir := filepath.Join(o.Dir, announcer+"-"+part)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	l, err := cluster.Start(ctx, cluster.Options{Nodes: nodes, Announcer: a, APIServer: o.APIServer, Etcd: o.Etcd, Testenv: o.Testenv, Dir: dir})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	s := &stage{Lab: l, scale: size, rec: rec, name: announcer, audit: filepath.Join(dir, "api", "audit.log")}
	if s.routes, err = l.WatchRoutes(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.routes.Close()) }()
	if s.wire, err = observe.Listen(l.Node("r1")); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.wire.Close()) }()
	return run(s, ctx)
}

// result returns the name of one measure's results, with the number of Services if size is not 0.
func (s *stage) result(measure string, size int) string {
	services := ""
	if size > 0 {
		services = strconv.Itoa(size)
	}
	return record.Name("Services", "measure", measure, "announcer", s.name, "services", services)
}

// note records values of one measure.
func (s *stage) note(measure string, size int, unit string, values ...float64) {
	for _, v := range values {
		s.rec.Add(s.result(measure, size), record.Value{Value: v, Unit: unit})
	}
}
