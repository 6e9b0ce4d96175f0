// Command herald-testenv holds the servers that Herald's test environment and
// demo need besides Herald: an upstream BGP router and stub servers to watch
// over; and the demo and the failover benchmark. Each subcommand ends on SIGINT
// or SIGTERM, if not before.
package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/herald-vip/herald/testenv/demo"
	"github.com/herald-vip/herald/testenv/router"
	"github.com/herald-vip/herald/testenv/stub"
)

// Exit codes, as herald's own.
const (
	exitFailed = 1
	exitUsage  = 2
)

type commands struct {
	Router        routerCmd        `cmd:"" help:"Run a BGP router that installs what it learns as ECMP routes in this network namespace."`
	APIServer     apiServerCmd     `cmd:"" name:"apiserver" help:"Run a stub kube-apiserver: /readyz and /livez, controlled by /stub/readyz and /stub/livez."`
	BalanceServer balanceServerCmd `cmd:"" hidden:"" help:"Be a server of the benchmark of balancers."`
	BalanceLoad   balanceLoadCmd   `cmd:"" hidden:"" help:"Be a client of it, of many connections."`
	BalanceBulk   balanceBulkCmd   `cmd:"" hidden:"" help:"Be a client of it, of many bytes."`
	Bench         benchCmd         `cmd:"" help:"Measure failover: Herald, FRR as a speaker, and keepalived, fault by fault. Needs root."`
	BenchBalancer benchBalancerCmd `cmd:"" help:"Measure the balancing of connections, Herald beside HAProxy. Needs root."`
	BenchServices benchServicesCmd `cmd:"" help:"Measure the announcing of Services, Herald beside MetalLB. Needs root."`
	Hostile       hostileCmd       `cmd:"" help:"Be a BGP peer that does what no router should, for tests of a speaker."`
	Demo          demoCmd          `cmd:"" help:"Boot a lab, break it, and show what the routers and a client see. Needs root."`
	Registry      registryCmd      `cmd:"" help:"Run a stub container registry: /v2/, controlled by /stub/v2."`
	Soak          soakCmd          `cmd:"" help:"Let speakers live through random faults and check the VIP from outside. Needs root."`
	SoakFlat      flatSoakCmd      `cmd:"" help:"The same on one segment, where an observer finds every time two masters had the VIP. Needs root."`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var c commands
	parser := kong.Must(&c,
		kong.Name("herald-testenv"),
		kong.Description("Servers for Herald's test environment and demo."),
		kong.BindTo(ctx, (*context.Context)(nil)),
		kong.Exit(func(code int) {
			if code != 0 {
				code = exitUsage
			}
			os.Exit(code)
		}),
	)
	command, err := parser.Parse(os.Args[1:])
	parser.FatalIfErrorf(err)
	if err := command.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "herald-testenv:", err)
		if errors.As(err, new(configError)) {
			os.Exit(exitUsage)
		}
		os.Exit(exitFailed)
	}
}

// configError is the error of a configuration file.
type configError struct{ error }

type routerCmd struct {
	Config string `required:"" type:"existingfile" placeholder:"FILE" help:"An frr.conf; lines that the router does not know are errors."`
	Socket string `default:"/run/router.sock" placeholder:"PATH" help:"Unix socket that tells sessions and routes as JSON lines, at once and on every change. Empty: none."`
	Debug  bool   `help:"Log every change of a route."`
}

// Run runs the router until ctx ends.
func (c *routerCmd) Run(ctx context.Context) error {
	f, err := os.Open(c.Config)
	if err != nil {
		return err
	}
	cfg, err := router.ParseConfig(c.Config, f)
	f.Close()
	if err != nil {
		return configError{err}
	}
	level := slog.LevelInfo
	if c.Debug {
		level = slog.LevelDebug
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
	r := &router.Router{Config: cfg, Socket: c.Socket, Log: log}
	return r.Run(ctx)
}

type demoCmd struct {
	Mode     string `default:"bgp" enum:"bgp,arp" help:"What to show: VIPs announced by BGP, or held by an elected master that answers ARP and NDP (${enum})."`
	Topology string `type:"existingfile" placeholder:"FILE" help:"The topology to boot. Default: bgp.clab.yml or flat.clab.yml in testenv/topologies."`
	Herald   string `default:"bin/herald" type:"existingfile" placeholder:"FILE" help:"The herald binary to show."`
	Logs     string `placeholder:"DIR" help:"Keep a log of each node in this folder."`
	Plain    bool   `help:"Print events only, as when the output is not a terminal."`
}

// Run runs the demo.
func (c *demoCmd) Run(ctx context.Context) error {
	if os.Getuid() != 0 {
		return errors.New("the demo needs root, for network namespaces: run it with sudo")
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	info, err := os.Stdout.Stat()
	terminal := err == nil && info.Mode()&os.ModeCharDevice != 0
	show, topology := demo.Run, "testenv/topologies/bgp.clab.yml"
	if c.Mode == "arp" {
		show, topology = demo.RunFlat, "testenv/topologies/flat.clab.yml"
	}
	return show(ctx, os.Stdout, demo.Options{
		Topology: cmp.Or(c.Topology, topology), Herald: c.Herald, Testenv: self, Logs: c.Logs, Live: terminal && !c.Plain,
	})
}

// server are the flags that both stub servers have.
type server struct {
	Listen string   `required:"" placeholder:"HOST:PORT" help:"Address to listen on."`
	Name   string   `placeholder:"NAME" help:"The server's name, sent in the header X-Served-By. Default: the host's name."`
	TLSDir string   `name:"tls-dir" placeholder:"DIR" help:"Serve HTTPS with a certificate of the CA in this folder, made if absent; clients find it as ca.crt."`
	SAN    []string `placeholder:"NAME" help:"Further names and addresses for the certificate, besides localhost, kubernetes and those of --listen and --name."`
}

type apiServerCmd struct{ server }

// Run serves until ctx ends.
func (c *apiServerCmd) Run(ctx context.Context) error { return c.serve(ctx, stub.APIServer) }

type registryCmd struct{ server }

// Run serves until ctx ends.
func (c *registryCmd) Run(ctx context.Context) error { return c.serve(ctx, stub.Registry) }

func (c *server) serve(ctx context.Context, kind func(name string) *stub.Server) error {
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	name := cmp.Or(c.Name, host)
	var config *tls.Config
	if c.TLSDir != "" {
		names := append([]string{"localhost", "127.0.0.1", "::1", "kubernetes", name}, c.SAN...)
		if host, _, err := net.SplitHostPort(c.Listen); err == nil && host != "" {
			names = append(names, host)
		}
		if config, err = stub.TLS(c.TLSDir, names); err != nil {
			return err
		}
	}
	l, err := net.Listen("tcp", c.Listen)
	if err != nil {
		return err
	}
	return kind(name).Serve(ctx, l, config)
}
