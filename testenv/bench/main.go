// Command herald-bench measures Herald and comparable programs in labs of network
// namespaces, and writes the results in Go's benchmark format.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
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
	programs := map[string]string{"herald": c.Herald}
	add := func(name, path string) { programs[name] = path }
	var run func(*record.Recorder) error
	options := failover.Options{Topologies: c.Topologies, Herald: c.Herald, Testenv: c.Testenv, Only: c.Only, Trials: c.Trials, Quick: c.Quick, Dir: dir}
	switch name {
	case "failover":
		add("frr", frr)
		add("bird", "/usr/sbin/bird")
		add("exabgp", "/usr/sbin/exabgp")
		run = func(r *record.Recorder) error { return failover.RunBGP(ctx, r, options) }
	case "flat":
		add("keepalived", "/usr/sbin/keepalived")
		run = func(r *record.Recorder) error { return failover.RunFlat(ctx, r, options) }
	case "services":
		add("frr", frr)
		add("kubernetes", c.APIServer)
		add("metallb", filepath.Join(c.MetalLB, "speaker"))
		run = func(r *record.Recorder) error {
			return services.Run(ctx, r, services.Options{Herald: c.Herald, Testenv: c.Testenv, APIServer: c.APIServer, Etcd: c.Etcd,
				MetalLB: c.MetalLB, CRDs: c.CRDs, Only: c.Only, Quick: c.Quick, Dir: dir})
		}
	case "balancer":
		add("haproxy", c.HAProxy)
		run = func(r *record.Recorder) error {
			return balancer.Run(ctx, r, balancer.Options{Herald: c.Herald, Bench: self, HAProxy: c.HAProxy, Only: c.Only,
				Trials: c.Trials, Quick: c.Quick, Dir: dir})
		}
	case "tenants":
		add("frr", frr)
		add("kubernetes", c.APIServer)
		add("haproxy", c.HAProxy)
		parts := map[string]string{"herald": c.Herald, "herald-testenv": c.Testenv, "etcd": c.Etcd, "kube-apiserver": c.APIServer}
		for _, name := range []string{"kube-controller-manager", "kube-proxy", "kubectl"} {
			parts[name] = filepath.Join(filepath.Dir(c.APIServer), name)
		}
		run = func(r *record.Recorder) error {
			return tenants.Run(ctx, r, tenants.Options{Programs: parts, Repository: ".", HAProxy: c.HAProxy, Only: c.Only, Trials: c.Trials, Quick: c.Quick, Dir: dir})
		}
	}
	r := record.New(io.MultiWriter(f, os.Stdout), record.Here(ctx, programs))
	err = errors.Join(run(r), r.Err(), f.Close(), remove())
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
	options := failover.Options{Topologies: c.Topologies, Herald: c.Herald, Testenv: c.Testenv, Trials: c.Trials, Dir: dir}
	verdict, err := failover.Guard(ctx, r, options)
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
