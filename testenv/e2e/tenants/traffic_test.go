//go:build e2e

package tenants

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/internal/probe"
	"github.com/herald-vip/herald/tenant"
	"github.com/herald-vip/herald/testenv/e2e/site"
	"github.com/herald-vip/herald/testenv/lab"
	"github.com/herald-vip/herald/testenv/services"
	"github.com/herald-vip/herald/testenv/tenants"
)

// clusters are the three of package tenants, and a client that connects to a Service of acme's.
type clusters struct {
	*tenants.Lab
	acme, beta *tenants.Cluster
	vip        netip.Addr
	client     *site.Client
}

// startLab starts the lab, with or without the parts of a gateway, and with more parts.
func startLab(t *testing.T, gateway bool, more map[string]string) *tenants.Lab {
	t.Helper()
	parts := map[string]string{
		"herald": "HERALD_RACE", "herald-testenv": "TESTENV", "etcd": "ETCD", "kube-apiserver": "KUBE_APISERVER",
		"kube-controller-manager": "KUBE_CONTROLLER_MANAGER", "kube-proxy": "KUBE_PROXY", "kubectl": "KUBECTL",
	}
	o := tenants.Options{Programs: make(map[string]string), Repository: "../../..", Dir: t.TempDir(), Log: site.Log(t)}
	if gateway {
		maps.Copy(parts, map[string]string{"traefik": "TRAEFIK", "external-dns": "EXTERNAL_DNS", "named": "NAMED"})
		o.GatewayAPI = site.Part(t, "GATEWAY_API")
	}
	maps.Copy(parts, more)
	for name, part := range parts {
		o.Programs[name] = site.Part(t, part)
	}
	l := site.Get[*tenants.Lab](t)(tenants.Start(t.Context(), o))
	t.Cleanup(func() {
		for _, n := range l.Nodes() {
			site.Sane(t, n)
		}
		if t.Failed() {
			site.ShowLogs(t, l.Lab)
		}
		site.Must(t, l.Close())
	})
	return l
}

func startClusters(t *testing.T) *clusters {
	t.Helper()
	l := startLab(t, false, nil)
	c := &clusters{Lab: l, acme: l.Tenants[0], beta: l.Tenants[1]}
	ctx := site.Context(t)
	site.Must(t, l.Serve(ctx))
	site.Must(t, errors.Join(l.Admit(ctx, c.acme, ""), l.Admit(ctx, c.beta, "")))
	site.Must(t, c.acme.Expose(ctx, "web", nil))
	vip := site.Get[netip.Addr](t)(c.acme.VIP(ctx, "web"))
	c.vip = vip
	c.client = site.Connect(t, &probe.Prober{
		Target: net.JoinHostPort(c.vip.String(), "80"), Identify: true, Dial: l.Node("c1").DialContext, Timeout: 500 * time.Millisecond,
	})
	c.settles(t)
	return c
}

// settles waits until no connection has failed for a while.
func (c *clusters) settles(t *testing.T) {
	t.Helper()
	site.Eventually(t, site.Soon, func() error {
		now := time.Now()
		c.client.GoesOn(t, 200)
		failed := c.client.Failed(now)
		return site.ErrorIf(len(failed) > 0, "%d connections failed: %v", len(failed), failed)
	})
}

// costs runs a step of a test. A planned step may cost no connection.
func (c *clusters) costs(t *testing.T, what string, planned bool, step func(t *testing.T)) {
	t.Run(what, func(t *testing.T) {
		began := time.Now()
		step(t)
		c.client.GoesOn(t, 100)
		all, failed := c.client.Since(began), c.client.Failed(began)
		t.Logf("failed: %d of %d connections", len(failed), len(all))
		if planned {
			c.client.None(t, began)
		}
	})
}

// respread checks that the only connections that failed since an instant were in
// progress when the router rehashed. Their packets then reach a node with a kube-proxy
// that does not know them. Connections are made one after the other, so each change
// may cost one.
func (c *clusters) respread(t *testing.T, watch *site.RouteWatcher, began time.Time) {
	t.Helper()
	changes, failed := watch.Since(), c.client.Failed(began)
	for _, a := range failed {
		if !site.Cuts(changes, a.At, a.At.Add(a.Latency)) {
			site.FailTiming(t, c.client.Starved(began), "the connection %v, which took %v, failed without a change of routes: %v", a, a.Latency, changes)
		}
	}
	if len(failed) > len(changes) {
		site.FailTiming(t, c.client.Starved(began), "%d connections failed at %d changes of routes: %v", len(failed), len(changes), failed)
	}
}

// nodesOf returns the nodes of acme that connections to its Service are sent to.
func (c *clusters) nodesOf(t *testing.T, service string) (out []string) {
	t.Helper()
	derived, _ := tenant.DerivedNames("default." + service)
	var list discoveryv1.EndpointSliceList
	site.Must(t, c.Balancing.API.Get(t.Context(), "/apis/discovery.k8s.io/v1/namespaces/tenant-acme/endpointslices?labelSelector=kubernetes.io/service-name="+derived, &list))
	for _, slice := range list.Items {
		for _, e := range slice.Endpoints {
			out = append(out, "acme"+e.Addresses[0][strings.LastIndex(e.Addresses[0], ".")+1:])
		}
	}
	slices.Sort(out)
	return out
}

// sentTo waits until connections are sent to these nodes.
func (c *clusters) sentTo(t *testing.T, nodes ...string) {
	t.Helper()
	site.Eventually(t, site.Soon, func() error {
		got := c.nodesOf(t, "web")
		return site.ErrorIf(!slices.Equal(got, nodes), "connections are sent to %v, want %v", got, nodes)
	})
}

// takes waits until a node of acme's accepts connections to its Service: a newly
// started kube-proxy reports that it is healthy before it has written a rule, and
// refuses connections.
func (c *clusters) takes(t *testing.T, node string) {
	t.Helper()
	var s corev1.Service
	site.Must(t, c.acme.API.Get(t.Context(), services.Services+"/web", &s))
	address := netip.AddrPortFrom(c.acme.Address(node), uint16(s.Spec.Ports[0].NodePort))
	site.Eventually(t, site.Soon, func() error { return c.acme.Node("api").Reaches(t.Context(), address.String()) })
}

// follows waits until a cluster's API server is ready and each kube-proxy follows it. After an outage a kube-proxy
// waits before it connects again, the longer the outage was: up to a minute. Until then it misses all changes.
func follows(t *testing.T, l *tenants.Lab, c *tenants.Cluster) {
	t.Helper()
	site.Must(t, c.API.Ready(site.Context(t)))
	site.Must(t, c.Expose(t.Context(), "followed", func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeClusterIP }))
	for _, name := range c.Nodes() {
		site.Eventually(t, site.Soon, func() error {
			rules, err := site.Run(t, l.Node(name), "nft", "list", "table", "ip", "kube-proxy")
			return site.Check(err, !strings.Contains(rules, "-default/followed/tcp/http {"), "kube-proxy of %s has the rules %s", name, rules)
		})
	}
	site.Must(t, c.Remove(t.Context(), "followed"))
}

// says waits until a condition of acme's Tenant has a status and a message that contains this.
func (c *clusters) says(t *testing.T, condition string, status bool, message string) {
	t.Helper()
	site.Eventually(t, site.Soon, func() error {
		var a v1alpha1.Tenant
		if err := c.Balancing.API.Get(t.Context(), site.HeraldPath("tenants")+"/acme", &a); err != nil {
			return err
		}
		got := meta.FindStatusCondition(a.Status.Conditions, condition)
		ok := got != nil && (got.Status == "True") == status && strings.Contains(got.Message+strings.Join(a.Status.Refused, "\n"), message)
		return site.ErrorIf(!ok, "the Tenant has the status %+v, want %s to be %v, and %q", a.Status, condition, status, message)
	})
}

// TestTraffic sets up the guide's configuration in clusters with kube-proxy behind
// FRR, and breaks one thing after the other while a client connects every 5 ms.
func TestTraffic(t *testing.T) {
	c := startClusters(t)
	watch := site.WatchRoutes(t, c.Node("r1"))
	away := func(n *lab.Node, ready func(*testing.T)) func(*testing.T) {
		return func(t *testing.T) {
			site.Kill(t, n)
			c.client.GoesOn(t, 400)
			site.Start(t, n)
			ready(t)
			c.client.GoesOn(t, 400)
		}
	}
	none := func(*testing.T) {}
	all := c.acme.Nodes()

	c.costs(t, "the agent is away", true, away(c.acme.Node("agent"), none))
	c.costs(t, "the manager is away", true, away(c.Balancing.Node("manager"), none))
	c.costs(t, "the load-balancing API server is away", true, away(c.Balancing.Node("apiserver"), func(t *testing.T) { follows(t, c.Lab, c.Balancing) }))
	c.costs(t, "the tenant's API server is away", true, away(c.acme.Node("apiserver"), func(t *testing.T) { follows(t, c.Lab, c.acme) }))
	c.costs(t, "another tenant's agent is away", true, away(c.beta.Node("agent"), none))
	for _, node := range c.Balancing.Nodes() {
		c.costs(t, "the speaker of "+node+" restarts", false, func(t *testing.T) {
			watch.Mark()
			began := time.Now()
			site.Must(t, site.Stop(t, c.Node(node+"-speaker")))
			c.client.GoesOn(t, 100)
			site.Start(t, c.Node(node+"-speaker"))
			site.Eventually(t, site.Soon, func() error {
				hops, err := site.Hops(c.Node("r1"), c.vip.String())
				return errors.Join(err, site.ErrorIf(len(hops) != 3, "the route has the next hops %v", hops))
			})
			c.client.GoesOn(t, 100)
			c.respread(t, watch, began)
		})
	}
	c.costs(t, "a node is drained", true, func(t *testing.T) {
		label := func(value any) {
			site.Must(t, c.acme.API.Patch(t.Context(), services.Nodes+"/acme2", map[string]any{"metadata": map[string]any{"labels": map[string]any{services.Excluded: value}}}))
		}
		label("")
		c.sentTo(t, "acme1", "acme3")
		c.client.GoesOn(t, 400) // and each kube-proxy has followed
		site.Must(t, c.acme.SetEndpoints(site.Context(t), "web", "acme1", "acme3"))
		c.client.GoesOn(t, 400)
		site.Must(t, c.Node("acme2").PowerOff())
		c.client.GoesOn(t, 400)
		site.PowerOn(t, c.Node("acme2"))
		site.Must(t, c.acme.SetEndpoints(site.Context(t), "web", all...))
		c.takes(t, "acme2")
		label(nil)
		c.sentTo(t, all...)
	})
	c.costs(t, "all nodes are silent", true, func(t *testing.T) {
		for _, node := range all {
			site.Shell(t, c.Node(node), "nft 'table ip silent { chain in { type filter hook input priority 0; tcp dport 10256 drop; }; }'")
		}
		c.says(t, tenant.ConditionNodes, false, "")
		c.sentTo(t, all...) // the manager may do that a moment later
		for _, node := range all {
			site.Shell(t, c.Node(node), "nft delete table ip silent")
		}
		c.says(t, tenant.ConditionNodes, true, "")
	})
	c.costs(t, "a node vanishes", false, func(t *testing.T) {
		site.Must(t, c.Node("acme3").PowerOff())
		site.Must(t, c.acme.SetEndpoints(site.Context(t), "web", "acme1", "acme2")) // as the tenant's controllers do after a while
		c.sentTo(t, "acme1", "acme2")
		c.settles(t)
		site.PowerOn(t, c.Node("acme3"))
		site.Must(t, c.acme.SetEndpoints(site.Context(t), "web", all...))
		c.sentTo(t, all...)
		c.settles(t)
	})
	c.costs(t, "a node refuses", false, func(t *testing.T) {
		site.Kill(t, c.Node("acme1-proxy"))
		site.Shell(t, c.Node("acme1"), "nft flush ruleset")
		c.sentTo(t, "acme2", "acme3")
		c.settles(t)
		site.Start(t, c.Node("acme1-proxy"))
		c.sentTo(t, all...)
		c.settles(t)
	})
	c.costs(t, "the Tenant is narrowed", true, func(t *testing.T) {
		cidrs := func(list ...string) {
			site.Must(t, c.Balancing.API.Patch(t.Context(), site.HeraldPath("tenants")+"/acme", map[string]any{"spec": map[string]any{"nodes": map[string]any{"cidrs": list}}}))
		}
		cidrs("10.20.0.2/31", "fd00:20::2/127")
		c.sentTo(t, "acme2", "acme3")
		c.says(t, tenant.ConditionReady, false, "node acme1: 10.20.0.1 is not in the nodes.cidrs of the Tenant")
		c.client.GoesOn(t, 400)
		cidrs("10.20.0.0/24", "fd00:20::/64")
		c.sentTo(t, all...)
	})
	t.Run("both families", func(t *testing.T) { c.bothFamilies(t) })
	t.Run("UDP", func(t *testing.T) { c.answersByUDP(t) })
	t.Run("local endpoints", func(t *testing.T) { c.local(t) })
	t.Run("a Service is deleted while the agent is away", func(t *testing.T) {
		site.Must(t, c.acme.Expose(t.Context(), "late", nil))
		vip := site.Get[netip.Addr](t)(c.acme.VIP(site.Context(t), "late"))
		site.Eventually(t, site.Soon, func() error {
			hops, err := site.Hops(c.Node("r1"), vip.String())
			return errors.Join(err, site.ErrorIf(len(hops) != 3, "the route has the next hops %v", hops))
		})
		site.Kill(t, c.acme.Node("agent"))
		site.Must(t, c.acme.Remove(t.Context(), "late"))
		c.client.GoesOn(t, 400)
		if hops, err := site.Hops(c.Node("r1"), vip.String()); err != nil || len(hops) != 3 {
			t.Errorf("the route has the next hops %v: %v", hops, err)
		}
		site.Start(t, c.acme.Node("agent"))
		site.Must(t, watch.Gone(t.Context(), vip))
	})
	t.Run("the Tenant is deleted", func(t *testing.T) {
		c.client.End()
		site.Must(t, c.Balancing.API.Delete(t.Context(), site.HeraldPath("tenants")+"/acme"))
		site.Must(t, watch.Gone(t.Context(), c.vip))
		site.Eventually(t, site.Soon, func() error {
			return site.ErrorIf(c.Balancing.API.Get(t.Context(), services.Namespaces+"/tenant-acme", nil) == nil, "its namespace is there")
		})
	})
}

// bothFamilies gives a Service of acme's a VIP of each family, and connects to both.
func (c *clusters) bothFamilies(t *testing.T) {
	site.Must(t, c.acme.Expose(t.Context(), "both", func(s *corev1.Service) { s.Spec.IPFamilyPolicy = new(corev1.IPFamilyPolicyRequireDualStack) }))
	vips := site.Get[[]netip.Addr](t)(c.acme.VIPs(site.Context(t), "both"))
	if len(vips) != 2 || vips[0].Is4() == vips[1].Is4() {
		t.Fatalf("it has the VIPs %v, want one of each family", vips)
	}
	for _, vip := range vips {
		site.Eventually(t, site.Soon, func() error { return c.Node("c1").Reaches(t.Context(), net.JoinHostPort(vip.String(), "80")) })
	}
}

// answersByUDP has a Service of beta's with the same port for TCP and UDP, and tests it by UDP.
func (c *clusters) answersByUDP(t *testing.T) {
	site.Must(t, c.beta.Expose(t.Context(), "dns", func(s *corev1.Service) {
		s.Spec.Ports = []corev1.ServicePort{{Name: "tcp", Port: 53, Protocol: corev1.ProtocolTCP}, {Name: "udp", Port: 53, Protocol: corev1.ProtocolUDP}}
	}))
	vip := site.Get[netip.Addr](t)(c.beta.VIP(site.Context(t), "dns"))
	for _, name := range c.beta.Nodes() {
		var socket net.PacketConn
		site.Must(t, c.Node(name).Do(func() (err error) { socket, err = net.ListenPacket("udp4", ":8080"); return err }))
		site.Meanwhile(t, func(context.Context) {
			buf := make([]byte, 64)
			for {
				n, from, err := socket.ReadFrom(buf)
				if err != nil {
					return
				}
				_, _ = socket.WriteTo(buf[:n], from) // the client reports a missing answer
			}
		})
		t.Cleanup(func() { socket.Close() }) // before Meanwhile waits
	}
	site.Eventually(t, site.Soon, func() error {
		conn, err := c.Node("c1").DialContext(t.Context(), "udp", net.JoinHostPort(vip.String(), "53"))
		if err != nil {
			return err
		}
		defer conn.Close()
		if err := errors.Join(conn.SetDeadline(time.Now().Add(time.Second)), func() error { _, err := fmt.Fprint(conn, "hello"); return err }()); err != nil {
			return err
		}
		buf := make([]byte, 64)
		n, err := conn.Read(buf)
		return errors.Join(err, site.ErrorIf(string(buf[:n]) != "hello", "the answer is %q", buf[:n]))
	})
}

// local has a Service with externalTrafficPolicy: Local and endpoints that move from node to node.
func (c *clusters) local(t *testing.T) {
	site.Must(t, c.acme.Expose(t.Context(), "local", func(s *corev1.Service) {
		s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	}))
	vip := site.Get[netip.Addr](t)(c.acme.VIP(site.Context(t), "local"))
	client := site.Connect(t, &probe.Prober{
		Target: net.JoinHostPort(vip.String(), "80"), Identify: true, Dial: c.Node("c1").DialContext, Timeout: 500 * time.Millisecond,
	})
	defer client.End()
	for _, nodes := range [][]string{{"acme2"}, {"acme1", "acme3"}, {"acme1", "acme2"}} {
		site.Must(t, c.acme.SetEndpoints(site.Context(t), "local", nodes...))
		site.Eventually(t, site.Soon, func() error {
			got := c.nodesOf(t, "local")
			if !slices.Equal(got, nodes) {
				return fmt.Errorf("connections are sent to %v, want %v", got, nodes)
			}
			now := time.Now()
			client.GoesOn(t, 100)
			for _, a := range client.Since(now) {
				if a.Outcome.Failed() || !slices.Contains(nodes, a.Server) {
					return fmt.Errorf("%q answers: %v, want one of the nodes %v", a.Server, a.Outcome, nodes)
				}
			}
			return nil
		})
	}
}
