package cluster_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/service"
	"github.com/herald-vip/herald/service/kube"
	"github.com/herald-vip/herald/status/cluster"
	"github.com/herald-vip/herald/testenv/must"
)

const why = "no ready IPv4 endpoint on this node"

// three returns three nodes: n1 and n2 announce 198.51.100.1, and n3 holds 10.3.0.100.
func three(now time.Time) *cluster.View {
	node := func(name, established string, state v1alpha1.NodeState) v1alpha1.NodeStatus {
		state.Established, state.Version = established, "v0.1.0"
		return v1alpha1.NodeStatus{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: state}
	}
	session := func(peer, state, reason string) v1alpha1.NodeSession {
		return v1alpha1.NodeSession{Peer: peer, ASN: "64500", State: state, Reason: reason, Since: metav1.NewTime(now.Add(-time.Minute))}
	}
	announces := v1alpha1.NodeServices{Announced: []string{"198.51.100.1"}}
	holds := v1alpha1.NodeServices{Held: []string{"10.3.0.100-10.3.0.101"}, Withdrawn: []v1alpha1.NodeWithdrawn{{Reason: why, Addresses: []string{"198.51.100.0/30"}}}}
	vip := func(state, reason string) []v1alpha1.NodeVIP {
		return []v1alpha1.NodeVIP{{Name: "control-plane", Address: "10.99.0.10", State: state, Reason: reason}}
	}
	holder, lasts, renewed := "n2_1234", int32(15), metav1.NewMicroTime(now.Add(-5*time.Second))
	public := v1alpha1.AddressPool{ObjectMeta: metav1.ObjectMeta{Name: "public"}}
	public.Spec.Addresses, public.Spec.BGP = []v1alpha1.AddressRange{"198.51.100.0/24"}, &v1alpha1.PoolBGP{}
	quiet := v1alpha1.AddressPool{ObjectMeta: metav1.ObjectMeta{Name: "quiet"}}
	quiet.Spec.Addresses = []v1alpha1.AddressRange{"203.0.113.0/24"}
	return &cluster.View{Now: now, Snapshot: &kube.Snapshot{
		Nodes: []v1alpha1.NodeStatus{
			node("n1", "1/1", v1alpha1.NodeState{Up: "1/1", Announced: 1, Services: announces, Sessions: []v1alpha1.NodeSession{session("10.0.1.254", "established", "")}, VIPs: vip("announced", "")}),
			node("n2", "1/2", v1alpha1.NodeState{Up: "0/1", Announced: 1, Services: announces, VIPs: vip("withdrawn", "apiserver: connection refused"),
				Sessions: []v1alpha1.NodeSession{session("10.0.1.254", "established", ""), session("10.0.2.254", "down", "no route to host")}}),
			node("n3", "0/0", v1alpha1.NodeState{Held: 2, Draining: "memory", Services: holds}),
		},
		Ready:    map[string]bool{"n1": true, "n2": true, "n3": true},
		Pools:    []v1alpha1.AddressPool{public, quiet},
		Services: []corev1.Service{*balancer("198.51.100.1")},
		Writer:   &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &lasts, RenewTime: &renewed}},
	}}
}

// balancer is a Service that has these addresses.
func balancer(addrs ...string) *corev1.Service {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "shop"}, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer}}
	for _, a := range addrs {
		s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: a})
	}
	s.Status.Conditions = []metav1.Condition{{
		Type: service.ConditionAssigned, Status: metav1.ConditionTrue, Message: "the Service has the addresses that it asks for",
	}}
	return s
}

func TestTables(t *testing.T) {
	c := three(time.Now())
	for _, tt := range []struct {
		name  string
		write func(*strings.Builder) error
		want  string
	}{
		{"status", func(w *strings.Builder) error { return c.WriteStatus(w) }, `NODE   SESSIONS   VIPS   ANNOUNCED   HELD   VERSION   DRAINING
n1     1/1        1/1    1           0      v0.1.0    -
n2     1/2        0/1    1           0      v0.1.0    -
n3     0/0        -      0           2      v0.1.0    memory

VIP             ADDRESS      NODES
control-plane   10.99.0.10   n1 announced, n2 withdrawn
`},
		{"peers", func(w *strings.Builder) error { return c.WritePeers(w) }, `NODE   PEER         ASN     STATE         FOR    BFD   WHY
n1     10.0.1.254   64500   established   1m0s   -     -
n2     10.0.1.254   64500   established   1m0s   -     -
n2     10.0.2.254   64500   down          1m0s   -     no route to host
`},
		{"who has an address of a Service", func(w *strings.Builder) error { return c.WriteWho(w, netip.MustParseAddr("198.51.100.1")) },
			`198.51.100.1 is of Service default/shop
NODE   STATE       WHY
n1     announced   -
n2     announced   -
n3     withdrawn   no ready IPv4 endpoint on this node
`},
		{"who has a VIP", func(w *strings.Builder) error { return c.WriteWho(w, netip.MustParseAddr("10.99.0.10")) }, `NODE   STATE                            WHY
n1     announced as VIP control-plane   -
n2     withdrawn as VIP control-plane   apiserver: connection refused
`},
		{"who has a VIP, of which some nodes say nothing", func(w *strings.Builder) error {
			c := three(time.Now())
			c.Ready = map[string]bool{"n1": true, "n2": false, "n4": true, "n5": false}
			return c.WriteWho(w, netip.MustParseAddr("10.99.0.10"))
		}, `NODE             STATE                            WHY
n1               announced as VIP control-plane   -
n2 (not Ready)   withdrawn as VIP control-plane   apiserver: connection refused
n4               unknown                          it has no NodeStatus: does Herald run there, and may it write that?
`},
	} {
		var out strings.Builder
		if err := tt.write(&out); err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
		if diff := cmp.Diff(tt.want, out.String()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
	if err := c.WriteWho(new(strings.Builder), netip.MustParseAddr("192.0.2.1")); err == nil || !strings.Contains(err.Error(), "no Service has 192.0.2.1") {
		t.Errorf("nobody's address: %v", err)
	}
}

func TestWhy(t *testing.T) {
	refused := balancer()
	refused.Status.Conditions[0] = metav1.Condition{Type: service.ConditionAssigned, Status: metav1.ConditionFalse, Message: "no pool is for it"}
	plain, unheard, class := &corev1.Service{}, balancer(), "example.com/other"
	unheard.Status.Conditions, unheard.Spec.LoadBalancerClass = nil, &class
	foreign, keeps := balancer("198.51.100.1"), balancer("198.51.100.1")
	foreign.Status.Conditions = nil
	keeps.Status.Conditions[0] = refused.Status.Conditions[0]
	for _, tt := range []struct {
		name    string
		service *corev1.Service
		change  func(*cluster.View)
		steps   string // their names, with a mark if they are not OK
		last    string
	}{
		{"announced", balancer("198.51.100.1"), nil, "type claim pool node", "announced by n1, n2; not by n3: " + why},
		{"announced, though nobody gives addresses", balancer("198.51.100.1"), func(c *cluster.View) { c.Writer = nil }, "type claim pool node", "announced by n1, n2"},
		{"announced, and given by another program", foreign, func(c *cluster.View) { c.Writer = nil }, "type writer! claim! pool node", "announced by n1, n2"},
		{"announced, and refused what it asks for now", keeps, nil, "type claim! pool node", "announced by n1, n2"},
		{"its nodes are dead", balancer("198.51.100.1"), func(c *cluster.View) { c.Ready["n1"] = false; delete(c.Ready, "n2") }, "type claim pool node!",
			"no node announces it; n2: gone, says Kubernetes; n3: " + why + "; n1: not Ready, says Kubernetes"},
		{"no session", balancer("198.51.100.1"), func(c *cluster.View) {
			c.Nodes, c.Ready = c.Nodes[1:2], map[string]bool{"n2": true}
			c.Nodes[0].Status.Services = v1alpha1.NodeServices{Withdrawn: []v1alpha1.NodeWithdrawn{{Reason: "no peer was sent a route to it", Addresses: []string{"198.51.100.1"}}}}
		}, "type claim pool node!", "no node announces it; n2: no peer was sent a route to it; session of n2 to 10.0.2.254 is down: no route to host"},
		{"no room", balancer("198.51.100.9"), func(c *cluster.View) { c.Nodes[0].Status.Services.More = 7 }, "type claim pool node?",
			"no node is known to announce it; session of n2 to 10.0.2.254 is down: no route to host; not known of n1: it had no room to report"},
		{"announced, and a node is silent", balancer("198.51.100.1"), func(c *cluster.View) { c.Ready["n4"] = true }, "type claim pool node",
			"announced by n1, n2; not by n3: " + why + "; not known of n4: it has no NodeStatus"},
		{"announced by nobody, and a node is silent", balancer("198.51.100.2"), func(c *cluster.View) { c.Ready["n4"], c.Ready["n5"] = true, false }, "type claim pool node?",
			"no node is known to announce it; n3: " + why + "; session of n2 to 10.0.2.254 is down: no route to host; not known of n4: it has no NodeStatus"},
		{"another type", plain, nil, "type!", "it is of type ClusterIP"},
		{"no writer", balancer(), func(c *cluster.View) { c.Writer = nil }, "type writer!", "no node gives addresses: nobody holds the Lease herald-writer"},
		{"a dead writer", balancer(), func(c *cluster.View) { c.Now = c.Now.Add(time.Minute) }, "type writer!", "no node gives addresses: n2 has not renewed the Lease herald-writer since "},
		{"another class", unheard, nil, "type writer claim!", "nobody has answered it: is example.com/other the loadBalancerClass in Herald's file?"},
		{"no pool", refused, nil, "type writer claim!", "no pool is for it"},
		{"no address", balancer(), nil, "type writer claim address!", "it has no address in its status yet"},
		{"in no pool", balancer("192.0.2.1"), nil, "type claim pool!", "192.0.2.1 is in no AddressPool"},
		{"a pool that nobody announces", balancer("203.0.113.1"), nil, "type claim pool!", "203.0.113.1 is of pool quiet, which is not announced: add bgp: {} or arp: {} to it"},
		{"no node", balancer("198.51.100.1"), func(c *cluster.View) { c.Nodes = nil }, "type claim pool node?", "no node is known to announce it; not known of n1, n2, n3: it has no NodeStatus: does Herald run there, and may it write that?"},
		{"withdrawn", balancer("198.51.100.2"), nil, "type claim pool node!", "no node announces it; n3: " + why},
		{"one of two", balancer("198.51.100.1", "198.51.100.9"), nil, "type claim pool node pool node!", "no node reports it"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := three(time.Now())
			if tt.change != nil {
				tt.change(c)
			}
			steps := c.Why(tt.service)
			marks := map[cluster.State]string{cluster.Fails: "!", cluster.Unknown: "?"}
			var names []string
			for _, s := range steps {
				names = append(names, s.Name+marks[s.State])
			}
			last := steps[len(steps)-1]
			if got := strings.Join(names, " "); got != tt.steps || !strings.HasPrefix(last.Text, tt.last) {
				t.Errorf("the steps are %s, and end with %q; want %s, and %q", got, last.Text, tt.steps, tt.last)
			}
			var out strings.Builder
			c.Services = []corev1.Service{*tt.service}
			must.Do(t, c.WriteWhy(&out, kube.Key(tt.service)))
			sum := map[cluster.State]string{cluster.OK: "is", cluster.Fails: "is not", cluster.Unknown: "may be"}[last.State]
			if !strings.Contains(out.String(), kube.Key(tt.service)+" "+sum+" announced: ") {
				t.Errorf("the node is %s, and that comes to:\n%s", last.State, &out)
			}
		})
	}
}
