// Package cluster tells of a whole cluster by what is in its API: how its nodes stand, who announces an address, and why a
// Service is not announced. It asks no node. What a node tells of itself ([v1alpha1.NodeStatus]) is up to five seconds old, and
// older if the node is cut off.
package cluster

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/service"
	"github.com/herald-vip/herald/service/kube"
	"github.com/herald-vip/herald/service/pool"
	"github.com/herald-vip/herald/service/report"
	"github.com/herald-vip/herald/status/text"
)

// Cluster is what the API has, as of now.
type Cluster struct {
	*kube.Snapshot
	Now time.Time
}

// WriteStatus tells of each node, and of the addresses of the nodes' own VIPs.
func (c Cluster) WriteStatus(w io.Writer) error {
	t := newTable(w, "NODE", "SESSIONS", "VIPS", "ANNOUNCED", "HELD", "VERSION", "DRAINING")
	vips := make(map[string][]string) // lines by the name and address of the VIP
	for _, n := range c.Nodes {
		s := n.Status
		t.row(n.Name, s.Established, s.Up, fmt.Sprint(s.Announced), fmt.Sprint(s.Held), s.Version, s.Draining)
		for _, v := range s.VIPs {
			key := v.Name + "\t" + v.Address
			vips[key] = append(vips[key], strings.TrimSpace(n.Name+" "+v.State))
		}
	}
	if len(vips) > 0 {
		fmt.Fprintln(t)
		t.row("VIP", "ADDRESS", "NODES")
	}
	for _, key := range slices.Sorted(maps.Keys(vips)) {
		name, addr, _ := strings.Cut(key, "\t")
		t.row(name, addr, strings.Join(vips[key], ", "))
	}
	return t.Flush()
}

// WritePeers tells of each session.
func (c Cluster) WritePeers(w io.Writer) error {
	t := newTable(w, "NODE", "PEER", "ASN", "STATE", "FOR", "BFD", "WHY")
	for _, n := range c.Nodes {
		for _, s := range n.Status.Sessions {
			since := ""
			if !s.Since.IsZero() {
				since = c.Now.Sub(s.Since.Time).Truncate(time.Second).String()
			}
			t.row(n.Name, s.Peer, s.ASN, s.State, since, s.BFD, s.Reason)
		}
	}
	return t.Flush()
}

// WriteWho tells whose an address is, and how each node stands to it. The error is that nobody has it.
func (c Cluster) WriteWho(w io.Writer, addr netip.Addr) error {
	found := false
	for _, s := range c.Services {
		if slices.Contains(service.StatusAddresses(&s), addr) {
			found = true
			fmt.Fprintf(w, "%s is of Service %s/%s\n", addr, s.Namespace, s.Name)
		}
	}
	t := newTable(w, "NODE", "STATE", "WHY")
	for _, n := range c.Nodes {
		for _, v := range n.Status.VIPs {
			if a, err := netip.ParseAddr(v.Address); err == nil && a == addr {
				found = true
				t.row(n.Name, v.State+" as VIP "+v.Name, v.Reason)
			}
		}
		switch told := report.Read(n.Status.Services).Of(addr); {
		case told.Announced, told.Held:
			t.row(n.Name, stateOf(told), "")
		case told.Reason != "":
			t.row(n.Name, "withdrawn", told.Reason)
		}
	}
	if !found {
		return fmt.Errorf("no Service has %s, and no node has it as a VIP", addr)
	}
	return t.Flush()
}

func stateOf(t report.Answer) string {
	switch {
	case t.Announced && t.Held:
		return "announced and held"
	case t.Held:
		return "held"
	}
	return "announced"
}

// Link is one of the links of the chain from what a Service asks for to the routers.
type Link struct {
	Name string // one word
	OK   bool
	Text string // a sentence
}

// Why follows the chain of a Service until a link fails, which is the last one then.
func (c Cluster) Why(s *corev1.Service) []Link {
	var chain []Link
	link := func(name string, ok bool, format string, args ...any) bool {
		chain = append(chain, Link{name, ok, fmt.Sprintf(format, args...)})
		return ok
	}
	if !link("type", s.Spec.Type == corev1.ServiceTypeLoadBalancer, "it is of type %s", cmp.Or(s.Spec.Type, corev1.ServiceTypeClusterIP)) {
		return chain
	}
	if holder, ok := c.writer(); !link("writer", ok, "%s", holder) {
		return chain
	}
	assigned := meta.FindStatusCondition(s.Status.Conditions, service.ConditionAssigned)
	switch {
	case assigned == nil && s.Spec.LoadBalancerClass != nil:
		link("claim", false, "nobody has answered it: is %s the loadBalancerClass in Herald's file?", *s.Spec.LoadBalancerClass)
		return chain
	case assigned == nil:
		link("claim", false, "nobody has answered it: does Herald's file say defaultClass: false, or assign: false on all nodes?")
		return chain
	case !link("claim", assigned.Status == metav1.ConditionTrue, "%s", assigned.Message):
		return chain
	}
	addrs := service.StatusAddresses(s)
	if len(addrs) == 0 {
		link("address", false, "it has no address in its status yet")
	}
	for _, addr := range addrs {
		if !c.follow(addr, link) {
			break
		}
	}
	return chain
}

// follow follows the chain of one address.
func (c Cluster) follow(addr netip.Addr, link func(name string, ok bool, format string, args ...any) bool) bool {
	p := c.poolOf(addr)
	switch {
	case p == nil:
		return link("pool", false, "%s is in no AddressPool", addr)
	case p.Spec.BGP == nil && p.Spec.ARP == nil:
		return link("pool", false, "%s is of pool %s, which is not announced: add bgp: {} or arp: {} to it", addr, p.Name)
	}
	link("pool", true, "%s is of pool %s", addr, p.Name)
	if len(c.Nodes) == 0 {
		return link("node", false, "no node tells of itself: does Herald run, and may it write NodeStatuses?")
	}
	var by []string
	why := make(map[string][]string) // nodes by the reason
	var sessions []string
	for _, n := range c.Nodes {
		switch told := report.Read(n.Status.Services).Of(addr); {
		case told.Announced, told.Held:
			by = append(by, n.Name)
			if told.Announced {
				sessions = append(sessions, established(n)...)
			}
		case told.Reason != "":
			why[told.Reason] = append(why[told.Reason], n.Name)
		}
	}
	var not []string
	for _, reason := range slices.Sorted(maps.Keys(why)) {
		not = append(not, strings.Join(why[reason], ", ")+": "+reason)
	}
	switch {
	case len(by) == 0 && len(not) == 0:
		return link("node", false, "no node tells of it")
	case len(by) == 0:
		return link("node", false, "no node announces it; %s", strings.Join(not, "; "))
	case len(not) > 0:
		link("node", true, "%s by %s; not by %s", howOf(p), strings.Join(by, ", "), strings.Join(not, "; "))
	default:
		link("node", true, "%s by %s", howOf(p), strings.Join(by, ", "))
	}
	if len(sessions) > 0 {
		return link("session", true, "%s", strings.Join(sessions, ", "))
	}
	return true
}

// howOf is what nodes do with addresses of a pool.
func howOf(p *v1alpha1.AddressPool) string {
	if p.Spec.BGP == nil {
		return "held"
	}
	return "announced"
}

// established are the sessions of a node by which it announces.
func established(n v1alpha1.NodeStatus) (out []string) {
	for _, s := range n.Status.Sessions {
		if s.State == "established" {
			out = append(out, n.Name+" to "+s.Peer)
		}
	}
	return out
}

// writer says who gives addresses, and whether anybody does.
func (c Cluster) writer() (sentence string, ok bool) {
	l := c.Writer
	switch {
	case l == nil || l.Spec.HolderIdentity == nil || *l.Spec.HolderIdentity == "" || l.Spec.RenewTime == nil || l.Spec.LeaseDurationSeconds == nil:
		return "no node gives addresses: nobody holds the Lease herald-writer", false
	case c.Now.After(l.Spec.RenewTime.Add(time.Duration(*l.Spec.LeaseDurationSeconds) * time.Second)):
		return fmt.Sprintf("no node gives addresses: %s has not renewed the Lease herald-writer since %s", nodeOf(l), l.Spec.RenewTime.Format(time.DateTime)), false
	}
	return nodeOf(l) + " gives addresses", true
}

// nodeOf is the node that holds a Lease.
func nodeOf(l *coordinationv1.Lease) string { return kube.NodeOf(*l.Spec.HolderIdentity) }

// poolOf is the pool that an address is in.
func (c Cluster) poolOf(addr netip.Addr) *v1alpha1.AddressPool {
	for i := range c.Pools {
		if slices.ContainsFunc(c.Pools[i].Spec.Addresses, func(s v1alpha1.AddressRange) bool {
			r, err := pool.ParseRange(string(s))
			return err == nil && r.Contains(addr)
		}) {
			return &c.Pools[i]
		}
	}
	return nil
}

// WriteWhy writes a chain, and what it comes to.
func WriteWhy(w io.Writer, service string, chain []Link) error {
	t := table{tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)}
	for _, l := range chain {
		mark := "ok"
		if !l.OK {
			mark = "FAILS"
		}
		t.row(l.Name, mark, l.Text)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if last := chain[len(chain)-1]; !last.OK {
		_, err := fmt.Fprintf(w, "%s is not announced: %s\n", service, text.OneLine(last.Text))
		return err
	}
	_, err := fmt.Fprintf(w, "%s is announced: where it does not answer, see the routers, kube-proxy and the pods\n", service)
	return err
}

// table is rows in columns.
type table struct{ *tabwriter.Writer }

func newTable(w io.Writer, head ...string) table {
	t := table{tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)}
	t.row(head...)
	return t
}

func (t table) row(cells ...string) {
	for i, c := range cells {
		cells[i] = cmp.Or(text.OneLine(c), "-")
	}
	fmt.Fprintln(t, strings.Join(cells, "\t"))
}
