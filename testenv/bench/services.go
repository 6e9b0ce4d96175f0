package bench

import (
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/herald-vip/herald/testenv/services"
)

// ServiceOptions say what to measure of the announcing of Services.
type ServiceOptions struct {
	// Herald and Testenv are the paths of the two binaries, APIServer and Etcd those
	// of kube-apiserver and etcd, and MetalLB the folder of MetalLB's.
	Herald, Testenv, APIServer, Etcd, MetalLB string
	// CRDs is the folder of Herald's definitions.
	CRDs string
	// Announcers are those to measure: names of [Announcers].
	Announcers []string
	// Only leaves out the parts whose name has none of these texts; empty takes all.
	Only []string
	// Assigned writes the addresses of Services as if they had been assigned before, so
	// that only the announcing is measured.
	Assigned bool
	// Quick measures everything with few Services and few trials.
	Quick bool
	// Logs is a folder that is to keep the labs' configurations and logs; empty keeps none.
	Logs string
}

// Announcers are the names that ServiceOptions.Announcers takes.
func Announcers() []string { return []string{"herald", "metallb"} }

// scale is how much is measured.
type scale struct {
	trials      int   // of an endpoint's change, each way
	sizes       []int // Services of which memory and restarts are measured
	curve       []int // Services of which the cost of an event is measured
	nodes       int   // that the curve is measured with
	faults      int   // trials of a fault
	rests       int   // restarts at each size
	parted      time.Duration
	healed      time.Duration // watched after it was parted
	quiet       time.Duration // before memory is looked at
	steady      time.Duration // in which requests are counted
	connections int           // in all trials of a planned change
}

func (o ServiceOptions) scale(announcer string) scale {
	if o.Quick {
		return scale{trials: 2, sizes: []int{1, 21, 61}, curve: []int{20, 60}, nodes: 3, faults: 1, rests: 1, parted: 3 * time.Second,
			healed: 2 * time.Second, quiet: time.Second, steady: 3 * time.Second, connections: 200}
	}
	s := scale{trials: 30, sizes: []int{1, 1001, 3001}, curve: []int{100, 1000, 10000}, nodes: 5, faults: 10, rests: 5, parted: 15 * time.Second,
		healed: 15 * time.Second, quiet: 15 * time.Second, steady: time.Minute, connections: 5000}
	if announcer != "herald" {
		// It takes minutes for each of these.
		s.faults, s.rests, s.curve = 5, 2, []int{100, 1000, 3000}
	}
	return s
}

// serviceBench is a run.
type serviceBench struct {
	ServiceOptions
	out     io.Writer
	dir     string
	results ServiceResults
}

// RunServices measures and tells on out how it goes. When ctx ends, or something
// cannot be measured, it returns what it has along with the error.
func RunServices(ctx context.Context, out io.Writer, o ServiceOptions) (_ *ServiceResults, err error) {
	for _, a := range o.Announcers {
		if !slices.Contains(Announcers(), a) {
			return nil, fmt.Errorf("there is no announcer %q; there are %s", a, strings.Join(Announcers(), ", "))
		}
	}
	b := &serviceBench{ServiceOptions: o, out: out, dir: o.Logs}
	if b.dir == "" {
		if b.dir, err = os.MkdirTemp("", "bench-"); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(b.dir)) }()
	}
	if b.dir, err = filepath.Abs(b.dir); err != nil {
		return nil, err
	}
	defer func() { b.results.Took = time.Since(b.results.Began).Truncate(time.Second) }()
	b.results.Setting = Setting{Began: time.Now().UTC().Truncate(time.Second), Machine: thisMachine(), Versions: b.versions(ctx)}
	for _, part := range []struct {
		name  string
		nodes func(scale) int
		run   func(*stage, context.Context) error
	}{
		{"bgp", func(scale) int { return 3 }, (*stage).bgpPart},
		{"growth", func(scale) int { return 3 }, (*stage).growthPart},
		{"arp", func(scale) int { return 3 }, (*stage).arpPart},
		{"curve", func(s scale) int { return s.nodes }, (*stage).curvePart},
	} {
		if len(o.Only) > 0 && !slices.Contains(o.Only, part.name) {
			continue
		}
		for _, a := range o.Announcers {
			fmt.Fprintf(out, "%s, %s:\n", a, part.name)
			s := o.scale(a)
			if e := b.stage(ctx, a, part.name, s, part.nodes(s), part.run); e != nil {
				err = errors.Join(err, fmt.Errorf("%s, %s: %w", a, part.name, e))
			}
			if ctx.Err() != nil {
				return &b.results, err
			}
		}
	}
	return &b.results, err
}

// versions are those of the programs that are measured, and of those around them.
func (b *serviceBench) versions(ctx context.Context) map[string]string {
	list := versions(ctx, b.Herald)
	for _, name := range []string{"BIRD", "keepalived"} {
		delete(list, name)
	}
	// These don't tell of themselves what they were built from; their modules are pinned.
	for name, path := range map[string]string{"Kubernetes": b.APIServer, "MetalLB": filepath.Join(b.MetalLB, "speaker")} {
		if info, err := buildinfo.ReadFile(path); err == nil {
			list[name] = strings.TrimPrefix(info.Main.Version, "v")
		}
	}
	return list
}

// stage is a lab with an announcer.
type stage struct {
	*services.Lab
	scale
	bench    *serviceBench
	name     string // of the announcer
	audit    string // the path of the API server's audit log
	assigned int    // addresses that were given out here
	have     int    // Services of the pool for BGP, that of planned changes left out
	routes   *services.Routes
	wire     *wire
}

// stage starts a lab, has one part measured in it, and closes it.
func (b *serviceBench) stage(ctx context.Context, announcer, part string, size scale, nodes int, run func(*stage, context.Context) error) (err error) {
	var a services.Announcer = &services.Herald{Binary: b.Herald, CRDs: b.CRDs}
	if announcer == "metallb" {
		a = &services.MetalLB{Dir: b.MetalLB}
	}
	dir := filepath.Join(b.dir, announcer+"-"+part)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	l, err := services.Start(ctx, services.Options{Nodes: nodes, Announcer: a, APIServer: b.APIServer, Etcd: b.Etcd, Testenv: b.Testenv, Dir: dir})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	s := &stage{Lab: l, scale: size, bench: b, name: announcer, audit: filepath.Join(dir, "api", "audit.log")}
	if s.routes, err = l.WatchRoutes(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.routes.Close()) }()
	if s.wire, err = listen(l.Node("r1")); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.wire.close()) }()
	return run(s, ctx)
}

// note adds values of one measure to the results, and tells them.
func (s *stage) note(measure Measure, size int, values ...float64) {
	m := Measurement{Announcer: s.name, Measure: measure, Services: size, Values: values}
	s.bench.results.Measurements = append(s.bench.results.Measurements, m)
	fmt.Fprintf(s.bench.out, "  %-44s %6d  %s\n", measure, size, m.text())
}

// create creates Services, with addresses where they are not to be assigned.
func (s *stage) create(ctx context.Context, list ...services.Service) error {
	for i := range list {
		if !s.bench.Assigned {
			break
		}
		pool := netip.MustParsePrefix(services.ByBGP).Addr().As4()
		number := s.assigned + 1
		if list[i].Pool == services.PoolARP {
			first, _, _ := strings.Cut(services.ByARP, "-")
			pool, number = netip.MustParseAddr(first).As4(), s.assigned%flatServices
		}
		pool[2], pool[3] = pool[2]+byte(number>>8), pool[3]+byte(number)
		list[i].Address = netip.AddrFrom4(pool)
		s.assigned++
	}
	return s.Create(ctx, list...)
}
