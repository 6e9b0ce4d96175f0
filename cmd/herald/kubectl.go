package main

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/herald-vip/herald/service/assign"
	"github.com/herald-vip/herald/service/kube"
	"github.com/herald-vip/herald/status/cluster"
)

// pluginName is the program's name as a plugin of kubectl.
const pluginName = "kubectl-herald"

// pluginCommands are the commands of `kubectl herald`, which need only a kubeconfig.
type pluginCommands struct {
	Status  pluginStatus   `cmd:"" help:"Show the state of the nodes, and which of them announce the VIPs of their files."`
	Peers   pluginPeers    `cmd:"" help:"Show the BGP sessions of all nodes."`
	Who     pluginWho      `cmd:"" help:"Show the owner of an address, and which nodes announce or hold it."`
	Why     pluginWhy      `cmd:"" help:"Follow a Service from its request to the routers, until a step fails."`
	Drain   pluginDrain    `cmd:"" help:"Stop a node from announcing Services, with graceful shutdown."`
	Undrain pluginUndrain  `cmd:"" help:"Let a node announce Services again."`
	Version versionCommand `cmd:"" help:"Print the version."`

	clusterAccess
}

// clusterAccess selects the cluster.
type clusterAccess struct {
	Kubeconfig string `type:"path" placeholder:"FILE" help:"The kubeconfig of the cluster. Default: as kubectl, by KUBECONFIG or ~/.kube/config."`
	System     string `default:"herald-system" placeholder:"NAMESPACE" help:"The namespace of Herald's DaemonSet (${default})."`
}

func newPluginParser() *kong.Kong {
	commands := new(pluginCommands)
	return kong.Must(commands,
		kong.Name("kubectl herald"),
		kong.Description("Shows and steers the virtual IPs that Herald announces for a cluster."),
		kong.BindTo(context.Background(), (*context.Context)(nil)),
		kong.Bind(&commands.clusterAccess),
	)
}

// view returns a snapshot of the cluster, or of its nodes alone if lease is empty.
func (a *clusterAccess) view(ctx context.Context, lease string, write func(cluster.View, io.Writer) error) error {
	c, err := connect(kube.ConnectAsUser, a.Kubeconfig, "kubectl")
	if err != nil {
		return err
	}
	snapshot, err := c.Snapshot(ctx, a.System, lease)
	if err != nil {
		return err
	}
	return write(cluster.View{Snapshot: snapshot, Now: time.Now()}, os.Stdout)
}

type pluginStatus struct{}

func (pluginStatus) Run(ctx context.Context, a *clusterAccess) error {
	return a.view(ctx, "", cluster.View.WriteStatus)
}

type pluginPeers struct{}

func (pluginPeers) Run(ctx context.Context, a *clusterAccess) error {
	return a.view(ctx, "", cluster.View.WritePeers)
}

type pluginWho struct {
	Address netip.Addr `arg:"" help:"An address of a Service, or of a VIP."`
}

func (p pluginWho) Run(ctx context.Context, a *clusterAccess) error {
	return a.view(ctx, assign.LeaseName, func(v cluster.View, w io.Writer) error { return v.WriteWho(w, p.Address.Unmap()) })
}

type pluginWhy struct {
	Service   string `arg:"" help:"NAME, or NAMESPACE/NAME."`
	Namespace string `short:"n" default:"default" help:"The Service's namespace (${default})."`
}

func (p pluginWhy) Run(ctx context.Context, a *clusterAccess) error {
	name := p.Service
	if !strings.Contains(name, "/") {
		name = p.Namespace + "/" + name
	}
	return a.view(ctx, assign.LeaseName, func(v cluster.View, w io.Writer) error { return v.WriteWhy(w, name) })
}

type pluginDrain struct {
	Node string `arg:"" help:"The node."`
}

// Run excludes the node from load balancers that respect the label.
func (p pluginDrain) Run(ctx context.Context, a *clusterAccess) error {
	return a.label(ctx, (*kube.Cluster).ExcludeNode, p.Node,
		"is excluded from load balancers: it announces no Services soon, unless its file says ignoreExcludeLabel")
}

type pluginUndrain struct {
	Node string `arg:"" help:"The node."`
}

func (p pluginUndrain) Run(ctx context.Context, a *clusterAccess) error {
	return a.label(ctx, (*kube.Cluster).IncludeNode, p.Node, "may announce Services again")
}

// label changes a node's label and prints the effect.
func (a *clusterAccess) label(ctx context.Context, change func(*kube.Cluster, context.Context, string) error, node, says string) error {
	c, err := connect(kube.ConnectAsUser, a.Kubeconfig, "kubectl")
	if err == nil {
		err = change(c, ctx, node)
	}
	if err == nil {
		fmt.Println(node, says)
	}
	return err
}
