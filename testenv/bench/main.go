// Command herald-bench measures Herald and comparable programs in labs of network
// namespaces, and writes the results in Go's benchmark format.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"github.com/herald-vip/herald/testenv/bench/balancer"
	"github.com/herald-vip/herald/testenv/bench/failover"
	"github.com/herald-vip/herald/testenv/bench/page"
	"github.com/herald-vip/herald/testenv/bench/record"
	"github.com/herald-vip/herald/testenv/bench/services"
	"github.com/herald-vip/herald/testenv/bench/suite"
	"github.com/herald-vip/herald/testenv/bench/tenants"
)

type commands struct {
	Run           runCmd           `cmd:"" help:"Measure, and write a file for each benchmark."`
	Guard         guardCmd         `cmd:"" help:"Fail if a withdrawal takes much longer than it should."`
	Page          pageCmd          `cmd:"" help:"Write docs/benchmarks.md and its charts anew from the files of runs."`
	BalanceServer balanceServerCmd `cmd:"" hidden:"" help:"Be a server of the benchmark of balancers."`
	BalanceClient balanceClientCmd `cmd:"" hidden:"" help:"Be a client of it."`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	c := kong.Parse(new(commands), kong.Name("herald-bench"), kong.BindTo(ctx, (*context.Context)(nil)))
	c.FatalIfErrorf(c.Run())
}

// lab holds the flags of commands that use labs.
type lab struct {
	Herald     string `default:"bin/herald" placeholder:"FILE" help:"The herald binary to measure (${default})."`
	Testenv    string `default:"bin/herald-testenv" placeholder:"FILE" help:"The program of stub servers (${default})."`
	Topologies string `default:"testenv/topologies" type:"existingdir" placeholder:"DIR" help:"The folder of the topologies (${default})."`
	Logs       string `placeholder:"DIR" help:"Keep the labs' configurations and logs in this folder."`
}

// dir returns a folder for a benchmark's labs, and a function that removes it unless it is to
// stay.
func (l *lab) dir(name string) (dir string, remove func() error, err error) {
	if os.Getuid() != 0 {
		return "", nil, errors.New("this needs root, for network namespaces: run it with sudo")
	}
	if l.Logs != "" {
		dir, err = filepath.Abs(filepath.Join(l.Logs, name))
		return dir, func() error { return nil }, errors.Join(err, os.MkdirAll(dir, 0o755))
	}
	dir, err = os.MkdirTemp("", "bench-")
	return dir, func() error { return os.RemoveAll(dir) }, err
}

// options returns the options that all labs need.
func (l *lab) options(trials int, dir string) suite.Options {
	programs := map[string]string{"herald": l.Herald, "herald-testenv": l.Testenv}
	return suite.Options{Programs: programs, Topologies: l.Topologies, Trials: trials, Dir: dir}
}

type runCmd struct {
	lab
	Bench     []string `default:"failover,flat,services,balancer,tenants" enum:"failover,flat,services,balancer,tenants" placeholder:"NAME,..." help:"Benchmarks to run: ${default}."`
	Only      []string `placeholder:"TEXT,..." help:"Only faults with one of these texts in the name; for services, balancer and tenants, only the named parts."`
	Trials    int      `default:"10" placeholder:"N" help:"Trials of each fault or change (${default})."`
	Quick     bool     `help:"One trial, without the slow faults. This tests the benchmark; its figures mean little."`
	Out       string   `default:"bin/bench" placeholder:"DIR" help:"Write the files into this folder (${default})."`
	HAProxy   string   `name:"haproxy" default:"/usr/sbin/haproxy" placeholder:"FILE" help:"HAProxy (${default})."`
	MetalLB   string   `name:"metallb" default:"testenv/realparts/bin/metallb" placeholder:"DIR" help:"The folder of MetalLB's programs (${default})."`
	APIServer string   `name:"kube-apiserver" default:"testenv/realparts/bin/kube-apiserver" placeholder:"FILE" help:"The kube-apiserver to run, beside which Kubernetes' other programs are (${default})."`
	Etcd      string   `default:"/usr/bin/etcd" placeholder:"FILE" help:"The etcd to run (${default})."`
	CRDs      string   `name:"crds" default:"manifests/crds" placeholder:"DIR" help:"The folder of Herald's CRDs (${default})."`
}

// Run takes the measurements. It keeps the results from before Ctrl-C or an error.
func (c *runCmd) Run(ctx context.Context) error {
	if c.Quick {
		c.Trials = 1
	}
	var failed error
	for _, name := range c.Bench {
		failed = errors.Join(failed, c.measure(ctx, name))
		if ctx.Err() != nil {
			break
		}
	}
	return failed
}

func (c *runCmd) measure(ctx context.Context, name string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	dir, remove, err := c.dir(name)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(c.Out, 0o755); err != nil {
		return err
	}
	f, err := os.Create(filepath.Join(c.Out, time.Now().UTC().Format(time.DateOnly)+"-"+name+".txt"))
	if err != nil {
		return err
	}
	options := c.options(c.Trials, dir)
	options.Only, options.Quick, options.CRDs, options.Repository = c.Only, c.Quick, c.CRDs, "."
	maps.Copy(options.Programs, map[string]string{"herald-bench": self, "haproxy": c.HAProxy, "metallb": c.MetalLB, "etcd": c.Etcd, "kube-apiserver": c.APIServer})
	for _, name := range []string{"kube-controller-manager", "kube-proxy", "kubectl"} {
		options.Programs[name] = filepath.Join(filepath.Dir(c.APIServer), name)
	}
	bench := map[string]struct {
		run  func(context.Context, *record.Recorder, suite.Options) error
		with map[string]string // programs with a recorded version, beside Herald
	}{
		"failover": {failover.RunBGP, map[string]string{"frr": frr, "bird": "/usr/sbin/bird", "exabgp": "/usr/sbin/exabgp"}},
		"flat":     {failover.RunFlat, map[string]string{"keepalived": "/usr/sbin/keepalived"}},
		"services": {services.Run, map[string]string{"frr": frr, "kubernetes": c.APIServer, "metallb": filepath.Join(c.MetalLB, "speaker")}},
		"balancer": {balancer.Run, map[string]string{"haproxy": c.HAProxy}},
		"tenants":  {tenants.Run, map[string]string{"frr": frr, "kubernetes": c.APIServer, "haproxy": c.HAProxy}},
	}[name]
	bench.with["herald"] = c.Herald
	r := record.New(io.MultiWriter(f, os.Stdout), record.Here(ctx, bench.with))
	err = errors.Join(bench.run(ctx, r, options), r.Err(), f.Close(), remove())
	fmt.Printf("%s: %d results, %d inconclusive\n", f.Name(), len(r.Results), count(r.Results))
	return err
}

const frr = "/usr/lib/frr/bgpd"

// count returns the number of discarded trials.
func count(results []record.Result) int {
	return len(results) - len(slices.DeleteFunc(slices.Clone(results), record.Result.Discarded))
}

type guardCmd struct {
	lab
	Trials int `default:"10" placeholder:"N" help:"Number of trials; the median counts (${default})."`
}

// Run measures withdrawals and compares them with the expected times. If the machine
// was too busy for a verdict, it adds a line to the file named by HERALD_INCONCLUSIVE.
func (c *guardCmd) Run(ctx context.Context) error {
	dir, remove, err := c.dir("guard")
	if err != nil {
		return err
	}
	r := record.New(os.Stdout, record.Here(ctx, map[string]string{"herald": c.Herald, "frr": frr}))
	verdict, err := failover.Guard(ctx, r, c.options(c.Trials, dir))
	err = errors.Join(err, r.Err(), remove())
	if err != nil {
		return err
	}
	fmt.Println(verdict)
	path := os.Getenv("HERALD_INCONCLUSIVE")
	if verdict != failover.NoAnswer || path == "" {
		return nil
	}
	counted, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("count the inconclusive run in the file HERALD_INCONCLUSIVE: %w", err)
	}
	_, err = fmt.Fprintln(counted, "INCONCLUSIVE: guard: the machine was busy in too many trials")
	return errors.Join(err, counted.Close())
}

type pageCmd struct {
	Docs string `default:"docs" type:"existingdir" placeholder:"DIR" help:"The folder of benchmarks.md, with the runs in benchmarks (${default})."`
}

// Run writes the page and its charts.
func (c *pageCmd) Run() error { return page.Write(c.Docs) }
