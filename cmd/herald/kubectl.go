package main

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/herald-vip/herald/service/assign"
	"github.com/herald-vip/herald/service/kube"
	"github.com/herald-vip/herald/status/cluster"
)

// pluginName is what this program is called as a plugin of kubectl.
const pluginName = "kubectl-herald"

// pluginCommands are those of `kubectl herald`: they need a kubeconfig and no more.
type pluginCommands struct {
	Status  pluginStatus   `cmd:"" help:"Show how the nodes stand, and who announces the VIPs of their files."`
	Peers   pluginPeers    `cmd:"" help:"Show the BGP sessions of all nodes."`
	Who     pluginWho      `cmd:"" help:"Show whose an address is, and which nodes announce or hold it."`
	Why     pluginWhy      `cmd:"" help:"Follow a Service from what it asks for to the routers, until something fails."`
	Drain   pluginDrain    `cmd:"" help:"Have a node announce no Services, in good order."`
	Undrain pluginUndrain  `cmd:"" help:"Have it announce again."`
	Version versionCommand `cmd:"" help:"Print the version."`

	clusterAccess
}

// clusterAccess is how the cluster is reached.
type clusterAccess struct {
	Kubeconfig string `env:"KUBECONFIG" default:"~/.kube/config" type:"path" placeholder:"FILE" help:"How to reach the cluster (${default})."`
	System     string `default:"herald-system" placeholder:"NAMESPACE" help:"Where Herald's DaemonSet is (${default})."`
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

func (a *clusterAccess) connect() (*kube.Cluster, error) { return connect(a.Kubeconfig, "kubectl") }

// read is the cluster as it is now.
func (a *clusterAccess) read(ctx context.Context) (*cluster.Cluster, error) {
	c, err := a.connect()
	if err != nil {
		return nil, err
	}
	is, err := c.Snapshot(ctx, a.System, assign.LeaseName)
	if err != nil {
		return nil, err
	}
	return &cluster.Cluster{Snapshot: is, Now: time.Now()}, nil
}

type pluginStatus struct{}

func (pluginStatus) Run(ctx context.Context, a *clusterAccess) error {
	c, err := a.read(ctx)
	if err != nil {
		return err
	}
	return c.WriteStatus(os.Stdout)
}

type pluginPeers struct{}

func (pluginPeers) Run(ctx context.Context, a *clusterAccess) error {
	c, err := a.read(ctx)
	if err != nil {
		return err
	}
	return c.WritePeers(os.Stdout)
}

type pluginWho struct {
	Address netip.Addr `arg:"" help:"An address of a Service, or of a VIP."`
}

func (p pluginWho) Run(ctx context.Context, a *clusterAccess) error {
	c, err := a.read(ctx)
	if err != nil {
		return err
	}
	return c.WriteWho(os.Stdout, p.Address.Unmap())
}

type pluginWhy struct {
	Service   string `arg:"" help:"NAME, or NAMESPACE/NAME."`
	Namespace string `short:"n" default:"default" help:"The Service's namespace (${default})."`
}

func (p pluginWhy) Run(ctx context.Context, a *clusterAccess) error {
	c, err := a.read(ctx)
	if err != nil {
		return err
	}
	namespace, name, found := strings.Cut(p.Service, "/")
	if !found {
		namespace, name = p.Namespace, p.Service
	}
	for i := range c.Services {
		if s := &c.Services[i]; s.Namespace == namespace && s.Name == name {
			return cluster.WriteWhy(os.Stdout, namespace+"/"+name, c.Why(s))
		}
	}
	return fmt.Errorf("there is no Service %s/%s", namespace, name)
}

type pluginDrain struct {
	Node string `arg:"" help:"The node."`
}

// Run excludes the node from load balancers, for all that heed it.
func (p pluginDrain) Run(ctx context.Context, a *clusterAccess) error {
	c, err := a.connect()
	if err == nil {
		err = c.ExcludeNode(ctx, p.Node)
	}
	if err != nil {
		return err
	}
	fmt.Println(p.Node, "is excluded from load balancers: it announces no Services soon, unless its file says ignoreExcludeLabel")
	return nil
}

type pluginUndrain struct {
	Node string `arg:"" help:"The node."`
}

func (p pluginUndrain) Run(ctx context.Context, a *clusterAccess) error {
	c, err := a.connect()
	if err == nil {
		err = c.IncludeNode(ctx, p.Node)
	}
	if err != nil {
		return err
	}
	fmt.Println(p.Node, "may announce Services again")
	return nil
}
