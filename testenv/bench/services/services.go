// Package services compares how fast, and at what cost, Herald and MetalLB announce Services.
package services

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/herald-vip/herald/testenv/bench/observe"
	"github.com/herald-vip/herald/testenv/bench/record"
	"github.com/herald-vip/herald/testenv/bench/suite"
	"github.com/herald-vip/herald/testenv/lab"
	"github.com/herald-vip/herald/testenv/routes"
	cluster "github.com/herald-vip/herald/testenv/services"
	"github.com/herald-vip/herald/testenv/step"
)

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

func scaleOf(quick bool, announcer string) scale {
	if quick {
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

// Run takes the measurements of both announcers.
func Run(ctx context.Context, rec *record.Recorder, o suite.Options) error {
	return run(ctx, rec, o, "herald", "metallb")
}

func run(ctx context.Context, rec *record.Recorder, o suite.Options, announcers ...string) error {
	var parts []suite.Part
	for _, part := range []struct {
		name string
		run  func(*stage, context.Context)
	}{
		{"bgp", (*stage).bgpPart},
		{"growth", (*stage).growthPart},
		{"arp", (*stage).arpPart},
		{"curve", (*stage).curvePart},
	} {
		for _, a := range announcers {
			parts = append(parts, suite.Part{Name: part.name, Who: a, Run: func(ctx context.Context) { stageOf(ctx, rec, o, a, part.name, part.run) }})
		}
	}
	return o.Each(ctx, parts...)
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

// stageOf starts a lab, measures one part in it, and closes it.
func stageOf(ctx context.Context, rec *record.Recorder, o suite.Options, announcer, part string, run func(*stage, context.Context)) {
	var a cluster.Announcer = &cluster.Herald{Binary: o.Programs["herald"], CRDs: o.CRDs}
	if announcer == "metallb" {
		a = &metalLB{dir: o.Programs["metallb"]}
	}
	size, nodes := scaleOf(o.Quick, announcer), 3
	if part == "curve" {
		nodes = size.nodes
	}
	dir := filepath.Join(o.Dir, announcer+"-"+part)
	step.Do(os.MkdirAll(dir, 0o755))
	l := step.Get(cluster.Start(ctx, cluster.Options{
		Nodes: nodes, Announcer: a, APIServer: o.Programs["kube-apiserver"], Etcd: o.Programs["etcd"], Testenv: o.Programs["herald-testenv"], Dir: dir,
	}))
	defer step.Close(l.Close)
	s := &stage{Lab: l, scale: size, rec: rec, name: announcer, audit: filepath.Join(dir, "api", "audit.log"), routes: step.Get(l.WatchRoutes())}
	defer step.Close(s.routes.Close)
	s.wire = step.Get(observe.Listen(l.Node("r1")))
	defer step.Close(s.wire.Close)
	run(s, ctx)
}

// result returns the name of one measure's results, with the number of Services if size is not 0.
func (s *stage) result(measure string, size int) string {
	services := ""
	if size > 0 {
		services = strconv.Itoa(size)
	}
	return record.Name("Services", "measure", measure, "announcer", s.name, "services", services)
}

// note records a value of one measure.
func (s *stage) note(measure string, size int, unit string, value float64) {
	s.rec.Add(s.result(measure, size), record.Value{Value: value, Unit: unit})
}

// programs returns the processes of the announcer: its speakers, and its controller if
// that is a separate process.
func (s *stage) programs() (speakers, controllers []*lab.Process) {
	for _, n := range s.Nodes() {
		switch name := n.Name(); {
		case strings.HasSuffix(name, "-speaker"):
			speakers = append(speakers, n.Daemons()...)
		case strings.HasSuffix(name, "-controller"):
			controllers = append(controllers, n.Daemons()...)
		}
	}
	return speakers, controllers
}

// spending is the announcer's consumption: CPU time of all its processes, and requests by kind.
type spending struct {
	took, cpu time.Duration
	requests  map[request]int
}

// spent returns the announcer's consumption while do runs.
func (s *stage) spent(do func()) spending {
	had, cpu, began := len(observe.AuditLog(s.audit)), s.cpu(), time.Now()
	do()
	sp := spending{took: time.Since(began), cpu: s.cpu() - cpu, requests: make(map[request]int)}
	for line := range bytes.Lines(observe.AuditLog(s.audit)[had:]) {
		var r request
		step.Named("audit log", func() { step.Do(json.Unmarshal(line, &r)) })
		sp.requests[r]++
	}
	return sp
}

// cpu returns the CPU time of the announcer's processes since they began.
func (s *stage) cpu() time.Duration {
	speakers, controllers := s.programs()
	var pids []int
	for _, p := range append(speakers, controllers...) {
		pids = append(pids, p.Pid())
	}
	return step.Get(observe.CPUOf(pids...))
}

// count adds up the requests that match.
func (sp spending) count(match func(request) bool) (sum float64) {
	for r, n := range sp.requests {
		if match(r) {
			sum += float64(n)
		}
	}
	return sum
}

// request is a request of the announcer to the API server, from its audit log.
type request struct {
	Verb      string
	ObjectRef struct{ Resource, Subresource string }
}

// concerns reports whether the request is for this resource, writes whether it changes anything.
func (r request) concerns(resource string) bool { return r.ObjectRef.Resource == resource }

func (r request) writes() bool { return r.Verb != "get" && r.Verb != "list" && r.Verb != "watch" }
