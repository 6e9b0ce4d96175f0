//go:build e2e

package services

import (
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/herald-vip/herald/testenv/e2e/site"
	"github.com/herald-vip/herald/testenv/services"
)

// testLocal: with externalTrafficPolicy Local the route leads only to the nodes with endpoints.
func (b *balancers) testLocal(t *testing.T) {
	b.create(t, balancer("local", local))
	vip := b.address(t, "local")
	if port := b.get(t, "local").Spec.HealthCheckNodePort; port == 0 {
		t.Error("it has no port for health checks")
	}
	b.leads(t, vip)
	ctx := t.Context()
	before := ""
	for _, node := range b.Members() { // one node at a time
		site.Must(t, b.SetEndpoint(ctx, "local", node, services.Ready()))
		if before != "" {
			site.Must(t, b.RemoveEndpoint(ctx, "local", before))
		}
		b.leads(t, vip, node)
		b.connects(t, vip, services.Port)
		before = node
	}
	for _, node := range b.Members() { // all of them
		site.Must(t, b.SetEndpoint(ctx, "local", node, services.Ready()))
	}
	b.leads(t, vip, b.Members()...)
	site.Must(t, b.SetEndpoint(ctx, "local", "n2", services.NotReady()))
	b.leads(t, vip, "n1", "n3")
	b.connects(t, vip, services.Port)
}

// testPolicyChanges: the address stays when externalTrafficPolicy changes.
func (b *balancers) testPolicyChanges(t *testing.T) {
	vip := b.led(t, balancer("policy"), "n1")
	b.routes.Mark()
	for range 2 {
		b.update(t, "policy", local)
		b.leads(t, vip, "n1")
		b.update(t, "policy", func(s *corev1.Service) {
			s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyCluster
			s.Spec.HealthCheckNodePort = 0
		})
		b.leads(t, vip, b.Members()...)
	}
	b.keeps(t, "policy", vip)
	n1 := b.Address("n1")
	for _, s := range b.routes.Steps(vip.String()) {
		if !strings.Contains(fmt.Sprint(s.NextHops), n1.String()) {
			t.Errorf("the route did not lead to n1 all the time: %v", s)
		}
	}
}

// testTerminating: a node with only a terminating endpoint leaves while other
// endpoints serve. Nodes with such endpoints are the fallback while no endpoint is
// ready (KEP-1669).
func (b *balancers) testTerminating(t *testing.T) {
	ctx := t.Context()
	vip := b.led(t, balancer("ends", local), "n1", "n2")
	site.Must(t, b.SetEndpoint(ctx, "ends", "n1", services.Draining()))
	b.leads(t, vip, "n2")
	b.connects(t, vip, services.Port)
	site.Must(t, b.SetEndpoint(ctx, "ends", "n2", services.Draining()))
	b.leads(t, vip, "n1", "n2")
	b.connects(t, vip, services.Port)
	site.Must(t, b.SetEndpoint(ctx, "ends", "n1", services.Conditions{Terminating: true}))
	b.leads(t, vip, "n2")
	site.Must(t, b.RemoveEndpoint(ctx, "ends", "n2"))
	b.leads(t, vip)

	// Under the policy Cluster kube-proxy does that on every node, as long as an endpoint serves.
	anywhere := b.led(t, balancer("ends-cluster"), "n1")
	b.routes.Mark()
	site.Must(t, b.SetEndpoint(ctx, "ends-cluster", "n1", services.Draining()))
	b.settled(t)
	b.unmoved(t, anywhere)
	for _, c := range []services.Conditions{{Terminating: true}, services.NotReady()} {
		site.Must(t, b.SetEndpoint(ctx, "ends-cluster", "n1", c))
		b.leads(t, anywhere)
	}
	site.Must(t, b.SetEndpoint(ctx, "ends-cluster", "n1", services.Ready()))
	b.leads(t, anywhere, b.Members()...)
}

// testSource: a node sees the client's own address, since no hop between them translates it.
func (b *balancers) testSource(t *testing.T) {
	vip := b.led(t, balancer("source", local), "n1")
	c := site.Get[net.Conn](t)(b.Node("c1").DialContext(t.Context(), "tcp", fmt.Sprintf("%s:%d", vip, services.Port)))
	defer c.Close()
	out := site.MustRun(t, b.Node("n1"), "ss", "-tnH", "state", "established", "sport", "=", ":8080")
	if !strings.Contains(out, "10.5.9.1]:") {
		t.Errorf("the node sees %q, want the client 10.5.9.1", out)
	}
}

// testNodes: a node that is excluded from traffic announces no address, and others continue.
func (b *balancers) testNodes(t *testing.T) {
	ctx := t.Context()
	vip := b.led(t, balancer("elsewhere"), "n1")
	site.Must(t, b.Exclude(ctx, "n2", true))
	b.leads(t, vip, "n1", "n3")
	site.Must(t, b.Exclude(ctx, "n2", false))
	b.leads(t, vip, b.Members()...)

	unavailable := func(status corev1.ConditionStatus) {
		t.Helper()
		b.patch(t, services.Nodes+"/n3/status", `{"status": {"conditions": [
			{"type": "Ready", "status": "True"}, {"type": "NetworkUnavailable", "status": "`+string(status)+`"}]}}`)
	}
	unavailable(corev1.ConditionTrue)
	b.leads(t, vip, "n1", "n2")
	unavailable(corev1.ConditionFalse)
	b.leads(t, vip, b.Members()...)

	// A cordoned node continues, unless excludeCordoned is set.
	b.routes.Mark()
	for _, cordoned := range []string{"true", "null"} {
		b.patch(t, services.Nodes+"/n1", `{"spec": {"unschedulable": `+cordoned+`}}`)
	}
	b.settled(t)
	b.unmoved(t, vip)
}

// families returns an edit that sets these families and this policy.
func families(policy corev1.IPFamilyPolicy, list ...corev1.IPFamily) func(*corev1.Service) {
	return func(s *corev1.Service) { s.Spec.IPFamilyPolicy, s.Spec.IPFamilies = &policy, list }
}

// familiesOf returns the families of addresses, in order.
func familiesOf(list []netip.Addr) (out []corev1.IPFamily) {
	for _, a := range list {
		if a.Is4() {
			out = append(out, corev1.IPv4Protocol)
		} else {
			out = append(out, corev1.IPv6Protocol)
		}
	}
	return out
}

// testFamilies: a Service has an address of each of its families, in their order.
func (b *balancers) testFamilies(t *testing.T) {
	const v4, v6 = corev1.IPv4Protocol, corev1.IPv6Protocol
	slice(t, b.Lab, "stack-ipv6", "stack", discoveryv1.AddressTypeIPv6, discoveryv1.Endpoint{Addresses: []string{"fd00:5::1"}})
	for _, c := range []struct {
		name string
		edit func(*corev1.Service)
		want []corev1.IPFamily
	}{
		{"none given", func(*corev1.Service) {}, []corev1.IPFamily{v4}},
		{"ipv4", families(corev1.IPFamilyPolicySingleStack, v4), []corev1.IPFamily{v4}},
		{"ipv6", families(corev1.IPFamilyPolicySingleStack, v6), []corev1.IPFamily{v6}},
		{"both preferred", families(corev1.IPFamilyPolicyPreferDualStack), []corev1.IPFamily{v4, v6}},
		{"ipv4, then ipv6", families(corev1.IPFamilyPolicyRequireDualStack, v4, v6), []corev1.IPFamily{v4, v6}},
		{"ipv6, then ipv4", families(corev1.IPFamilyPolicyRequireDualStack, v6, v4), []corev1.IPFamily{v6, v4}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b.create(t, balancer("stack", c.edit), "n1")
			got := b.assigned(t, "stack", len(c.want))
			if !slices.Equal(familiesOf(got), c.want) {
				t.Errorf("it has %v, want %v", got, c.want)
			}
			for _, vip := range got {
				b.announced(t, vip, b.Members()...)
			}
			site.Must(t, b.Remove(t.Context(), "stack"))
			for _, vip := range got {
				b.announced(t, vip)
			}
		})
	}
	// With a pool of one family only, one address is enough for a Service that prefers
	// both families, but not for one requiring them.
	b.create(t, balancer("preferring", families(corev1.IPFamilyPolicyPreferDualStack), annotated("pool", services.PoolARP)), "n1")
	b.assigned(t, "preferring", 1)
	b.create(t, balancer("requiring", families(corev1.IPFamilyPolicyRequireDualStack), annotated("pool", services.PoolARP)), "n1")
	if got := addressesOf(b.awaits(t, "requiring", "NoPool")); len(got) > 0 {
		t.Errorf("it has the addresses %v, want both families", got)
	}
}

// testFamiliesChange: the first address of a Service stays when a second one comes and goes.
func (b *balancers) testFamiliesChange(t *testing.T) {
	const v4, v6 = corev1.IPv4Protocol, corev1.IPv6Protocol
	slice(t, b.Lab, "grows-ipv6", "grows", discoveryv1.AddressTypeIPv6, discoveryv1.Endpoint{Addresses: []string{"fd00:5::1"}})
	b.create(t, balancer("grows", families(corev1.IPFamilyPolicySingleStack, v4)), "n1")
	first := b.address(t, "grows")
	b.settled(t) // the earlier Service with this address is withdrawn
	b.leads(t, first, b.Members()...)
	b.routes.Mark()
	for range 2 {
		b.update(t, "grows", families(corev1.IPFamilyPolicyRequireDualStack, v4, v6))
		var second netip.Addr
		site.Eventually(t, site.Soon, func() error {
			got := addressesOf(b.get(t, "grows"))
			if len(got) != 2 || got[0] != first {
				return fmt.Errorf("it has %v, want %s and another", got, first)
			}
			second = got[1]
			return nil
		})
		b.announced(t, second, b.Members()...)
		b.update(t, "grows", func(s *corev1.Service) {
			single := corev1.IPFamilyPolicySingleStack
			s.Spec.IPFamilyPolicy, s.Spec.IPFamilies = &single, []corev1.IPFamily{v4}
			s.Spec.ClusterIPs = s.Spec.ClusterIPs[:1]
		})
		b.hasAddresses(t, "grows", first)
		b.announced(t, second)
	}
	b.unmoved(t, first)
}

// announced waits until exactly these nodes announce an address, by their speakers'
// status: the router of this cluster has no IPv6.
func (b *balancers) announced(t *testing.T, address netip.Addr, nodes ...string) {
	t.Helper()
	site.Eventually(t, site.Soon, func() error {
		for _, node := range b.Members() {
			got, err := b.announcedBy(t, node)
			if err != nil {
				return err
			}
			if announces := slices.Contains(got, address); announces != slices.Contains(nodes, node) {
				return fmt.Errorf("%s announces %s: %t", node, address, announces)
			}
		}
		return nil
	})
}

// announcedBy returns the Services' addresses that a node announces by BGP, from its status.
func (b *balancers) announcedBy(t *testing.T, node string) (list []netip.Addr, err error) {
	t.Helper()
	all, err := b.admin(node).Services(t.Context())
	if err != nil {
		return nil, err
	}
	for _, s := range all {
		for _, a := range s.Addresses {
			if a.Stage != "withdrawn" {
				list = append(list, a.Address)
			}
		}
	}
	return list, nil
}

// crossings counts how often the router forwards one packet from the client behind it
// to a port of the address.
func (b *balancers) crossings(t *testing.T, vip netip.Addr, port uint16) (count int) {
	t.Helper()
	ip := "ip"
	if vip.Is6() {
		ip = "ip6"
	}
	site.MustRun(t, b.Node("r1"), "nft", fmt.Sprintf(`table inet crossings { }; delete table inet crossings;
		table inet crossings { chain forward { type filter hook forward priority 0; %s daddr %s udp dport %d counter; }; }`, ip, vip, port))
	site.Eventually(t, site.Soon, func() error { // the kernel gets a route after bgpd
		out, err := site.Run(t, b.Node("r1"), "ip", "route", "get", vip.String())
		return site.Check(err, !strings.Contains(out, " via "), "the router reaches %v by %s", vip, out)
	})
	c, err := b.Node("c1").DialContext(t.Context(), "udp", netip.AddrPortFrom(vip, port).String())
	site.Must(t, err)
	defer c.Close()
	_, err = c.Write([]byte("one"))
	site.Must(t, err)
	site.Eventually(t, site.Soon, func() error { // until the count is stable
		before := count
		out := site.MustRun(t, b.Node("r1"), "nft", "list", "table", "inet", "crossings")
		count = site.Get[int](t)(strconv.Atoi(regexp.MustCompile(`packets (\d+)`).FindStringSubmatch(out)[1]))
		return site.ErrorIf(count == 0 || count != before, "the router has forwarded the packet %d times", count)
	})
	return count
}

// TestLoop: a packet that no program on a node accepts loops between node and router,
// unless one of them has the rules of docs/services.md. These rules harm no clients
// elsewhere, behind the node, or on it.
func TestLoop(t *testing.T) {
	b := startBalancers(t, nil)
	nodes := func(argv ...string) {
		t.Helper()
		for _, n := range b.Members() {
			site.MustRun(t, b.Node(n), argv...)
		}
	}
	nodes("sysctl", "-w", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1") // as on nodes of Kubernetes
	nodes("ip", "-6", "route", "add", "default", "via", "fd00:5::fe")
	nodes("nft", "add chain ip services out { type nat hook output priority -100; }; add rule ip services out ip daddr "+
		services.ByBGP+" tcp dport 80 redirect to :8080") // as kube-proxy does
	site.MustRun(t, b.Node("r1"), "sysctl", "-w", "net.ipv6.conf.all.forwarding=1")
	site.MustRun(t, b.Node("r1"), "ip", "addr", "add", "fd00:9::fe/64", "dev", "eth2", "nodad")
	site.MustRun(t, b.Node("c1"), "ip", "addr", "add", "fd00:9::1/64", "dev", "eth1", "nodad")
	site.MustRun(t, b.Node("c1"), "ip", "-6", "route", "add", "default", "via", "fd00:9::fe")

	slice(t, b.Lab, "loops-ipv6", "loops", discoveryv1.AddressTypeIPv6, discoveryv1.Endpoint{Addresses: []string{"fd00:5::1"}})
	b.create(t, balancer("loops", families(corev1.IPFamilyPolicyRequireDualStack)), "n1")
	vips := b.assigned(t, "loops", 2)
	for _, vip := range vips {
		b.announced(t, vip, b.Members()...)
	}
	site.MustRun(t, b.Node("c2"), "ip", "route", "add", vips[0].String(), "via", "10.5.0.1")  // as if it were a pod of n1
	site.MustRun(t, b.Node("r1"), "ip", "route", "add", vips[1].String(), "via", "fd00:5::1") // it accepts no IPv6 routes
	defer site.MustRun(t, b.Node("r1"), "ip", "route", "del", vips[1].String())

	cross := func(want func(times int) bool) {
		t.Helper()
		for _, vip := range vips {
			n := b.crossings(t, vip, 9)
			t.Logf("the router has forwarded one packet to %s %d times", vip, n)
			if !want(n) {
				t.Error("which is wrong")
			}
		}
		for _, client := range []string{"c1", "c2", "n1"} {
			if err := b.Node(client).Reaches(t.Context(), netip.AddrPortFrom(vips[0], services.Port).String()); err != nil {
				t.Errorf("from %s: %v", client, err)
			}
		}
	}
	once := func(times int) bool { return times == 1 }
	cross(func(times int) bool { return times == 32 }) // of a TTL of 64 two are spent on each

	rules := site.Blocks(t, "../../../docs/services.md", "Packets that nothing takes", "nft")
	for _, rule := range rules {
		rule = strings.NewReplacer("198.51.100.0/24", services.ByBGP, "2001:db8:1::/112", byBGP6).Replace(rule)
		where := nodes
		if strings.Contains(rule, "eth1") {
			where = func(argv ...string) { site.MustRun(t, b.Node("r1"), argv...) }
		}
		where("nft", rule)
		cross(once)
		where("nft", "delete table inet loops")
	}
	if len(rules) != 2 {
		t.Errorf("%d sets of rules, want two, for nodes and for routers", len(rules))
	}
}
