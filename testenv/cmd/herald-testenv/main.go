// Command herald-testenv holds the servers of Herald's test environment and demo: an
// upstream BGP router and stub servers to check; and the demo itself. Each subcommand
// ends on SIGINT or SIGTERM at the latest.
package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"
	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/testenv/demo"
	"github.com/herald-vip/herald/testenv/echo"
	"github.com/herald-vip/herald/testenv/router"
	"github.com/herald-vip/herald/testenv/step"
	"github.com/herald-vip/herald/testenv/stub"
)

// Exit codes, the same as herald's.
const (
	exitFailed = 1
	exitUsage  = 2
)

type commands struct {
	Router    routerCmd    `cmd:"" help:"Run a BGP router that installs learned routes as ECMP routes in this network namespace."`
	APIServer apiServerCmd `cmd:"" name:"apiserver" help:"Run a stub kube-apiserver: /readyz and /livez, controlled by /stub/readyz and /stub/livez."`
	Hostile   hostileCmd   `cmd:"" help:"Run a misbehaving BGP peer, for tests of a speaker."`
	Echo      echoCmd      `cmd:"" help:"Answer HTTP/1.1, HTTP/2, gRPC and WebSockets with the request."`
	Demo      demoCmd      `cmd:"" help:"Boot a lab, break it, and show the effects on the routers and a client. Needs root."`
	Registry  registryCmd  `cmd:"" help:"Run a stub container registry: /v2/, controlled by /stub/v2."`
	Soak      soakCmd      `cmd:"" help:"Let speakers live through random faults and check the VIP from outside. Needs root."`
	SoakFlat  flatSoakCmd  `cmd:"" help:"The same on one LAN, where an observer finds every time two masters had the VIP. Needs root."`
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
		os.Exit(exitFailed)
	}
}

type routerCmd struct {
	ASN     uint32         `required:"" env:"ROUTER_ASN" placeholder:"N" help:"The router's AS number."`
	ID      netip.Addr     `required:"" env:"ROUTER_ID" placeholder:"IPV4" help:"The router's ID."`
	PeerASN uint32         `required:"" name:"peer-asn" env:"ROUTER_PEER_ASN" placeholder:"N" help:"The AS number of the speakers."`
	Peers   []netip.Prefix `required:"" env:"ROUTER_PEERS" placeholder:"CIDR" help:"Where speakers connect from."`
	VIPs    []netip.Prefix `required:"" name:"vips" env:"ROUTER_VIPS" placeholder:"CIDR" help:"The networks of the accepted host routes."`
}

// Run runs the router until ctx ends.
func (c *routerCmd) Run(ctx context.Context) error {
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	return router.Run(ctx, log, router.Config(*c))
}

type demoCmd struct {
	Mode     string `default:"bgp" enum:"bgp,arp,services" help:"The demo: VIPs announced by BGP, or held by an elected master that answers ARP and NDP, or the output of kubectl herald for Services (${enum})."`
	Router   string `default:"embedded" enum:"embedded,frr" help:"The routers: the one in this program, or the host's FRR (${enum})."`
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
	topology := "testenv/topologies/bgp.clab.yml"
	if c.Mode == "arp" {
		topology = "testenv/topologies/flat.clab.yml"
	}
	width := 0
	if size, err := unix.IoctlGetWinsize(int(os.Stdout.Fd()), unix.TIOCGWINSZ); err == nil {
		width = int(size.Col)
	}
	return demo.Run(ctx, os.Stdout, demo.Options{
		Services: c.Mode == "services", CRDs: "manifests/crds", APIServer: "testenv/realparts/bin/kube-apiserver", Etcd: "/usr/bin/etcd",
		Flat: c.Mode == "arp", Topology: cmp.Or(c.Topology, topology), Herald: c.Herald, Testenv: self, FRR: c.Router == "frr", Logs: c.Logs, Live: terminal && !c.Plain, Width: width,
	})
}

type echoCmd struct {
	server
	ListenTLS   string `name:"listen-tls" placeholder:"HOST:PORT" help:"Address to answer by TLS on, too."`
	Certificate string `type:"existingfile" placeholder:"FILE" help:"The certificate for that."`
	Key         string `type:"existingfile" placeholder:"FILE" help:"Its key."`
}

// Run serves until ctx ends.
func (c *echoCmd) Run(ctx context.Context) error {
	return step.Run(func() {
		var secure net.Listener
		var certificate tls.Certificate
		if c.ListenTLS != "" {
			certificate = step.Get(tls.LoadX509KeyPair(c.Certificate, c.Key))
			secure = step.Get(net.Listen("tcp", c.ListenTLS))
		}
		name := cmp.Or(c.Name, step.Get(os.Hostname()))
		step.Do(echo.Server{Name: name}.Serve(ctx, step.Get(net.Listen("tcp", c.Listen)), secure, certificate))
	})
}

// server holds the flags of all these servers.
type server struct {
	Listen string `required:"" placeholder:"HOST:PORT" help:"Address to listen on."`
	Name   string `placeholder:"NAME" help:"The server's name, sent in the header X-Served-By. Default: the host's name."`
}

type apiServerCmd struct{ server }

// Run serves until ctx ends.
func (c *apiServerCmd) Run(ctx context.Context) error { return c.serve(ctx, stub.APIServer) }

type registryCmd struct{ server }

// Run serves until ctx ends.
func (c *registryCmd) Run(ctx context.Context) error { return c.serve(ctx, stub.Registry) }

func (c *server) serve(ctx context.Context, kind func(name string) *stub.Server) error {
	return step.Run(func() {
		name := cmp.Or(c.Name, step.Get(os.Hostname()))
		step.Do(kind(name).Serve(ctx, step.Get(net.Listen("tcp", c.Listen))))
	})
}
