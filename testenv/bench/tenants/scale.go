package tenants

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"text/template"
	"time"

	"golang.org/x/sync/errgroup"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/testenv/bench/observe"
	"github.com/herald-vip/herald/testenv/services"
	"github.com/herald-vip/herald/testenv/step"
)

const herald = "/apis/herald.dev/v1alpha1"

// namespace returns the namespace of a tenant, inTenant the path of an object there.
func namespace(tenant int) string { return v1alpha1.TenantNamespace(tenantName(tenant)) }

func inTenant(tenant int, path string) string {
	return herald + "/namespaces/" + namespace(tenant) + "/" + path
}

func tenantName(n int) string { return fmt.Sprintf("t%03d", n) }

// size holds the numbers of tenants, and of Services, routes and nodes per tenant.
type size struct{ tenants, services, routes, nodes int }

// scale measures the resources of many tenants. They have no clusters: the lab writes
// their agents' objects. One machine has the addresses of all their nodes, and a
// kube-proxy that answers the probes of all.
func (s *stage) scale(ctx context.Context) {
	z := size{tenants: 100, services: 100, nodes: 10}
	if s.Quick {
		z = size{tenants: 3, services: 4, nodes: 2}
	}
	all := z.tenants * z.services
	s.prepare(ctx)
	began := time.Now()
	s.createTenants(ctx, z)
	s.noteAmong(all, "many tenants: until the API server has what they ask for", "s", time.Since(began).Seconds())
	s.awaitServed(ctx, all)
	s.noteAmong(all, "many tenants: until all Services have their VIPs", "s", time.Since(began).Seconds())
	s.sizes(ctx, "many tenants", all, z.tenants*z.nodes)
	for i := range s.Trials {
		s.apart(ctx)
		began := time.Now()
		name := fmt.Sprintf("default.new%d", i)
		s.ask(ctx, 0, name, false)
		step.Do(services.Eventually(ctx, func() error {
			var lb v1alpha1.TCPLoadBalancer
			if err := s.Balancing.API.Get(ctx, inTenant(0, "tcploadbalancers/"+name), &lb); err != nil {
				return err
			}
			if len(lb.Status.Addresses) == 0 {
				return fmt.Errorf("%s has no VIP", name)
			}
			return nil
		}))
		s.noteAmong(all, "many tenants: one Service is asked for, until it has its VIP", "ms", time.Since(began).Seconds()*1e3)
		step.Do(s.Balancing.API.Delete(ctx, inTenant(0, "tcploadbalancers/"+name)))
	}
	s.vanishes(ctx, z, all)
}

// prepare makes the load-balancing cluster serve tenants with one machine for all nodes.
func (s *stage) prepare(ctx context.Context) {
	step.Do(s.Serve(ctx))
	for _, node := range s.Balancing.Nodes() { // three, each writing the rules of ten thousand Services, would use up two cores
		step.Do(s.Node(node + "-proxy").Kill())
	}
	step.Get(s.Node("acme1").Run(ctx, "ip", "route", "add", "local", "10.30.0.0/16", "dev", "lo"))
	step.Get(s.Node("r1").Run(ctx, "ip", "route", "add", "10.30.0.0/16", "via", s.acme.Address("acme1").String()))
}

// rest is how long idle measurements last.
func (s *stage) rest() time.Duration {
	if s.Quick {
		return time.Second
	}
	return 30 * time.Second
}

// sizes records memory, and the manager's CPU time while nothing changes.
func (s *stage) sizes(ctx context.Context, what string, all, nodes int) {
	step.Pause(ctx, s.rest())
	memory := func(measure, node string) {
		pid := s.Node(node).Daemon("herald").Pid()
		s.noteAmong(all, what+": memory of "+measure, "MB", observe.Resident(pid)*1e-6)
	}
	memory("the manager", "lb-manager")
	for _, node := range s.Balancing.Nodes() {
		memory("each speaker", node+"-speaker")
	}
	before := s.cpu("lb-manager")
	step.Pause(ctx, s.rest())
	s.noteAmong(all, fmt.Sprintf("%s: CPU of the manager, which probes %d nodes", what, nodes), "%", 100*(s.cpu("lb-manager")-before).Seconds()/s.rest().Seconds())
}

// vanishes measures how long one silent node of one tenant stays in use.
func (s *stage) vanishes(ctx context.Context, z size, all int) {
	await := func(nodes int) {
		s.awaitSlices(ctx, namespace(0), func(list []discoveryv1.EndpointSlice) error {
			for _, slice := range list {
				if len(slice.Endpoints) != nodes {
					return fmt.Errorf("%s has %d nodes, want %d", slice.Name, len(slice.Endpoints), nodes)
				}
			}
			return nil
		})
	}
	for range s.Trials {
		s.apart(ctx)
		began := time.Now()
		step.Get(s.Node("acme1").Run(ctx, "nft", "table ip silent { chain in { type filter hook input priority 0; ip daddr 10.30.0.1 drop; }; }"))
		await(z.nodes - 1)
		s.noteAmong(all, "many tenants: a node vanishes, until no Service has it", "ms", time.Since(began).Seconds()*1e3)
		step.Get(s.Node("acme1").Run(ctx, "nft", "delete", "table", "ip", "silent"))
		await(z.nodes)
	}
}

// createTenants writes Tenants and their agents' objects, many in parallel.
func (s *stage) createTenants(ctx context.Context, z size) {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(8)
	for n := range z.tenants {
		g.Go(func() error { return step.Run(func() { s.createTenant(ctx, n, z) }) })
	}
	step.Do(g.Wait())
}

func (s *stage) createTenant(ctx context.Context, n int, z size) {
	object := fmt.Sprintf("{apiVersion: herald.dev/v1alpha1, kind: Tenant, metadata: {name: %s}, spec: {nodes: {cidrs: [10.30.%d.0/24]}, ingress: {className: any}, quota: {services: %d, routes: %d}}}",
		tenantName(n), n, z.services+1, z.routes+1)
	step.Do(s.Balancing.API.Create(ctx, herald+"/tenants", []byte(object)))
	nodes := v1alpha1.TenantNodes{}
	nodes.APIVersion, nodes.Kind, nodes.Name = "herald.dev/v1alpha1", "TenantNodes", "nodes"
	for i := range z.nodes {
		nodes.Nodes = append(nodes.Nodes, v1alpha1.TenantNode{Name: fmt.Sprintf("n%d", i+1), Addresses: []string{fmt.Sprintf("10.30.%d.%d", n, i+1)}, Ready: true})
	}
	s.create(ctx, n, "tenantnodes", &nodes)
	for i := range z.services {
		s.ask(ctx, n, fmt.Sprintf("default.s%d", i), z.routes > 0)
	}
	for i := range z.routes {
		s.route(ctx, n, fmt.Sprintf("r%d", i), fmt.Sprintf("s%d", i%z.services))
	}
}

// create writes an agent's object. The tenant's namespace and its quota appear a moment after
// the Tenant, and the API server refuses objects until it has counted the quota.
func (s *stage) create(ctx context.Context, tenant int, resource string, object any) {
	step.Do(services.Eventually(ctx, func() error { return s.Balancing.API.Create(ctx, inTenant(tenant, resource), object) }))
}

// ask writes an agent's object for a Service, or for a Service that only routes need.
func (s *stage) ask(ctx context.Context, tenant int, name string, internal bool) {
	object := fmt.Sprintf("{apiVersion: herald.dev/v1alpha1, kind: TCPLoadBalancer, metadata: {name: %s}, spec: {origin: {namespace: default, name: %s}, "+
		"internal: %t, ipFamilies: [IPv4], ports: [{protocol: TCP, port: 80, targetPort: 30080}]}}", name, name[len("default."):], internal)
	s.create(ctx, tenant, "tcploadbalancers", []byte(object))
}

// awaitServed waits until that many have VIPs.
func (s *stage) awaitServed(ctx context.Context, all int) {
	awaitAll(ctx, all, func() (n int) {
		var list v1alpha1.TCPLoadBalancerList
		step.Do(s.Balancing.API.Get(ctx, herald+"/tcploadbalancers", &list))
		for _, lb := range list.Items {
			if len(lb.Status.Addresses) > 0 {
				n++
			}
		}
		return n
	})
}

// awaitAll waits until count returns all.
func awaitAll(ctx context.Context, all int, count func() int) {
	for n := count(); n != all; n = count() {
		if err := step.Sleep(ctx, time.Second); err != nil {
			step.Do(fmt.Errorf("%d of %d are served: %w", n, all, err))
		}
	}
}

// script is an example of a script written in an afternoon.
//
//go:embed script.sh.tmpl
var script string

// scriptNet are the first three numbers of the addresses that the script gives.
const scriptNet = "10.99.1"

// startScript makes the script serve the tenant from the first node of the
// load-balancing cluster. The router has a route to it.
func (s *stage) startScript(ctx context.Context) {
	const work = "/root/admin" // the administrators' folder, here on the first node
	step.Do(os.CopyFS(filepath.Join(s.dir, "admin", s.acme.Name), os.DirFS(filepath.Join(s.dir, s.acme.Name))))
	var text bytes.Buffer
	t := template.Must(template.New("script").Parse(script))
	step.Do(t.Execute(&text, map[string]string{"Kubeconfig": filepath.Join(work, s.acme.Name, "kubeconfig"), "Dir": work, "HAProxy": s.Programs["haproxy"], "Net": scriptNet}))
	node := s.Balancing.Nodes()[0]
	step.Get(s.Node("r1").Run(ctx, "ip", "route", "add", scriptNet+".0/24", "via", s.Balancing.Address(node).String()))
	log := step.Get(os.Create(filepath.Join(s.dir, "logs", "script.log")))
	defer log.Close()
	step.Get(s.Node(node).Start(&exec.Cmd{Args: []string{"sh", "-c", text.String()}, Stdout: log, Stderr: log}))
}

// writes counts the writes of agent, manager and address writer in both clusters so
// far. It ignores Leases, Events and the status of the Tenant, which combines many
// changes.
func (s *stage) writes() (n int) {
	for _, cluster := range []string{s.Balancing.Name, s.acme.Name} {
		for line := range bytes.Lines(observe.AuditLog(filepath.Join(s.dir, cluster, "audit.log"))) {
			var r struct {
				User, ImpersonatedUser struct{ Username string }
				ObjectRef              struct{ Resource string }
			}
			step.Named("audit log", func() { step.Do(json.Unmarshal(line, &r)) })
			ours := strings.Contains(r.User.Username+r.ImpersonatedUser.Username, ":herald")
			if ours && !slices.Contains([]string{"leases", "events", "tenants"}, r.ObjectRef.Resource) {
				n++
			}
		}
	}
	return n
}
