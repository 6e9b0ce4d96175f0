// Package services is a small cluster in a lab of namespaces for announcing Services:
// a real etcd and kube-apiserver, nodes with a speaker each, an FRR router and
// clients. There is no kubelet, scheduler or controller manager: [Lab] writes Nodes,
// Services and EndpointSlices in their place.
//
// All machines are on one LAN, so that the same cluster shows both ways of announcing;
// topology/services.clab.yml has a drawing. There are two pools: [PoolBGP] is
// announced to r1, [PoolARP] is part of the LAN's own subnet.
//
// A node has no kube-proxy, but one nftables rule. It forwards packets for any address
// of the pools at port 80 to the node's own server, independently of the Services.
// kube-proxy does the same with an endpoint on the same node. The rule does not model
// externalTrafficPolicy, or the time that kube-proxy takes to follow a change.
package services

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/herald-vip/herald/internal/wake"
	"github.com/herald-vip/herald/testenv/clab"
	"github.com/herald-vip/herald/testenv/lab"
	"github.com/herald-vip/herald/testenv/pki"
	"github.com/herald-vip/herald/testenv/routes"
)

// Names and addresses in topology/services.clab.yml.
const (
	// PoolBGP is the name of the pool announced by BGP, and ByBGP its addresses.
	PoolBGP, ByBGP = "bgp", "10.99.0.0/16"
	// PoolARP is the name of the pool announced by ARP, and ByARP its addresses.
	PoolARP, ByARP = "arp", "10.5.0.192-10.5.0.239"
	// LAN is the bridge of all machines.
	LAN = "lan"
	// Port is the port of every Service.
	Port = 80
	// MostNodes is the largest number of nodes.
	MostNodes = 5

	controller    = "api-controller"
	APIAddress    = "10.5.0.250"
	RouterAddress = "10.5.0.254"
	RouterASN     = 64500
	NodeASN       = 64512
	serverPort    = 8080
)

// Options describe a lab.
type Options struct {
	// Nodes is the number of nodes, 1 to [MostNodes]. Default: 3.
	Nodes int
	// Announcer runs on the nodes.
	Announcer Announcer
	// APIServer, Etcd and Testenv are the paths of kube-apiserver, etcd and herald-testenv.
	APIServer, Etcd, Testenv string
	// Dir receives configurations and logs.
	Dir string
	// Log receives progress messages. Default: none are logged.
	Log *slog.Logger
}

// Lab is a running cluster.
type Lab struct {
	*lab.Lab
	// API is a client of its API server, as an administrator.
	API *API

	options   Options
	endpoints endpoints
}

// Start boots a cluster, and installs and boots the announcer. The context bounds the
// start only. After an error nothing is left behind.
func Start(ctx context.Context, o Options) (_ *Lab, err error) {
	if o.Nodes == 0 {
		o.Nodes = 3
	}
	if o.Nodes < 1 || o.Nodes > MostNodes {
		return nil, fmt.Errorf("%d nodes: want 1 to %d", o.Nodes, MostNodes)
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Dir, err = filepath.Abs(o.Dir); err != nil {
		return nil, err
	}
	l := &Lab{options: o}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("lab of Services: %w", err), l.Close())
		}
	}()
	if err := l.configure(); err != nil {
		return nil, err
	}
	topology, images, err := l.topology()
	if err != nil {
		return nil, err
	}
	l.Lab, err = lab.Start(ctx, o.Log, topology, lab.Options{Hold: true, Images: images, Dir: filepath.Join(o.Dir, "logs")})
	if err != nil {
		return nil, err
	}
	return l, l.boot(ctx)
}

// Members returns the names of the nodes.
func (l *Lab) Members() (list []string) {
	for i := range l.options.Nodes {
		list = append(list, fmt.Sprintf("n%d", i+1))
	}
	return list
}

// Address returns the IPv4 address of a node.
func (l *Lab) Address(node string) netip.Addr {
	return netip.MustParseAddr("10.5.0." + node[1:])
}

// Speaker returns the announcer on a node.
func (l *Lab) Speaker(node string) *lab.Node { return l.Node(node + "-speaker") }

// Serves waits until the server on a node accepts connections.
func (l *Lab) Serves(ctx context.Context, node string) error {
	return Eventually(ctx, func() error { return l.Node(node).Reaches(ctx, fmt.Sprintf("127.0.0.1:%d", serverPort)) })
}

// boot boots all nodes, one after the other.
func (l *Lab) boot(ctx context.Context) error {
	for _, name := range []string{"r1", "c1", "c2", "o1", "api", "api-etcd", "api-apiserver"} {
		if err := l.Node(name).Boot(ctx); err != nil {
			return err
		}
	}
	for _, m := range l.Members() {
		if err := errors.Join(l.Node(m).Boot(ctx), l.Node(m+"-server").Boot(ctx)); err != nil {
			return err
		}
	}
	var err error
	if l.API, err = Connect(ctx, l.Node("api"), l.own("api")); err != nil {
		return err
	}
	for _, m := range l.Members() {
		if err := l.API.CreateNode(ctx, m, l.Address(m)); err != nil {
			return err
		}
	}
	if err := l.options.Announcer.Install(ctx, l); err != nil {
		return err
	}
	return l.BootAnnouncer(ctx)
}

// BootAnnouncer starts the announcer's controller, if any, and its speakers, unless they run
// already.
func (l *Lab) BootAnnouncer(ctx context.Context) error {
	var all []*lab.Node
	if l.options.Announcer.Controller(l) != nil {
		all = append(all, l.Node(controller))
	}
	for _, m := range l.Members() {
		all = append(all, l.Speaker(m))
	}
	for _, n := range all {
		if n.Running() {
			continue
		}
		if err := n.Boot(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Close kills everything and returns when it is gone.
func (l *Lab) Close() error {
	if l.API != nil {
		l.API.Close()
	}
	if l.Lab == nil {
		return nil
	}
	return l.Lab.Close()
}

// Eventually calls try every few milliseconds until it succeeds or the context ends.
func Eventually(ctx context.Context, try func() error) error {
	for {
		err := try()
		if err == nil {
			return nil
		}
		if !wake.Pause(ctx, 20*time.Millisecond) {
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
	}
}

// Announcer is a program that assigns addresses to Services and announces them from
// nodes: Herald, or a rival.
type Announcer interface {
	// Name is its short name. Its files are in the folder /etc/NAME: on a node the
	// kubeconfig and the files of Configure, for the controller the API server's files.
	Name() string
	// Configure writes the files of the nodes, before they are booted.
	Configure(l *Lab) error
	// Speaker returns the image of the program on each node.
	Speaker(l *Lab, node string) lab.Image
	// Controller returns the image of the single program beside the API server; nil if
	// the speakers include it.
	Controller(l *Lab) lab.Image
	// Install creates its kinds, pools and peers in the API server.
	Install(ctx context.Context, l *Lab) error
}

// WatchRoutes begins to follow the routes to the addresses of [PoolBGP] in the
// router's kernel. The caller closes it.
func (l *Lab) WatchRoutes() (*routes.Watch, error) {
	return routes.Follow(l.Node("r1"), netip.MustParsePrefix(ByBGP), nil)
}

// files are the topology and the files of its machines, each in the folder of its name.
//
//go:embed topology
var files embed.FS

// configure writes the files of all machines, including the announcer's. A node also
// gets the kubeconfig.
func (l *Lab) configure() error {
	for _, machine := range []string{"r1", "api"} {
		own, err := fs.Sub(files, "topology/"+machine)
		if err := errors.Join(err, os.RemoveAll(l.own(machine)), os.CopyFS(l.own(machine), own)); err != nil {
			return err
		}
	}
	if _, err := pki.New(l.own("api"), "kubernetes", "localhost", "127.0.0.1", APIAddress); err != nil {
		return err
	}
	for _, node := range l.Members() {
		if err := errors.Join(os.RemoveAll(l.own(node)), os.CopyFS(l.own(node), os.DirFS(l.own("api")))); err != nil {
			return err
		}
	}
	return l.options.Announcer.Configure(l)
}

// own returns the folder of a machine's files. Its speaker sees it as /etc/NAME of the announcer.
func (l *Lab) own(machine string) string { return filepath.Join(l.options.Dir, machine) }

// topology returns services.clab.yml with the wanted number of nodes, and the programs
// for its images.
func (l *Lab) topology() (*clab.Topology, map[string]lab.Image, error) {
	text, err := files.ReadFile("topology/services.clab.yml")
	if err != nil {
		return nil, nil, err
	}
	a := l.options.Announcer
	t, err := clab.Parse(l.own("services.clab.yml"), text, func(string) (string, bool) { return a.Name(), true })
	if err != nil {
		return nil, nil, err
	}
	left := func(name string) bool {
		machine, _, _ := strings.Cut(name, "-")
		return machine > "n0" && machine < "n9" && !slices.Contains(l.Members(), machine) ||
			name == controller && a.Controller(l) == nil
	}
	t.Nodes = slices.DeleteFunc(t.Nodes, func(n clab.Node) bool { return left(n.Name) })
	t.Links = slices.DeleteFunc(t.Links, func(link clab.Link) bool { return left(link.A.Node) })
	return t, map[string]lab.Image{
		"frr":            lab.FRR,
		"etcd":           lab.Binary(l.options.Etcd),
		"kube-apiserver": lab.Binary(l.options.APIServer),
		"herald-testenv": lab.Binary(l.options.Testenv, "registry"),
		"speaker":        func(n clab.Node) (lab.Program, error) { return a.Speaker(l, n.Base)(n) },
		"controller":     func(n clab.Node) (lab.Program, error) { return a.Controller(l)(n) },
	}, nil
}
