// Package services is a small cluster in a lab of namespaces, to announce Services
// in: a real etcd and kube-apiserver, nodes with a speaker each, an FRR router and
// clients. There is no kubelet, no scheduler and no controller manager: [Lab] writes
// Nodes, Services and EndpointSlices itself, as those would.
//
// All machines are on one segment, so the same cluster shows both ways of
// announcing:
//
//	c1 ── r1 ─┐        r1 .254, FRR, AS 64500; c1 is behind it
//	     api ─┤        .250: etcd, kube-apiserver, the announcer's controller
//	      c2 ─┼─ lan   .9: a client; 10.5.0.0/24, fd00:5::/64
//	      o1 ─┤        .8: an observer
//	  n1..n5 ─┘        .1 to .5: nodes, AS 64512, each with a speaker and a server
//
// Two pools are there: [PoolBGP] is announced to r1, [PoolARP] is part of the
// segment's own subnet.
//
// A node has no kube-proxy. What stands in for it is one rule of nftables, which
// leads what comes in for any address of the pools and port 80 to the node's own
// server, whatever the Services say: as kube-proxy does with the endpoint on the
// node itself. What it does not show is who may answer by externalTrafficPolicy, and
// how long kube-proxy takes to follow a change.
package services

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/herald-vip/herald/testenv/lab"
)

// Where things are.
const (
	// PoolBGP is the name of the pool that is announced by BGP, and ByBGP its addresses.
	PoolBGP, ByBGP = "bgp", "10.99.0.0/16"
	// PoolARP is the name of the pool that is answered for by ARP, and ByARP its addresses.
	PoolARP, ByARP = "arp", "10.5.0.192-10.5.0.239"
	// Segment is the bridge that all are on.
	Segment = "lan"
	// Port is that of every Service.
	Port = 80
	// MostNodes is how many nodes there may be.
	MostNodes = 5

	apiAddress    = "10.5.0.250"
	routerAddress = "10.5.0.254"
	routerASN     = 64500
	nodeASN       = 64512
	serverPort    = 8080
)

// Options say what a lab is made of.
type Options struct {
	// Nodes is how many there are, 1 to [MostNodes]. Default: 3.
	Nodes int
	// Announcer runs on them; nil for none, who has an announcer of his own start it.
	Announcer Announcer
	// APIServer, Etcd and Testenv are the paths of kube-apiserver, etcd and herald-testenv.
	APIServer, Etcd, Testenv string
	// CRDs are files of further definitions that the API server is to know.
	CRDs []string
	// Dir receives configurations and logs. Default: a temporary folder, removed by Close.
	Dir string
	// Log is told how it goes. Default: nobody.
	Log *slog.Logger
}

// Lab is a running cluster.
type Lab struct {
	*lab.Lab
	// API is its API server, spoken to as an administrator.
	API *API

	options   Options
	dir       string
	tempDir   bool
	endpoints endpoints
}

// Start boots a cluster and, if there is an announcer, installs and boots that. The
// context bounds the start only. After an error nothing is left behind.
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
	l := &Lab{options: o, dir: o.Dir}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("lab of Services: %w", err), l.Close())
		}
	}()
	if l.dir == "" {
		l.tempDir = true
		if l.dir, err = os.MkdirTemp("", "services-"); err != nil {
			return nil, err
		}
	}
	if l.dir, err = filepath.Abs(l.dir); err != nil {
		return nil, err
	}
	if err := l.configure(); err != nil {
		return nil, err
	}
	topology, images := l.topology()
	l.Lab, err = lab.Start(ctx, o.Log, topology, lab.Options{Hold: true, Images: images, Dir: filepath.Join(l.dir, "logs")})
	if err != nil {
		return nil, err
	}
	return l, l.boot(ctx)
}

// configure writes the files of all but the announcer, and has that write its own.
func (l *Lab) configure() error {
	for _, dir := range []string{l.pki(), l.own("r1")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	if err := l.writePKI(); err != nil {
		return err
	}
	for path, text := range map[string]string{
		filepath.Join(l.own("r1"), "frr.conf"): routerConf(l.options.Nodes),
		filepath.Join(l.own("r1"), "daemons"):  "bgpd=yes\nbfdd=yes\n",
		filepath.Join(l.pki(), "audit.yaml"):   auditPolicy,
		filepath.Join(l.pki(), "tokens.csv"):   tokens(),
	} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return err
		}
	}
	if l.options.Announcer == nil {
		return nil
	}
	for _, node := range l.Members() {
		dir := l.own(node)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		if err := l.writeKubeconfig(filepath.Join(dir, "kubeconfig"), announcerUser); err != nil {
			return err
		}
	}
	if err := l.writeKubeconfig(filepath.Join(l.pki(), "kubeconfig"), announcerUser); err != nil {
		return err
	}
	return l.options.Announcer.Configure(l)
}

// own is the folder of a machine's files, which a speaker sees as /etc/NAME of its announcer.
func (l *Lab) own(machine string) string { return filepath.Join(l.dir, machine) }

// pki is the folder of what has to do with the API server.
func (l *Lab) pki() string { return l.own("api") }

// Members are the names of the nodes.
func (l *Lab) Members() (list []string) {
	for i := range l.options.Nodes {
		list = append(list, fmt.Sprintf("n%d", i+1))
	}
	return list
}

// Address is the IPv4 address of a node.
func (l *Lab) Address(node string) netip.Addr {
	return netip.MustParseAddr("10.5.0." + node[1:])
}

// Speaker is the announcer on a node.
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

// boot boots everything, one after the other.
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
	if err := l.API.define(ctx, l.options.CRDs); err != nil {
		return err
	}
	if l.options.Announcer == nil {
		return nil
	}
	if err := l.options.Announcer.Install(ctx, l); err != nil {
		return err
	}
	return l.BootAnnouncer(ctx)
}

// BootAnnouncer starts the announcer's controller, if it has one, and its speakers,
// those of them that do not run.
func (l *Lab) BootAnnouncer(ctx context.Context) error {
	var all []*lab.Node
	if l.options.Announcer.Controller(l) != nil {
		all = append(all, l.Node("api-controller"))
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
	if l.API, err = newAPI(l.pki(), l.Node("api")); err != nil {
		return err
	}
	return Eventually(ctx, func() error { return l.API.Get(ctx, "/readyz", nil) })
}

// Close kills everything and returns when it is gone.
func (l *Lab) Close() error {
	var err error
	if l.API != nil {
		l.API.http.CloseIdleConnections()
	}
	if l.Lab != nil {
		err = l.Lab.Close()
	}
	if l.tempDir {
		err = errors.Join(err, os.RemoveAll(l.dir))
	}
	return err
}

// Eventually tries until it succeeds, every few milliseconds, or the context ends.
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
