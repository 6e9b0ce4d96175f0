//go:build e2e

package services

import (
	"fmt"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/herald-vip/herald/testenv/e2e/site"
	"github.com/herald-vip/herald/testenv/services"
)

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
	c, err := b.Node("c1").DialContext(t.Context(), "udp", netip.AddrPortFrom(vip, port).String())
	site.Must(t, err)
	defer c.Close()
	_, err = c.Write([]byte("one"))
	site.Must(t, err)
	site.Eventually(t, site.Soon, func() error { // until the count is stable
		before := count
		out := site.MustRun(t, b.Node("r1"), "nft", "list", "table", "inet", "crossings")
		count, err = strconv.Atoi(regexp.MustCompile(`packets (\d+)`).FindStringSubmatch(out)[1])
		site.Must(t, err)
		return site.ErrorIf(count == 0 || count != before, "the router has forwarded the packet %d times", count)
	})
	return count
}

// TestLoop: a packet that no program on a node accepts loops between node and router,
// unless one of them has the rules of docs/services.md. These rules harm no clients
// elsewhere, behind the node, or on it.
func TestLoop(t *testing.T) {
	b := startBalancers(t)
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

	b.slice(t, "loops-ipv6", "loops", discoveryv1.AddressTypeIPv6, discoveryv1.Endpoint{Addresses: []string{"fd00:5::1"}})
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
			c, err := b.Node(client).DialContext(t.Context(), "tcp", netip.AddrPortFrom(vips[0], services.Port).String())
			if err != nil {
				t.Errorf("from %s: %v", client, err)
				continue
			}
			c.Close()
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
