package announce_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/service"
	"github.com/herald-vip/herald/service/announce"
	"github.com/herald-vip/herald/service/pool"
)

const notice = 500 * time.Millisecond

func TestNothingBeforeSynced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, announce.Config{})
		n.set(svc("web", nil, "10.1.0.1"))
		n.set(svc("shop", nil, "10.1.0.2"))
		n.set(machine("n1", nil))
		n.set(addressPool("p", nil, "10.1.0.0/24"))
		n.did()
		n.reason("default/web", "the Kubernetes API has not sent all objects yet")
		n.Synced()
		n.did("announce 10.1.0.1/32", "announce 10.1.0.2/32")
		if n.router.calls != 1 {
			t.Errorf("the first announcement took %d calls, want one", n.router.calls)
		}
		n.Synced()
		n.did()
	})
}

// Events that end an announcement: at once if traffic would be lost, otherwise with notice.
func TestWithdrawal(t *testing.T) {
	planned := []string{"mark 10.1.0.1/32", "withdraw 10.1.0.1/32"}
	failed := []string{"withdraw 10.1.0.1/32"}
	for _, c := range []struct {
		name   string
		config announce.Config
		event  any // an object, or func(*node)
		want   []string
		reason string // empty if the address disappears from the status
	}{
		{"last endpoint unready", announce.Config{}, slice("web-1", "web", "IPv4", "n1 unready", "n2"), failed, "no ready IPv4 endpoint on this node"},
		{"slice deleted", announce.Config{}, func(n *node) { n.DeleteSlice("default/web-1") }, failed, "no ready IPv4 endpoint on this node"},
		{"slice is another's", announce.Config{}, slice("web-1", "shop", "IPv4", "n1"), failed, "no ready IPv4 endpoint on this node"},
		{"slice of names", announce.Config{}, slice("web-1", "web", "FQDN", "n1"), failed, "no ready IPv4 endpoint on this node"},
		{"node cut off", announce.Config{}, machine("n1", func(n *corev1.Node) {
			n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeNetworkUnavailable, Status: corev1.ConditionTrue}}
		}), failed, "node n1 has the condition NetworkUnavailable"},
		{"node excluded", announce.Config{}, machine("n1", func(n *corev1.Node) { n.Labels[corev1.LabelNodeExcludeBalancers] = "" }), planned, "node n1 has the label node.kubernetes.io/exclude-from-external-load-balancers"},
		{"node cordoned", announce.Config{Fitness: service.Fitness{ExcludeCordoned: true}}, machine("n1", func(n *corev1.Node) { n.Spec.Unschedulable = true }), planned, "node n1 is cordoned"},
		{"node cordoned, without excludeCordoned", announce.Config{}, machine("n1", func(n *corev1.Node) { n.Spec.Unschedulable = true }), nil, ""},
		{"node deleted", announce.Config{}, func(n *node) { n.DeleteNode("n1") }, planned, "the cluster has no node n1: set nodeName"},
		{"pool for other nodes", announce.Config{}, addressPool("p", func(s *v1alpha1.AddressPoolSpec) {
			s.BGP.NodeSelectors = []v1alpha1.LabelSelector{{MatchLabels: map[string]string{"name": "n2"}}}
		}, "10.1.0.0/24"), planned, "pool p does not select this node"},
		{"pool without BGP", announce.Config{}, addressPool("p", func(s *v1alpha1.AddressPoolSpec) { s.BGP = nil }, "10.1.0.0/24"), planned, "pool p is not announced by BGP"},
		{"pool without peers here", announce.Config{}, addressPool("p", func(s *v1alpha1.AddressPoolSpec) { s.BGP.Peers = []string{"rack-b"} }, "10.1.0.0/24"), planned, "this node has no peer of pool p"},
		{"pool elsewhere", announce.Config{}, addressPool("p", nil, "10.2.0.0/24"), planned, "it is in no address pool"},
		{"pool deleted", announce.Config{}, func(n *node) { n.DeletePool("p") }, planned, "it is in no address pool"},
		{"service deleted", announce.Config{}, func(n *node) { n.DeleteService("default/web") }, planned, ""},
		{"service about to go", announce.Config{}, svc("web", func(s *corev1.Service) { local(s); s.DeletionTimestamp = new(aged(9)) }, "10.1.0.1"), planned, ""},
		{"service of another type", announce.Config{}, svc("web", func(s *corev1.Service) { local(s); s.Spec.Type = corev1.ServiceTypeClusterIP }, "10.1.0.1"), planned, ""},
		{"service of another class", announce.Config{}, svc("web", func(s *corev1.Service) { local(s); s.Spec.LoadBalancerClass = new("example.com/other") }, "10.1.0.1"), planned, ""},
		{"service without its address", announce.Config{}, func(n *node) { n.set(svc("web", local)) }, planned, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			known := []any{
				machine("n1", nil), machine("n2", nil), addressPool("p", nil, "10.1.0.0/24"),
				svc("web", local, "10.1.0.1"), slice("web-1", "web", "IPv4", "n1", "n2"),
			}
			inVirtualTime(t, c.config, known, func(n *node) {
				n.did("announce 10.1.0.1/32")
				n.set(c.event)
				if len(c.want) > 0 {
					n.did(c.want[0])
				}
				pass(notice - 1)
				n.did()
				pass(1)
				if len(c.want) > 1 {
					n.did(c.want[1])
				}
				pass(time.Minute)
				n.did()
				if c.reason != "" {
					n.reason("default/web", c.reason)
				}
				for _, o := range known {
					n.set(o) // undo the event
				}
				want := slices.Repeat([]string{"announce 10.1.0.1/32"}, min(len(c.want), 1))
				n.did(want...)
			})
		})
	}
}

func TestEndpoints(t *testing.T) {
	known := []any{
		machine("n1", nil), addressPool("p", nil, "10.1.0.0/24", "fd00::/120"),
		svc("web", local, "10.1.0.1", "fd00::1"),
	}
	inVirtualTime(t, announce.Config{}, known, func(n *node) {
		n.did()
		n.set(slice("web-4", "web", "IPv4", "n1", "n2"))
		n.did("announce 10.1.0.1/32") // the address of the other family has no endpoint
		n.set(slice("web-6", "web", "IPv6", "n2"))
		n.did()
		n.set(slice("web-6", "web", "IPv6", "n1", "n2"))
		n.did("announce fd00::1/128")
		n.set(slice("web-4b", "web", "IPv4", "n1"))
		n.set(slice("web-4", "web", "IPv4", "n2"))
		n.did() // the second slice has another
		n.set(slice("web-4b", "web", "IPv4", "n1 terminating"))
		pass(notice)
		n.did("mark 10.1.0.1/32", "withdraw 10.1.0.1/32") // it still serves; n2 has a ready one
		n.set(slice("web-4", "web", "IPv4", "n2 terminating"))
		n.did("announce 10.1.0.1/32") // no endpoint is ready: proxies fall back
		n.set(slice("web-4b", "web", "IPv4", "n1 terminated"))
		n.did("withdraw 10.1.0.1/32")
	})
}

func TestRequireEndpoints(t *testing.T) {
	known := []any{machine("n1", nil), addressPool("p", nil, "10.1.0.0/24"), svc("web", nil, "10.1.0.1")}
	inVirtualTime(t, announce.Config{RequireEndpoints: service.Any}, known, func(n *node) {
		n.did()
		n.reason("default/web", "no ready IPv4 endpoint on any node")
		n.set(slice("web-1", "web", "IPv4", "n2"))
		n.did("announce 10.1.0.1/32")
		n.set(slice("web-1", "web", "IPv4", "n2 unready"))
		n.did("withdraw 10.1.0.1/32")
		n.set(slice("web-1", "web", "IPv4", "")) // without a node
		n.did("announce 10.1.0.1/32")
	})
}

func TestTwoServicesWithOneAddress(t *testing.T) {
	known := []any{machine("n1", nil), addressPool("p", nil, "10.1.0.0/24"), slice("b-1", "b", "IPv4", "n1")}
	share := func(s *corev1.Service) { s.Annotations = map[string]string{"herald.dev/share": "key"} }
	inVirtualTime(t, announce.Config{}, known, func(n *node) {
		older := svc("b", func(s *corev1.Service) { local(s); share(s) }, "10.1.0.1")
		n.set(svc("a", func(s *corev1.Service) { s.CreationTimestamp = aged(1) }, "10.1.0.1"))
		n.did("announce 10.1.0.1/32")
		n.set(older)
		n.did()
		n.reason("default/a", "the older Service default/b has it and does not share it")
		n.DeleteSlice("default/b-1")
		n.did("withdraw 10.1.0.1/32") // only b counts
		n.set(svc("a", func(s *corev1.Service) { s.CreationTimestamp = aged(1); share(s) }, "10.1.0.1"))
		n.did() // the policies differ
		n.set(svc("b", share, "10.1.0.1"))
		n.did("announce 10.1.0.1/32")
		n.reason("default/a", "")
		n.DeleteService("default/b")
		n.did()
	})
}

func TestAggregates(t *testing.T) {
	aggregate := func(length int32) func(*v1alpha1.AddressPoolSpec) {
		return func(s *v1alpha1.AddressPoolSpec) { s.BGP.AggregationLength = length }
	}
	known := []any{
		machine("n1", nil), addressPool("p", aggregate(28), "10.1.0.0/24"),
		svc("a", local, "10.1.0.1"), slice("a-1", "a", "IPv4", "n1"),
		svc("b", nil, "10.1.0.2"), svc("c", nil, "10.1.0.20"),
	}
	inVirtualTime(t, announce.Config{}, known, func(n *node) {
		n.did("announce 10.1.0.0/28", "announce 10.1.0.16/28")
		n.DeleteService("default/b")
		pass(notice)
		n.did() // the other address still uses the route
		n.DeleteSlice("default/a-1")
		n.did("withdraw 10.1.0.0/28")
		n.set(svc("b", nil, "10.1.0.2"))
		n.did("announce 10.1.0.0/28")
		n.set(addressPool("p", aggregate(32), "10.1.0.0/24"))
		n.did("announce 10.1.0.2/32", "mark 10.1.0.0/28", "announce 10.1.0.20/32", "mark 10.1.0.16/28")
		pass(notice)
		n.did("withdraw 10.1.0.0/28", "withdraw 10.1.0.16/28")
	})
}

// A route never contains addresses outside the pool, or VIPs of the node's file.
func TestAggregatesKeepToTheirPool(t *testing.T) {
	long := func(s *v1alpha1.AddressPoolSpec) { s.BGP.AggregationLength = 28 }
	known := []any{
		machine("n1", nil), svc("a", nil, "10.1.0.1"), svc("b", nil, "10.1.0.17"), svc("c", nil, "10.1.0.33"), svc("d", nil, "10.1.0.40"),
		addressPool("p", long, "10.1.0.0-10.1.0.30", "10.1.0.32/29", "10.1.0.40/29"),
	}
	inVirtualTime(t, announce.Config{Reserved: []netip.Addr{netip.MustParseAddr("10.1.0.5")}}, known, func(n *node) {
		n.did("announce 10.1.0.1/32", "announce 10.1.0.17/32", "announce 10.1.0.32/28")
		n.Apply(announce.Config{Peers: onePeer()})
		n.did("announce 10.1.0.0/28", "mark 10.1.0.1/32")
		older := addressPool("older", nil, "10.1.0.46/31")
		older.CreationTimestamp = aged(-1)
		n.set(older)
		pass(notice)
		n.did("announce 10.1.0.33/32", "mark 10.1.0.32/28", "announce 10.1.0.40/32", "withdraw 10.1.0.1/32", "withdraw 10.1.0.32/28")
	})
}

// A node without peers announces no routes.
func TestNoPeers(t *testing.T) {
	known := []any{machine("n1", nil), addressPool("p", nil, "10.1.0.0/24"), svc("a", nil, "10.1.0.1")}
	inVirtualTime(t, announce.Config{Peers: map[string][]string{}}, known, func(n *node) {
		n.did()
		n.reason("default/a", "this node has no BGP peer")
		n.Apply(announce.Config{Peers: onePeer()})
		n.did("announce 10.1.0.1/32")
	})
}

// A session for IPv4 only takes no IPv6 route, and the status must say so.
func TestFamilies(t *testing.T) {
	known := []any{machine("n1", nil), addressPool("p", nil, "10.1.0.0/24", "fd00::/64"), svc("a", nil, "10.1.0.1", "fd00::1")}
	config := announce.Config{
		Peers: map[string][]string{"a": {"10.0.0.1"}, "b": {"10.0.0.2"}},
		Only:  map[string]pool.Family{"10.0.0.1": pool.IPv4, "10.0.0.2": pool.IPv4},
	}
	inVirtualTime(t, config, known, func(n *node) {
		n.did("announce 10.1.0.1/32")
		for _, s := range n.Services()[0].Addresses {
			want := ""
			if s.Address.Is6() {
				want = "no peer of this node in pool p carries IPv6: add it to the families of a peer"
			}
			if s.Reason != want {
				t.Errorf("%v: reason %q, want %q", s.Address, s.Reason, want)
			}
		}
		delete(config.Only, "10.0.0.2")
		n.Apply(config)
		n.did("announce fd00::1/128")
		n.set(addressPool("p", func(s *v1alpha1.AddressPoolSpec) { s.BGP.Peers = []string{"a"} }, "10.1.0.0/24", "fd00::/64"))
		pass(notice)
		n.did("announce 10.1.0.1/32 to [10.0.0.1] draining [10.0.0.2]", "mark fd00::1/128",
			"withdraw fd00::1/128", "announce 10.1.0.1/32 to [10.0.0.1]")
	})
}

func TestReserved(t *testing.T) {
	known := []any{machine("n1", nil), addressPool("p", nil, "10.1.0.0/24"), svc("a", nil, "10.1.0.1")}
	inVirtualTime(t, announce.Config{}, known, func(n *node) {
		n.did("announce 10.1.0.1/32")
		n.Apply(announce.Config{Peers: onePeer(), Reserved: []netip.Addr{netip.MustParseAddr("10.1.0.1")}})
		n.did() // the route belongs to the speaker now
		n.reason("default/a", "it is a VIP of this node's own file")
		pass(time.Minute)
		n.did()
		n.router.lose(netip.MustParseAddr("10.1.0.1"))
		n.Apply(announce.Config{Peers: onePeer()})
		n.did("announce 10.1.0.1/32")
	})
}

func TestAttributesAndPeers(t *testing.T) {
	pool := func(peers ...string) *v1alpha1.AddressPool {
		return addressPool("p", func(s *v1alpha1.AddressPoolSpec) {
			s.BGP.Peers = peers
			s.BGP.Communities = []v1alpha1.Community{64512<<16 + 1}
		}, "10.1.0.0/24")
	}
	config := announce.Config{
		Attributes: v1alpha1.Attributes{Communities: []v1alpha1.Community{64512<<16 + 9}},
		Peers:      map[string][]string{"rack-a": {"10.0.0.1"}, "10.0.0.1": {"10.0.0.1"}, "rack-b": {"10.0.0.2"}},
	}
	inVirtualTime(t, config, []any{machine("n1", nil), svc("a", nil, "10.1.0.1"), pool()}, func(n *node) {
		n.did("announce 10.1.0.1/32")
		want := []v1alpha1.Community{64512<<16 + 1, 64512<<16 + 9}
		if got := n.router.has()[netip.MustParsePrefix("10.1.0.1/32")].Attributes.Communities; !slices.Equal(got, want) {
			t.Errorf("communities %v, want %v", got, want)
		}
		n.set(pool("rack-a", "10.0.0.1", "rack-c"))
		n.did("announce 10.1.0.1/32 to [10.0.0.1] draining [10.0.0.2]")
		pass(notice)
		n.did("announce 10.1.0.1/32 to [10.0.0.1]")
		n.set(pool("rack-a", "rack-b"))
		n.did("announce 10.1.0.1/32 to [10.0.0.1 10.0.0.2]")
		config.Peers = map[string][]string{"rack-a": {"10.0.0.1"}}
		n.Apply(config)
		n.did("announce 10.1.0.1/32 to [10.0.0.1]") // a removed peer gets no notice
		n.Apply(config)
		n.did()
		n.set(pool("rack-b"))
		pass(notice)
		n.did("mark 10.1.0.1/32 to [10.0.0.1]", "withdraw 10.1.0.1/32")
	})
}

// TestExceptions moves a Service between exceptions of its pool, then removes one. Peers that lose its route keep it for the
// notice, and get no other route.
func TestExceptions(t *testing.T) {
	exception := func(tier, peer string) v1alpha1.PoolBGPException {
		return v1alpha1.PoolBGPException{
			ServiceSelectors: []v1alpha1.LabelSelector{{MatchLabels: map[string]string{"tier": tier}}}, Peers: []string{peer},
		}
	}
	pool := func(exceptions ...v1alpha1.PoolBGPException) *v1alpha1.AddressPool {
		return addressPool("p", func(s *v1alpha1.AddressPoolSpec) {
			s.BGP.Peers, s.BGP.Exceptions = []string{"rack-a"}, exceptions
		}, "10.1.0.0/24")
	}
	makeService := func(name, tier, addr string) *corev1.Service {
		return svc(name, func(s *corev1.Service) { s.Labels = map[string]string{"tier": tier} }, addr)
	}
	gold, iron := exception("gold", "rack-b"), exception("iron", "rack-c")
	config := announce.Config{Peers: map[string][]string{"rack-a": {"10.0.0.1"}, "rack-b": {"10.0.0.2"}, "rack-c": {"10.0.0.3"}}}
	known := []any{machine("n1", nil), pool(gold, iron), makeService("a", "gold", "10.1.0.1"), makeService("b", "iron", "10.1.0.2")}
	inVirtualTime(t, config, known, func(n *node) {
		n.did("announce 10.1.0.1/32 to [10.0.0.2]", "announce 10.1.0.2/32 to [10.0.0.3]")
		for _, step := range []struct {
			event     any
			dst, from string
		}{
			{makeService("a", "iron", "10.1.0.1"), "10.0.0.3", "10.0.0.2"},
			{makeService("a", "none", "10.1.0.1"), "10.0.0.1", "10.0.0.3"},
			{makeService("a", "gold", "10.1.0.1"), "10.0.0.2", "10.0.0.1"},
			{pool(iron), "10.0.0.1", "10.0.0.2"},
			{pool(iron, gold), "10.0.0.2", "10.0.0.1"},
		} {
			n.set(step.event)
			n.did("announce 10.1.0.1/32 to [" + step.dst + "] draining [" + step.from + "]")
			pass(notice - 1)
			n.did()
			pass(1)
			n.did("announce 10.1.0.1/32 to [" + step.dst + "]")
		}
	})
}

func TestPoolThatMakesNoSense(t *testing.T) {
	known := []any{machine("n1", nil), svc("a", nil, "10.1.0.1"), addressPool("p", nil, "10.1.0.0/24")}
	inVirtualTime(t, announce.Config{}, known, func(n *node) {
		n.did("announce 10.1.0.1/32")
		n.set(addressPool("p", nil, "10.1.0.0/33"))
		n.set(addressPool("q", nil, "nonsense"))
		n.set(addressPool("q", nil, "nonsense"))
		pass(time.Minute)
		n.did()
		pools := n.Counts().Pools
		if len(pools) != 2 || pools[0].Error == "" || pools[1].Error == "" {
			t.Errorf("the status of the pools is %v, want two errors", pools)
		}
		if got := strings.Count(n.log.String(), "pool is invalid"); got != 2 {
			t.Errorf("logged %d times that a pool is invalid, want once for each:\n%s", got, n.log)
		}
		n.set(addressPool("p", nil, "10.1.0.0/24"))
		n.did()
		if err := n.Counts().Pools[0].Error; err != "" {
			t.Errorf("the pool is valid again, but has the error %v", err)
		}
	})
}

func TestRefusedRoutesAreTriedAgain(t *testing.T) {
	known := []any{machine("n1", nil), addressPool("p", nil, "10.1.0.0/24")}
	inVirtualTime(t, announce.Config{}, known, func(n *node) {
		n.router.deafen(errRefused)
		n.set(svc("a", nil, "10.1.0.1"))
		n.set(svc("b", nil, "10.1.0.2"))
		n.set(svc("c", nil, "10.1.0.3"))
		n.DeleteService("default/c")
		pass(10 * time.Second)
		n.did()
		status := n.Services()[0].Addresses[0]
		if status.Error == "" || n.Counts().Failing != 2 {
			t.Errorf("status %+v and %d failing, want the error, and two", status, n.Counts().Failing)
		}
		n.router.deafen(nil)
		pass(time.Second)
		n.did("announce 10.1.0.1/32", "announce 10.1.0.2/32")
		n.router.deafen(errRefused)
		n.DeleteService("default/a")
		pass(time.Minute)
		n.router.deafen(nil)
		pass(time.Second)
		n.did("withdraw 10.1.0.1/32")
		if got := strings.Count(n.log.String(), errRefused.Error()); got != 2 {
			t.Errorf("logged %d times that routes are refused, want twice:\n%s", got, n.log)
		}
	})
}

// The status and the log of a tenant's Service name the tenant and the original Service.
func TestOriginIsTold(t *testing.T) {
	derived := svc("web-default-4f2a", func(s *corev1.Service) {
		s.Namespace, s.Labels = "tenant-acme", map[string]string{v1alpha1.LabelTenant: "acme"}
		s.OwnerReferences = []metav1.OwnerReference{{Kind: "TCPLoadBalancer", Name: "default.web", Controller: new(true)}}
	}, "10.1.0.1")
	known := []any{machine("n1", nil), addressPool("p", nil, "10.1.0.0/24"), derived, svc("own", nil, "10.1.0.2")}
	inVirtualTime(t, announce.Config{}, known, func(n *node) {
		n.did("announce 10.1.0.1/32", "announce 10.1.0.2/32")
		var got []service.Origin
		for _, s := range n.Services() {
			got = append(got, s.Origin)
		}
		if want := []service.Origin{{}, {Tenant: "acme", Service: "default/web"}}; !slices.Equal(got, want) {
			t.Errorf("status %+v, want %+v", got, want)
		}
		n.DeleteService("tenant-acme/web-default-4f2a")
		pass(notice)
		n.did("mark 10.1.0.1/32", "withdraw 10.1.0.1/32")
		lines := 0
		for line := range strings.Lines(n.log.String()) {
			if ours := strings.Contains(line, "service=tenant-acme/"); ours != strings.Contains(line, " tenant=acme origin=default/web") {
				t.Errorf("unexpected log line %s", line)
			} else if ours {
				lines++
			}
		}
		if lines < 2 {
			t.Errorf("the log has %d lines about it, want two or more:\n%s", lines, n.log)
		}
	})
}
