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

// Why a node is not believed, or tells nothing.
const (
	notReady = "not Ready, says Kubernetes"
	noRoom   = "it had no room to tell: see herald status --services there"
)

// nameOf is a node's name, with a mark if what it told may be no longer so.
func (c Cluster) nameOf(n v1alpha1.NodeStatus) string {
	if c.Unready[n.Name] {
		return n.Name + " (not Ready)"
	}
	return n.Name
}

// WriteStatus tells of each node, and of the addresses of the nodes' own VIPs.
func (c Cluster) WriteStatus(w io.Writer) error {
	t := newTable(w, "NODE", "SESSIONS", "VIPS", "ANNOUNCED", "HELD", "VERSION", "DRAINING")
	vips := make(map[string][]string) // lines by the name and address of the VIP
	for _, n := range c.Nodes {
		s := n.Status
		t.row(c.nameOf(n), s.Established, s.Up, fmt.Sprint(s.Announced), fmt.Sprint(s.Held), s.Version, s.Draining)
		for _, v := range s.VIPs {
			key := v.Name + "\t" + v.Address
			vips[key] = append(vips[key], strings.TrimSpace(c.nameOf(n)+" "+v.State))
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
			t.row(c.nameOf(n), s.Peer, s.ASN, s.State, since, s.BFD, s.Reason)
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
				t.row(c.nameOf(n), v.State+" as VIP "+v.Name, v.Reason)
			}
		}
		switch told := report.Read(n.Status.Services).Of(addr); {
		case told.Announced, told.Held:
			t.row(c.nameOf(n), stateOf(told), "")
		case told.Unknown:
			t.row(c.nameOf(n), "unknown", noRoom)
		case told.Reason != "":
			t.row(c.nameOf(n), "withdrawn", told.Reason)
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

// Why follows the chain of a Service until a link fails without which it is not announced, which is the last one then.
// Who gives addresses, and whether all that it asks for is granted, does not matter to one that has some.
func (c Cluster) Why(s *corev1.Service) []Link {
	var chain []Link
	link := func(name string, ok bool, format string, args ...any) bool {
		chain = append(chain, Link{name, ok, fmt.Sprintf(format, args...)})
		return ok
	}
	if !link("type", s.Spec.Type == corev1.ServiceTypeLoadBalancer, "it is of type %s", cmp.Or(s.Spec.Type, corev1.ServiceTypeClusterIP)) {
		return chain
	}
	addrs := service.StatusAddresses(s)
	assigned := meta.FindStatusCondition(s.Status.Conditions, service.ConditionAssigned)
	if len(addrs) == 0 || assigned == nil {
		holder, ok := c.writer()
		if ok = link("writer", ok, "%s", holder); !ok && len(addrs) == 0 {
			return chain
		}
	}
	switch {
	case assigned != nil: // of a Service that keeps what it has it may be a refusal
		link("claim", assigned.Status == metav1.ConditionTrue, "%s", assigned.Message)
	case s.Spec.LoadBalancerClass != nil:
		link("claim", false, "nobody has answered it: is %s the loadBalancerClass in Herald's file?", *s.Spec.LoadBalancerClass)
	default:
		link("claim", false, "nobody has answered it: does Herald's file say defaultClass: false, or assign: false on all nodes?")
	}
	if len(addrs) == 0 && chain[len(chain)-1].OK {
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
	by, why := make(map[string][]string), make(map[string][]string) // nodes by what they do, and by why they do not
	var down []string
	for _, n := range c.Nodes {
		switch told := report.Read(n.Status.Services).Of(addr); {
		case c.Unready[n.Name]:
			why[notReady] = append(why[notReady], n.Name)
			continue
		case told.Announced, told.Held:
			by[stateOf(told)] = append(by[stateOf(told)], n.Name)
		case told.Unknown:
			why[noRoom] = append(why[noRoom], n.Name)
		case told.Reason != "":
			why[told.Reason] = append(why[told.Reason], n.Name)
		}
		for _, s := range n.Status.Sessions {
			if s.State != "established" {
				down = append(down, fmt.Sprintf("session of %s to %s is down: %s", n.Name, s.Peer, cmp.Or(s.Reason, "no reason is known")))
			}
		}
	}
	var do, not []string
	for _, state := range slices.Sorted(maps.Keys(by)) {
		do = append(do, state+" by "+strings.Join(by[state], ", "))
	}
	for _, reason := range slices.Sorted(maps.Keys(why)) {
		not = append(not, strings.Join(why[reason], ", ")+": "+reason)
	}
	switch {
	case len(do) > 0 && len(not) > 0:
		return link("node", true, "%s; not by %s", strings.Join(do, ", "), strings.Join(not, "; "))
	case len(do) > 0:
		return link("node", true, "%s", strings.Join(do, ", "))
	case len(not) == 0:
		return link("node", false, "no node tells of it")
	case p.Spec.BGP == nil:
		down = nil
	}
	return link("node", false, "no node announces it; %s", strings.Join(append(not, down...), "; "))
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
