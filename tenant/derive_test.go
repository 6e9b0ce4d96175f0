package tenant

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/service"
)

func acme(change ...func(*v1alpha1.Tenant)) *v1alpha1.Tenant {
	t := &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "acme", CreationTimestamp: metav1.Time{Time: time.Unix(100, 0)}}}
	t.Spec.Nodes = v1alpha1.TenantNodesSpec{CIDRs: []v1alpha1.CIDR{"10.20.0.0/24", "fd00:20::/64"}, Ports: "30000-32767", MaxPerService: 32}
	t.Spec.Quota.Services, t.Spec.Quota.Nodes = 100, 3
	for _, c := range change {
		c(t)
	}
	return t
}

// asked returns a TCPLoadBalancer as an agent makes it.
func asked(change ...func(*v1alpha1.TCPLoadBalancer)) *v1alpha1.TCPLoadBalancer {
	lb := &v1alpha1.TCPLoadBalancer{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant-acme", Name: "default.web", UID: "lb", Generation: 1}}
	lb.Spec = v1alpha1.TCPLoadBalancerSpec{
		Origin:     v1alpha1.ObjectReference{Namespace: "default", Name: "web"},
		Ports:      []v1alpha1.LoadBalancerPort{{Name: "http", Protocol: "TCP", Port: 80, TargetPort: 30080}},
		IPFamilies: []string{"IPv4"},
	}
	for _, c := range change {
		c(lb)
	}
	return lb
}

func nodeAt(name, zone string, addrs ...string) Node {
	n := Node{Name: name, Zone: zone, Ready: true}
	for _, a := range addrs {
		n.Addrs = append(n.Addrs, netip.MustParseAddr(a))
	}
	return n
}

func TestLimits(t *testing.T) {
	here := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "lb1"}, Spec: corev1.NodeSpec{PodCIDRs: []string{"10.20.0.128/28"}}}
	here.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.20.0.1"}, {Type: corev1.NodeHostName, Address: "lb1"}}
	pools := &v1alpha1.AddressPool{ObjectMeta: metav1.ObjectMeta{Name: "public"}, Spec: v1alpha1.AddressPoolSpec{Addresses: []v1alpha1.AddressRange{"10.20.0.200-10.20.0.210"}}}
	l := LimitsOf(acme(func(t *v1alpha1.Tenant) {
		t.Spec.Endpoints = v1alpha1.TenantEndpoints{CIDRs: []v1alpha1.CIDR{"203.0.113.0/24", "169.254.0.0/16"}}
	}), ReservedBy(slices.Values([]*corev1.Node{here}), slices.Values([]*v1alpha1.AddressPool{pools})))

	for address, want := range map[string]string{
		"10.20.0.7":     "",
		"10.20.0.1":     "node n: 10.20.0.1 is an address of the node lb1",
		"10.20.0.130":   "node n: 10.20.0.130 is in the pod range of node lb1",
		"10.20.0.205":   "node n: 10.20.0.205 is in the pool public",
		"10.21.0.7":     "node n: 10.21.0.7 is not in the nodes.cidrs of the Tenant",
		"fd00:20::7":    "",
		"fd00:20::7%lo": `node n: "fd00:20::7%lo" is not an address`,
		"n1":            `node n: "n1" is not an address`,
	} {
		nodes, refused := l.Nodes([]v1alpha1.TenantNode{{Name: "n", Addresses: []string{address}}})
		if got := strings.Join(refused, "; "); got != want || (len(nodes) == 1) != (want == "") {
			t.Errorf("%s: %v, refused %q, want %q", address, nodes, got, want)
		}
	}

	told := func(addresses ...string) (nodes []v1alpha1.TenantNode) {
		for i, a := range addresses {
			nodes = append(nodes, v1alpha1.TenantNode{Name: fmt.Sprint("n", i+1), Addresses: []string{a}})
		}
		return nodes
	}
	for want, nodes := range map[string][]v1alpha1.TenantNode{
		"node n2: 10.20.0.7 also belongs to another node":        told("10.20.0.7", "10.20.0.7"),
		"it has 4 nodes, but quota.nodes of the Tenant allows 3": told("10.20.0.7", "10.20.0.8", "10.20.0.9", "10.20.0.10"),
	} {
		if _, refused := l.Nodes(nodes); strings.Join(refused, "; ") != want {
			t.Errorf("refused %q, want %q", refused, want)
		}
	}

	endpoint := func(address string) func(*v1alpha1.TCPLoadBalancer) {
		return func(lb *v1alpha1.TCPLoadBalancer) {
			lb.Spec.Endpoints, lb.Spec.Ports[0].TargetPort = []string{address}, 80
		}
	}
	for want, lb := range map[string]*v1alpha1.TCPLoadBalancer{
		"": asked(endpoint("203.0.113.9")),
		"node port 22 is not in the nodes.ports of the Tenant, 30000-32767":             asked(func(lb *v1alpha1.TCPLoadBalancer) { lb.Spec.Ports[0].TargetPort = 22 }),
		"an endpoint is refused: 10.20.0.7 is not in the endpoints.cidrs of the Tenant": asked(endpoint("10.20.0.7")),
		"an endpoint is refused: 169.254.169.254 is not a global unicast address":       asked(endpoint("169.254.169.254")),
		"its name does not match its origin default/web: want default.web":              asked(func(lb *v1alpha1.TCPLoadBalancer) { lb.Name = "default.db" }),
	} {
		got := ""
		if err := l.Check(lb); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// Of two overlapping tenants the earlier one is served; equally old ones are ordered by name.
func TestConflict(t *testing.T) {
	other := func(name string, age int64, cidr v1alpha1.CIDR) *v1alpha1.Tenant {
		return acme(func(t *v1alpha1.Tenant) {
			t.Name, t.CreationTimestamp.Time, t.Spec.Nodes.CIDRs = name, time.Unix(age, 0), []v1alpha1.CIDR{cidr}
		})
	}
	for name, tt := range map[string]struct {
		other *v1alpha1.Tenant
		want  string
	}{
		"itself":        {acme(), ""},
		"another place": {other("b", 1, "10.21.0.0/24"), ""},
		"an earlier":    {other("b", 1, "10.20.0.0/16"), "it has 10.20.0.0/24, which overlaps 10.20.0.0/16 of the tenant b: give the nodes of each tenant addresses of their own"},
		"a later":       {other("a", 200, "10.20.0.0/16"), ""},
		"as old, a":     {other("a", 100, "10.20.0.8/29"), "it has 10.20.0.0/24, which overlaps 10.20.0.8/29 of the tenant a: give the nodes of each tenant addresses of their own"},
		"as old, b":     {other("b", 100, "10.20.0.8/29"), ""},
		"endpoints over its nodes": {func() *v1alpha1.Tenant {
			b := other("b", 1, "10.21.0.0/24")
			b.Spec.Endpoints = v1alpha1.TenantEndpoints{CIDRs: []v1alpha1.CIDR{"10.20.0.0/16"}}
			return b
		}(), "it has 10.20.0.0/24, which overlaps 10.20.0.0/16 of the tenant b: give the nodes of each tenant addresses of their own"},
	} {
		if got := Conflict(acme(), slices.Values([]*v1alpha1.Tenant{tt.other})); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

func TestConflictOfDomains(t *testing.T) {
	other := acme(func(t *v1alpha1.Tenant) {
		t.Name, t.CreationTimestamp.Time, t.Spec.Nodes.CIDRs, t.Spec.Domains = "b", time.Unix(1, 0), []v1alpha1.CIDR{"10.21.0.0/24"}, []v1alpha1.Domain{"shop.example.com"}
	})
	for domain, want := range map[v1alpha1.Domain]string{
		"acme.example.com":   "",
		"ashop.example.com":  "",
		"shop.example.com":   "it has the domain shop.example.com, which overlaps shop.example.com of the tenant b: give each tenant domains of its own",
		"a.shop.example.com": "it has the domain a.shop.example.com, which overlaps shop.example.com of the tenant b: give each tenant domains of its own",
		"example.com":        "it has the domain example.com, which overlaps shop.example.com of the tenant b: give each tenant domains of its own",
		"b.lb.example.net":   "it has the domain b.lb.example.net, which overlaps lb.example.net, the domain of the load-balancing cluster: remove it",
		"example.net":        "it has the domain example.net, which overlaps lb.example.net, the domain of the load-balancing cluster: remove it",
	} {
		t.Run(string(domain), func(t *testing.T) {
			tenant := acme(func(t *v1alpha1.Tenant) { t.Spec.Domains = []v1alpha1.Domain{domain} })
			if got := ConflictOfDomains(tenant, slices.Values([]*v1alpha1.Tenant{other, tenant}), "lb.example.net"); got != want {
				t.Errorf("%q, want %q", got, want)
			}
		})
	}
}

func TestDerive(t *testing.T) {
	lb := asked(func(lb *v1alpha1.TCPLoadBalancer) {
		lb.Spec.IPFamilies, lb.Spec.Partial = []string{"IPv4", "IPv6"}, true
		lb.Spec.Pool, lb.Spec.Share, lb.Spec.Addresses = "public", "dns", []string{"10.1.0.5", "fd00:1::5"}
		lb.Spec.SessionAffinity, lb.Spec.SourceRanges = 60, []string{"192.0.2.0/24"}
	})
	d := Derive("acme", lb, Backends{
		Nodes: []Node{nodeAt("n1", "a", "10.20.0.1", "fd00:20::1"), nodeAt("n2", "", "10.20.0.2")}, Answers: func(string) bool { return true }, Limit: 32,
	})
	s := d.Service
	if !strings.HasPrefix(s.Name, "web-default-") || len(s.Name) > 63 || len(validation.IsDNS1035Label(s.Name)) > 0 {
		t.Errorf("the name is %q", s.Name)
	}
	if diff := cmp.Diff(map[string]string{
		service.AnnotationPool: "public", service.AnnotationShare: "acme/dns", service.AnnotationAddresses: "10.1.0.5,fd00:1::5",
	}, s.Annotations); diff != "" {
		t.Errorf("annotations (-want +got):\n%s", diff)
	}
	claim, err := service.Scope{}.ClaimOf(s)
	if err != nil || claim.Share != "acme/dns" || !claim.Partial || len(claim.Families) != 1 || claim.Ports[0].Number != 80 {
		t.Errorf("the writer parses %+v, %v", claim, err)
	}
	if !(service.Scope{Class: "herald.dev/vip"}).Ours(s) || s.Labels[v1alpha1.LabelTenant] != "acme" || *s.Spec.AllocateLoadBalancerNodePorts ||
		len(s.Spec.Selector) > 0 || *s.Spec.SessionAffinityConfig.ClientIP.TimeoutSeconds != 60 {
		t.Errorf("the Service is %+v", s)
	}
	var got []string
	for _, slice := range d.Slices {
		for _, e := range slice.Endpoints {
			got = append(got, fmt.Sprintf("%s %s:%d %v", slice.AddressType, e.Addresses[0], *slice.Ports[0].Port, *e.Conditions.Ready && *e.Conditions.Serving))
			if e.NodeName != nil {
				t.Errorf("the endpoint %v names a node of this cluster", e)
			}
		}
		if slice.Labels["kubernetes.io/service-name"] != s.Name || *slice.Ports[0].Name != "http" {
			t.Errorf("the slice is %+v", slice)
		}
	}
	if want := []string{"IPv4 10.20.0.1:30080 true", "IPv4 10.20.0.2:30080 true", "IPv6 fd00:20::1:30080 true"}; !slices.Equal(got, want) {
		t.Errorf("endpoints %q, want %q", got, want)
	}
	names, slices := DerivedNames(lb.Name)
	if names != s.Name || slices[0] != d.Slices[0].Name || slices[1] != d.Slices[1].Name {
		t.Errorf("DerivedNames are %s, %s", names, slices)
	}
	current := s.DeepCopy()
	current.UID, current.Spec.ClusterIP, current.Spec.InternalTrafficPolicy = "x", "10.96.0.9", new(corev1.ServiceInternalTrafficPolicyCluster)
	if !SameService(current, s) || !SameSlice(d.Slices[0].DeepCopy(), d.Slices[0]) {
		t.Error("a field set by the server counts as a change")
	}
	current.Spec.LoadBalancerSourceRanges = nil
	if SameService(current, s) {
		t.Error("a change is not detected")
	}
}

// TestBackends checks which nodes receive connections.
func TestBackends(t *testing.T) {
	nodes := []Node{nodeAt("n1", "", "10.20.0.1"), nodeAt("n2", "", "10.20.0.2"), nodeAt("n3", "", "10.20.0.3")}
	nodes[2].Ready = false
	local := func(names ...string) func(*v1alpha1.TCPLoadBalancer) {
		return func(lb *v1alpha1.TCPLoadBalancer) { lb.Spec.Local, lb.Spec.Nodes = true, names }
	}
	for name, tt := range map[string]struct {
		lb   *v1alpha1.TCPLoadBalancer
		down string
		want string
	}{
		"ready nodes":          {asked(), "", "n1 n2"},
		"answering nodes":      {asked(), "n1", "n2"},
		"none answers":         {asked(), "n1 n2 n3", "n1 n2"},
		"nodes with endpoints": {asked(local("n1")), "", "n1"},
		"the only one with endpoints does not answer": {asked(local("n1")), "n1", "n1"},
		"the only one with endpoints is not ready":    {asked(local("n3")), "", "n3"},
		"no endpoints at all":                         {asked(local()), "", ""},
	} {
		got := Derive("acme", tt.lb, Backends{Nodes: nodes, Limit: 32, Answers: func(n string) bool { return !strings.Contains(tt.down, n) }})
		var names []string
		for _, e := range got.Slices[0].Endpoints {
			names = append(names, "n"+strings.TrimPrefix(e.Addresses[0], "10.20.0."))
		}
		if strings.Join(names, " ") != tt.want {
			t.Errorf("%s: %q, want %q", name, names, tt.want)
		}
	}
}

// An optional family that no node has is not requested; a required family without endpoints is reported.
func TestFamilies(t *testing.T) {
	only4 := Backends{Nodes: []Node{nodeAt("n1", "", "10.20.0.1")}, Answers: func(string) bool { return true }, Limit: 32}
	both := Backends{Nodes: []Node{nodeAt("n1", "", "10.20.0.1", "fd00:20::1")}, Answers: func(string) bool { return true }, Limit: 32}
	families := func(partial bool, list ...string) *v1alpha1.TCPLoadBalancer {
		return asked(func(lb *v1alpha1.TCPLoadBalancer) { lb.Spec.IPFamilies, lb.Spec.Partial = list, partial })
	}
	for name, tt := range map[string]struct {
		lb   *v1alpha1.TCPLoadBalancer
		b    Backends
		want string // families, policy, slices, unserved
	}{
		"one":                             {families(false, "IPv4"), both, "[IPv4] SingleStack 1 "},
		"both, one is enough":             {families(true, "IPv4", "IPv6"), both, "[IPv4] PreferDualStack 2 "},
		"both, one is enough, one exists": {families(true, "IPv6", "IPv4"), only4, "[IPv4] SingleStack 1 "},
		"both required, one exists":       {families(false, "IPv4", "IPv6"), only4, "[IPv4 IPv6] RequireDualStack 2 IPv6"},
		"one endpoint of its own": {func() *v1alpha1.TCPLoadBalancer {
			lb := families(true, "IPv4", "IPv6")
			lb.Spec.Endpoints = []string{"203.0.113.7"}
			return lb
		}(), both, "[IPv4] SingleStack 1 "},
		"no nodes at all": {families(true, "IPv4", "IPv6"), Backends{Answers: both.Answers, Limit: 32}, "[IPv4] PreferDualStack 2 IPv4 and IPv6"},
	} {
		d := Derive("acme", tt.lb, tt.b)
		if got := fmt.Sprint(d.Service.Spec.IPFamilies, " ", *d.Service.Spec.IPFamilyPolicy, " ", len(d.Slices), " ", d.Unserved(tt.lb)); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

// As many nodes as permitted are chosen, evenly from all zones; a node that disappears is replaced by one other.
func TestChoose(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var nodes []Node
		zones := 1 + rng.IntN(4)
		for i := range 40 + rng.IntN(40) {
			nodes = append(nodes, nodeAt(fmt.Sprintf("n%03d", i), fmt.Sprint("z", i%zones), fmt.Sprintf("10.20.0.%d", i+1)))
		}
		const most = 12
		key := fmt.Sprint("default.s", rng.IntN(1000))
		chosen := choose(nodes, key, most)
		per := make(map[string]int)
		for _, n := range chosen {
			per[n.Zone]++
		}
		counts := slices.Sorted(maps.Values(per))
		if len(chosen) != most || len(per) != zones || counts[len(counts)-1]-counts[0] > 1 {
			t.Fatalf("%d nodes of %d zones are chosen: %v", len(chosen), zones, per)
		}
		gone := chosen[rng.IntN(most)]
		after := choose(filter(nodes, func(n Node) bool { return n.Name != gone.Name }), key, most)
		added := 0
		for _, n := range after {
			if !slices.ContainsFunc(chosen, func(c Node) bool { return c.Name == n.Name }) {
				added++
			}
		}
		if added != 1 {
			t.Fatalf("without %s %d other nodes are chosen", gone.Name, added)
		}
	}
}

// Names of derived Services are unique.
func TestDerivedNames(t *testing.T) {
	seen := make(map[string]string)
	for _, origin := range []string{"a.b-c", "a-b.c", "b.a-c", strings.Repeat("n", 63) + "." + strings.Repeat("s", 63), strings.Repeat("n", 63) + "." + strings.Repeat("s", 62) + "x"} {
		name, _ := DerivedNames(origin)
		if len(validation.IsDNS1035Label(name)) > 0 || seen[name] != "" {
			t.Errorf("%s becomes %s, as %q does", origin, name, seen[name])
		}
		seen[name] = origin
	}
}

// A derived Service leads back to its origin; a Service that only looks derived has none.
func TestOriginOf(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*corev1.Service)
		want   service.Origin
	}{
		{"derived", func(*corev1.Service) {}, service.Origin{Tenant: "acme", Service: "default/web"}},
		{"without the label", func(s *corev1.Service) { s.Labels = nil }, service.Origin{}},
		{"with the label of another tenant", func(s *corev1.Service) { s.Labels[v1alpha1.LabelTenant] = "beta" }, service.Origin{}},
		{"in another namespace", func(s *corev1.Service) { s.Namespace = "shop" }, service.Origin{}},
		{"without an owner", func(s *corev1.Service) { s.OwnerReferences = nil }, service.Origin{}},
		{"with an owner that does not control it", func(s *corev1.Service) { s.OwnerReferences[0].Controller = nil }, service.Origin{}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := Derive("acme", asked(), Backends{}).Service
			test.change(s)
			got := service.OriginOf(s)
			if got != test.want || (len(got.Attrs()) == 0) != (test.want == service.Origin{}) {
				t.Errorf("origin %+v, log attributes %v; want %+v", got, got.Attrs(), test.want)
			}
		})
	}
}
