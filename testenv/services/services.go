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
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"
	"time"

	"k8s.io/client-go/rest"

	"github.com/herald-vip/herald/testenv/lab"
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
	return Eventually(ctx, func() error {
		c, err := l.Node(node).DialContext(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", serverPort))
		if err != nil {
			return err
		}
		return c.Close()
	})
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
	if err := l.connect(ctx); err != nil {
		return err
	}
	for _, m := range l.Members() {
		if err := l.createNode(ctx, m); err != nil {
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

// connect waits until the API server is ready.
func (l *Lab) connect(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, 90*time.Second)
	defer cancel()
	l.API, err = NewAPI(&rest.Config{
		Host: "https://127.0.0.1:6443", Dial: l.Node("api").DialContext, BearerToken: "harness-token",
		TLSClientConfig: rest.TLSClientConfig{CAFile: filepath.Join(l.own("api"), "ca.crt"), ServerName: "kubernetes"},
	})
	if err != nil {
		return err
	}
	return Eventually(ctx, func() error { return l.API.Get(ctx, "/readyz", nil) })
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
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
	}
}
