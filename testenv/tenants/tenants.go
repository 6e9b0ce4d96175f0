// Package tenants is a lab of three clusters in namespaces: a load-balancing cluster
// and its two tenants. Each has a real etcd, kube-apiserver and kube-proxies. An FRR
// router and a client are in front of the load-balancing one.
//
// [Lab.Serve] and [Lab.Admit] set up the tenants by the commands of docs/tenants.md;
// [Lab.BootGateway] boots the gateway for Ingresses and routes. There is no kubelet or
// scheduler: the lab runs the programs of the Deployments, and writes Nodes and
// EndpointSlices in their place. [Lab.RunPods] replaces both for tests with a tenant's
// own Deployments.
package tenants

import (
	"bytes"
	"context"
	"crypto/x509"
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
	"text/template"

	"github.com/herald-vip/herald/election"
	"github.com/herald-vip/herald/testenv/clab"
	"github.com/herald-vip/herald/testenv/guide"
	"github.com/herald-vip/herald/testenv/lab"
	"github.com/herald-vip/herald/testenv/pki"
	"github.com/herald-vip/herald/testenv/services"
)

// pool is the pool of the Services' addresses.
const pool = `{apiVersion: herald.dev/v1alpha1, kind: AddressPool, metadata: {name: public}, spec: {addresses: [10.99.0.0/16, "fd00:99::/112"], bgp: {}}}`

// Options describe a lab.
type Options struct {
	// Programs are the paths of herald, herald-testenv, etcd, kube-apiserver,
	// kube-controller-manager, kube-proxy and kubectl, by these names. A gateway also
	// needs traefik, external-dns and named. Pods of a tenant need gateway-api's
	// echo-basic and conformance.
	Programs map[string]string
	// GatewayAPI is the folder of gateway-api's CRDs. Without it the lab has no gateway.
	GatewayAPI string
	// Repository is the folder of Herald's manifests and docs.
	Repository string
	// Dir receives configurations and logs.
	Dir string
	// Log receives progress messages.
	Log *slog.Logger
}

// Lab holds the three clusters.
type Lab struct {
	*lab.Lab
	// Balancing is the load-balancing cluster.
	Balancing *Cluster
	// Tenants are the other clusters.
	Tenants []*Cluster

	options Options
	guide   string // docs/tenants.md
	dnsKey  string // the key for external-dns's updates of the name server
}

// files are the topology and the router's files.
//
//go:embed topology
var files embed.FS

// Start boots the clusters, and Herald for Services in the load-balancing one. The
// context bounds the start only. After an error nothing is left behind.
func Start(ctx context.Context, o Options) (_ *Lab, err error) {
	if o.Dir, err = filepath.Abs(o.Dir); err != nil {
		return nil, err
	}
	l := &Lab{options: o}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("lab of tenants: %w", err), l.Close())
		}
	}()
	for i, name := range []string{"lb", "acme", "beta"} {
		c := &Cluster{Name: name, Net: []string{"10.5.0", "10.20.0", "10.21.0"}[i], Net6: []string{"fd00:5", "fd00:20", "fd00:21"}[i], Port: i + 2, lab: l}
		if i == 0 {
			l.Balancing = c
		} else {
			l.Tenants = append(l.Tenants, c)
		}
	}
	text, err := os.ReadFile(filepath.Join(o.Repository, "docs/tenants.md"))
	if err != nil {
		return nil, err
	}
	l.guide = string(text)
	if err := l.configure(); err != nil {
		return nil, err
	}
	topology, err := l.topology()
	if err != nil {
		return nil, err
	}
	images := map[string]lab.Image{"frr": lab.FRR, "kubectl": l.kubectl, "herald-testenv": l.program("herald-testenv", "echo")}
	for _, name := range []string{"herald", "etcd", "kube-apiserver", "kube-controller-manager", "kube-proxy"} {
		images[name] = l.program(name)
	}
	if l.hasGateway() {
		images["traefik"], images["external-dns"] = l.program("traefik"), l.program("external-dns")
		images["named"] = l.program("named", "-g", "-c", "/var/lib/bind/named.conf")
	}
	if l.hasPods() {
		images["echo-basic"], images["conformance"] = l.program("echo-basic"), l.program("conformance")
	}
	l.Lab, err = lab.Start(ctx, o.Log, topology, lab.Options{Hold: true, Images: images, Dir: filepath.Join(o.Dir, "logs")})
	if err != nil {
		return nil, err
	}
	return l, l.boot(ctx)
}

func (l *Lab) clusters() []*Cluster { return append([]*Cluster{l.Balancing}, l.Tenants...) }

func (l *Lab) program(name string, args ...string) lab.Image {
	return lab.Binary(l.options.Programs[name], args...)
}

// kubectl is the image of an administrators' machine, which also has herald.
func (l *Lab) kubectl(n clab.Node) (lab.Program, error) {
	p, err := l.program("kubectl")(n)
	if err != nil {
		return p, err
	}
	herald, err := l.program("herald")(n)
	p.Binds = append(p.Binds, herald.Binds...)
	return p, err
}

func (l *Lab) topology() (*clab.Topology, error) {
	t, err := template.ParseFS(files, "topology/*.tmpl")
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	if err := t.Execute(&text, map[string]any{"Clusters": l.clusters(), "Gateway": l.hasGateway(), "Pods": l.hasPods(), "DNSKey": l.dnsKey}); err != nil {
		return nil, err
	}
	return clab.Parse(filepath.Join(l.options.Dir, "tenants.clab.yml"), text.Bytes(), func(string) (string, bool) { return "", false })
}

// configure writes the files of all machines, each in a folder of its name.
func (l *Lab) configure() error {
	own, err := fs.Sub(files, "topology/r1")
	if err := errors.Join(err, os.CopyFS(l.path("r1"), own), os.CopyFS(l.path("admin", "manifests"), os.DirFS(filepath.Join(l.options.Repository, "manifests")))); err != nil {
		return err
	}
	for _, c := range l.clusters() {
		if err := c.configure(); err != nil {
			return err
		}
	}
	if l.hasGateway() {
		if err := l.configureGateway(); err != nil {
			return err
		}
	}
	key, err := election.NewKey()
	if err != nil {
		return err
	}
	for _, node := range l.Balancing.Nodes() {
		file := services.SpeakerFile(node, "  kubeconfig: /etc/kubernetes/herald.kubeconfig\n  namespace: herald-system\n", l.Balancing.Net+".254", l.Balancing.Nodes(), l.Balancing.Address)
		err := errors.Join(l.write(file, node, "herald.yaml"), l.write(key, node, "gossip.key"))
		if err != nil {
			return err
		}
	}
	return nil
}

func (l *Lab) path(parts ...string) string {
	return filepath.Join(append([]string{l.options.Dir}, parts...)...)
}

func (l *Lab) write(text string, parts ...string) error {
	path := l.path(parts...)
	return errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o600))
}

// install does the first steps of docs/services.md.
const install = `kubectl apply -f manifests/crds
kubectl apply -k manifests/kustomize/services
`

// boot boots everything except agents and the manager, one after the other.
func (l *Lab) boot(ctx context.Context) error {
	if err := l.Boot(ctx, "r1", "c1"); err != nil {
		return err
	}
	for _, c := range l.clusters() {
		if err := c.boot(ctx); err != nil {
			return fmt.Errorf("cluster %s: %w", c.Name, err)
		}
	}
	if err := l.Boot(ctx, "lb-controllers"); err != nil {
		return err
	}
	if err := l.Balancing.Run(ctx, install); err != nil {
		return err
	}
	if err := services.Eventually(ctx, func() error {
		return l.Balancing.API.Create(ctx, "/apis/herald.dev/v1alpha1/addresspools", []byte(pool))
	}); err != nil {
		return err
	}
	for _, node := range l.Balancing.Nodes() {
		if err := l.Boot(ctx, node+"-speaker"); err != nil {
			return err
		}
	}
	return nil
}

// Boot starts the programs of nodes.
func (l *Lab) Boot(ctx context.Context, nodes ...string) error {
	for _, n := range nodes {
		if err := l.Node(n).Boot(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Serve follows the guide's first steps in the load-balancing cluster, and starts a manager.
func (l *Lab) Serve(ctx context.Context) error {
	sh, _, err := l.blocks("In the load-balancing cluster")
	if err != nil {
		return err
	}
	if err := l.Balancing.Run(ctx, sh[0]); err != nil {
		return err
	}
	return l.Boot(ctx, "lb-manager")
}

// Admit follows the guide's steps for a tenant, in both clusters, and starts an agent.
// A non-empty spec replaces the guide's specification of the Tenant.
func (l *Lab) Admit(ctx context.Context, c *Cluster, spec string) error {
	there, object, err := l.blocks("In the load-balancing cluster")
	if err != nil {
		return err
	}
	here, _, err := l.blocks("In the tenant's cluster")
	if err != nil {
		return err
	}
	own := strings.NewReplacer("acme", c.Name, "10.20.0", c.Net, "fd00:20", c.Net6, "lb.example.com", l.Balancing.Address("api").String())
	tenant := own.Replace(object[0])
	if spec != "" {
		tenant = fmt.Sprintf("{apiVersion: herald.dev/v1alpha1, kind: Tenant, metadata: {name: %s}, spec: %s}", c.Name, spec)
	}
	if err := l.Balancing.API.Create(ctx, "/apis/herald.dev/v1alpha1/tenants", []byte(tenant)); err != nil {
		return err
	}
	// The account appears a moment after the Tenant.
	if err := services.Eventually(ctx, func() error { return l.Balancing.Run(ctx, own.Replace(there[1])) }); err != nil {
		return err
	}
	if err := c.Run(ctx, own.Replace(here[0])); err != nil {
		return err
	}
	if err := c.mountSecret(ctx); err != nil {
		return err
	}
	return l.Boot(ctx, c.Name+"-agent")
}

// blocks returns the commands and the objects below a heading of the guide.
func (l *Lab) blocks(heading string) (sh, objects []string, err error) {
	sh, objects = guide.Blocks(l.guide, heading, "sh"), guide.Blocks(l.guide, heading, "yaml")
	if len(sh) < 2 {
		return nil, nil, fmt.Errorf("docs/tenants.md has %d blocks of commands below %q, want two at least", len(sh), heading)
	}
	return sh, objects, nil
}

// Close kills everything and returns when it is gone.
func (l *Lab) Close() error {
	for _, c := range l.clusters() {
		if c.API != nil {
			c.API.Close()
		}
	}
	if l.Lab == nil {
		return nil
	}
	return l.Lab.Close()
}

// Cluster is one of the three.
type Cluster struct {
	// Name of the cluster: lb, or the Tenant's.
	Name string
	// Net holds the first three numbers of its IPv4 addresses, Net6 the first two of its IPv6
	// addresses.
	Net, Net6 string
	// Port is the number of the router's link to it.
	Port int
	// API is a client of its API server, as an administrator.
	API *services.API

	lab *Lab
}

// Nodes returns the names of its nodes.
func (c *Cluster) Nodes() []string { return []string{c.Name + "1", c.Name + "2", c.Name + "3"} }

// Address returns the IPv4 address of a node, of api or, in the load-balancing cluster, of dns.
func (c *Cluster) Address(node string) netip.Addr {
	host := "250"
	switch {
	case node == "dns":
		host = "253"
	case slices.Contains(c.Nodes(), node):
		host = strings.TrimPrefix(node, c.Name)
	}
	return netip.MustParseAddr(c.Net + "." + host)
}

// Address6 returns the IPv6 address of a node.
func (c *Cluster) Address6(node string) netip.Addr {
	return netip.MustParseAddr(c.Net6 + "::" + strings.TrimPrefix(node, c.Name))
}

// Node returns the node of a part, such as api, apiserver or agent.
func (c *Cluster) Node(part string) *lab.Node { return c.lab.Node(c.Name + "-" + part) }

// Run runs a script as its administrator, to its first error.
func (c *Cluster) Run(ctx context.Context, script string) error {
	_, err := c.Node("api").Run(ctx, "sh", "-euc", "cd /root/admin\n"+script)
	return err
}

// CA returns the issuer of the certificates of its API server and of its programs. The
// load-balancing cluster's CA has also signed the gateway's.
func (c *Cluster) CA() (*x509.CertPool, error) {
	text, err := os.ReadFile(c.lab.path(c.Name, "ca.crt"))
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("the CA of %s has no certificate", c.Name)
	}
	return pool, nil
}

// kubeconfig has the rights of an administrator, or of an account.
const kubeconfig = `apiVersion: v1
kind: Config
clusters: [{name: a, cluster: {server: "https://%s:6443", certificate-authority: ca.crt}}]
users: [{name: a, user: {token: %s%s}}]
contexts: [{name: a, context: {cluster: a, user: a}}]
current-context: a
`

func (c *Cluster) configure() error {
	if err := os.MkdirAll(c.lab.path(c.Name), 0o755); err != nil {
		return err
	}
	names := []string{"kubernetes", "localhost", "127.0.0.1", c.Address("api").String()}
	for _, tenant := range c.lab.Tenants { // the names of servers and of the gateway
		names = append(names, "*."+tenant.Name+"."+Domain)
	}
	if _, err := pki.New(c.lab.path(c.Name), names...); err != nil {
		return err
	}
	files := map[string]string{
		"kubeconfig": fmt.Sprintf(kubeconfig, c.Address("api"), "admin-token", ""),
		// The API server's own rules apply to other users.
		"tokens.csv": "harness-token,harness,harness,\"system:masters\"\nadmin-token,admin,admin,\"system:masters\"\n",
		"audit.yaml": `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
- {level: None, users: [harness]}
- {level: None, userGroups: ["system:nodes", "system:apiserver"]}
- {level: Metadata, verbs: [create, update, patch, delete, deletecollection]}
- {level: None}
`,
		"proxy.yaml": `apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
nftables: {minSyncPeriod: 100ms}
clientConnection: {kubeconfig: /etc/kubernetes/kubeconfig}
healthzBindAddress: 0.0.0.0:10256
conntrack: {maxPerCore: 0}
`,
	}
	for _, account := range []string{"herald", "herald-manager", "herald-agent"} {
		as := fmt.Sprintf(`, as: "system:serviceaccount:herald-system:%s"`, account)
		files[account+".kubeconfig"] = fmt.Sprintf(kubeconfig, c.Address("api"), "admin-token", as)
	}
	for name, text := range files {
		if err := c.lab.write(text, c.Name, name); err != nil {
			return err
		}
	}
	return os.MkdirAll(c.lab.path(c.Name+"-secret"), 0o755)
}

// boot starts the cluster's API server, and its nodes.
func (c *Cluster) boot(ctx context.Context) (err error) {
	if err := c.lab.Boot(ctx, c.Name+"-api", c.Name+"-etcd", c.Name+"-apiserver"); err != nil {
		return err
	}
	if c.API, err = services.Connect(ctx, c.Node("api"), c.lab.path(c.Name)); err != nil {
		return err
	}
	for _, node := range c.Nodes() {
		if err := errors.Join(c.API.CreateNode(ctx, node, c.Address(node), c.Address6(node)), c.BootNode(ctx, node)); err != nil {
			return err
		}
	}
	return nil
}

// BootNode starts the programs of a node except Herald.
func (c *Cluster) BootNode(ctx context.Context, node string) error {
	nodes := []string{node, node + "-proxy"}
	if c != c.lab.Balancing {
		nodes = append(nodes, node+"-server")
	}
	return c.lab.Boot(ctx, nodes...)
}
