// Package cluster reports on a whole cluster from its API: the state of its nodes, which nodes announce an address, and
// why a Service is not announced. It contacts no node. The reports of nodes ([v1alpha1.NodeStatus]) are up to five
// seconds old, and older if a node is cut off.
package cluster

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/internal/text"
	"github.com/herald-vip/herald/service"
	"github.com/herald-vip/herald/service/kube"
	"github.com/herald-vip/herald/service/pool"
	"github.com/herald-vip/herald/service/report"
)

// View is a snapshot of the API at a time.
type View struct {
	*kube.Snapshot
	Now time.Time
}

// States of an address on a node, and reasons why its state is unknown.
const (
	withdrawn, unknown = "withdrawn", "unknown"

	noRoom   = "it had no room to report: see herald status --services there"
	noReport = "it has no NodeStatus: does Herald run there, and may it write that?"
)

// nameOf returns a node's name, with a mark if its report is stale.
func (v View) nameOf(n v1alpha1.NodeStatus) string {
	if stale := report.Stale(n.Name, v.Ready); stale != "" {
		return n.Name + " (" + stale + ")"
	}
	return n.Name
}

// silent returns the ready nodes without a report.
func (v View) silent() []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(v.Ready)), func(node string) bool {
		return !v.Ready[node] || slices.ContainsFunc(v.Nodes, func(n v1alpha1.NodeStatus) bool { return n.Name == node })
	})
}

// WriteStatus writes the state of each node, and the addresses of the nodes' own VIPs.
func (v View) WriteStatus(w io.Writer) error {
	t := newTable(w, "NODE", "SESSIONS", "VIPS", "ANNOUNCED", "HELD", "VERSION", "DRAINING")
	vips := make(map[string][]string) // lines by the name and address of the VIP
	for _, n := range v.Nodes {
		s := n.Status
		t.Row(v.nameOf(n), s.Established, s.Up, fmt.Sprint(s.Announced), fmt.Sprint(s.Held), s.Version, s.Draining)
		for _, p := range s.VIPs {
			key := p.Name + "\t" + p.Address
			vips[key] = append(vips[key], strings.TrimSpace(v.nameOf(n)+" "+p.State))
		}
	}
	if len(vips) > 0 {
		fmt.Fprintln(t)
		t.Row("VIP", "ADDRESS", "NODES")
	}
	for _, key := range slices.Sorted(maps.Keys(vips)) {
		name, addr, _ := strings.Cut(key, "\t")
		t.Row(name, addr, strings.Join(vips[key], ", "))
	}
	return t.Flush()
}

// WritePeers writes each session.
func (v View) WritePeers(w io.Writer) error {
	t := newTable(w, "NODE", "PEER", "ASN", "STATE", "FOR", "BFD", "WHY")
	for _, n := range v.Nodes {
		for _, s := range n.Status.Sessions {
			since := ""
			if !s.Since.IsZero() {
				since = v.Now.Sub(s.Since.Time).Truncate(time.Second).String()
			}
			t.Row(v.nameOf(n), s.Peer, s.ASN, s.State, since, s.BFD, s.Reason)
		}
	}
	return t.Flush()
}

// WriteWho writes the owner of an address, and its state on each node. It returns an error if nothing has the address.
func (v View) WriteWho(w io.Writer, addr netip.Addr) error {
	found := false
	for _, s := range v.Services {
		if slices.Contains(service.StatusAddresses(&s), addr) {
			found = true
			fmt.Fprintf(w, "%s is of Service %s/%s\n", addr, s.Namespace, s.Name)
		}
	}
	t := newTable(w, "NODE", "STATE", "WHY")
	for _, n := range v.Nodes {
		for _, p := range n.Status.VIPs {
			if a, err := netip.ParseAddr(p.Address); err == nil && a == addr {
				found = true
				t.Row(v.nameOf(n), p.State+" as VIP "+p.Name, p.Reason)
			}
		}
		if state, why := stateOf(n, addr); state != "" {
			t.Row(v.nameOf(n), state, why)
		}
	}
	for _, node := range v.silent() {
		t.Row(node, unknown, noReport)
	}
	if !found {
		return fmt.Errorf("no Service has %s, and no node reports it as a VIP", addr)
	}
	return t.Flush()
}

// stateOf returns the state of a Service's address on a node and its reason; empty if the node does not report it.
func stateOf(n v1alpha1.NodeStatus, addr netip.Addr) (state, why string) {
	switch a := report.Read(n.Status.Services).Of(addr); {
	case a.Announced && a.Held:
		return "announced and held", ""
	case a.Announced:
		return "announced", ""
	case a.Held:
		return "held", ""
	case a.Unknown:
		return unknown, noRoom
	case a.Reason != "":
		return withdrawn, a.Reason
	}
	return "", ""
}

// Step is a step from the Service's request to the routers.
type Step struct {
	Name  string // one word
	State State
	Text  string // a sentence
}

// State is the result of a step.
type State string

// Results of a step: Unknown if some nodes do not report it.
const (
	OK      State = "ok"
	Fails   State = "FAILS"
	Unknown State = unknown
)

// Why follows a Service step by step, up to the first failed step that keeps it from being announced. The writer, and
// refused parts of the request, do not matter to a Service that has an address.
func (v View) Why(s *corev1.Service) []Step {
	var steps []Step
	step := func(name string, state State, format string, args ...any) bool {
		steps = append(steps, Step{name, state, fmt.Sprintf(format, args...)})
		return state == OK
	}
	judge := map[bool]State{true: OK, false: Fails}
	if !step("type", judge[s.Spec.Type == corev1.ServiceTypeLoadBalancer], "it is of type %s", cmp.Or(s.Spec.Type, corev1.ServiceTypeClusterIP)) {
		return steps
	}
	addrs := service.StatusAddresses(s)
	assigned := meta.FindStatusCondition(s.Status.Conditions, service.ConditionAssigned)
	if len(addrs) == 0 || assigned == nil {
		holder, ok := v.writer()
		if !step("writer", judge[ok], "%s", holder) && len(addrs) == 0 {
			return steps
		}
	}
	switch {
	case assigned != nil: // may be a refusal although the Service keeps its addresses
		step("claim", judge[assigned.Status == metav1.ConditionTrue], "%s", assigned.Message)
	case s.Spec.LoadBalancerClass != nil:
		step("claim", Fails, "nobody has answered it: is %s the loadBalancerClass in Herald's file?", *s.Spec.LoadBalancerClass)
	default:
		step("claim", Fails, "nobody has answered it: does Herald's file say defaultClass: false, or assign: false on all nodes?")
	}
	if len(addrs) == 0 && steps[len(steps)-1].State == OK {
		step("address", Fails, "it has no address in its status yet")
	}
	for _, addr := range addrs {
		if !v.follow(addr, step) {
			break
		}
	}
	return steps
}

// follow follows one address.
func (v View) follow(addr netip.Addr, step func(name string, state State, format string, args ...any) bool) bool {
	p := v.poolOf(addr)
	switch {
	case p == nil:
		return step("pool", Fails, "%s is in no AddressPool", addr)
	case p.Spec.BGP == nil && p.Spec.ARP == nil:
		return step("pool", Fails, "%s is of pool %s, which is not announced: add bgp: {} or arp: {} to it", addr, p.Name)
	}
	step("pool", OK, "%s is of pool %s", addr, p.Name)
	// Nodes by state, by the reason for withdrawing, and by the reason why their state is unknown.
	by, why, whyNot := make(map[string][]string), make(map[string][]string), make(map[string][]string)
	var down []string
	for _, n := range v.Nodes {
		if stale := report.Stale(n.Name, v.Ready); stale != "" {
			stale += ", says Kubernetes"
			whyNot[stale] = append(whyNot[stale], n.Name)
			continue
		}
		switch state, reason := stateOf(n, addr); state {
		case "":
		case unknown:
			why[reason] = append(why[reason], n.Name)
		case withdrawn:
			whyNot[reason] = append(whyNot[reason], n.Name)
		default:
			by[state] = append(by[state], n.Name)
		}
		for _, s := range n.Status.Sessions {
			if s.State != "established" {
				down = append(down, fmt.Sprintf("session of %s to %s is down: %s", n.Name, s.Peer, cmp.Or(s.Reason, "no reason is known")))
			}
		}
	}
	if silent := v.silent(); len(silent) > 0 {
		why[noReport] = silent
	}
	do, not, unsaid := list(by, "%[2]s by %[1]s"), list(whyNot, "%s: %s"), list(why, "not known of %s: %s")
	state, sentence := Fails, "no node announces it"
	switch {
	case len(do) > 0:
		state, sentence, down = OK, strings.Join(do, ", "), nil
		if len(not) > 0 {
			not[0] = "not by " + not[0]
		}
	case len(unsaid) > 0:
		state, sentence = Unknown, "no node is known to announce it"
	case len(not) == 0:
		sentence = "no node reports it"
	}
	if p.Spec.BGP == nil {
		down = nil
	}
	return step("node", state, "%s", strings.Join(slices.Concat([]string{sentence}, not, down, unsaid), "; "))
}

// list formats the nodes of each key.
func list(by map[string][]string, format string) (out []string) {
	for _, what := range slices.Sorted(maps.Keys(by)) {
		out = append(out, fmt.Sprintf(format, strings.Join(by[what], ", "), what))
	}
	return out
}

// writer describes the node that gives addresses; ok is false if there is none.
func (v View) writer() (sentence string, ok bool) {
	l := v.Writer
	if l == nil || l.Spec.HolderIdentity == nil || *l.Spec.HolderIdentity == "" || l.Spec.RenewTime == nil || l.Spec.LeaseDurationSeconds == nil {
		return "no node gives addresses: nobody holds the Lease herald-writer", false
	}
	node := kube.NodeOf(*l.Spec.HolderIdentity)
	if v.Now.After(l.Spec.RenewTime.Add(time.Duration(*l.Spec.LeaseDurationSeconds) * time.Second)) {
		return fmt.Sprintf("no node gives addresses: %s has not renewed the Lease herald-writer since %s", node, l.Spec.RenewTime.Format(time.DateTime)), false
	}
	return node + " gives addresses", true
}

// poolOf returns the pool that contains an address, or nil.
func (v View) poolOf(addr netip.Addr) *v1alpha1.AddressPool {
	for i := range v.Pools {
		if slices.ContainsFunc(v.Pools[i].Spec.Addresses, func(s v1alpha1.AddressRange) bool {
			r, err := pool.ParseRange(string(s))
			return err == nil && r.Contains(addr)
		}) {
			return &v.Pools[i]
		}
	}
	return nil
}

// WriteWhy writes the steps of a Service, given as NAMESPACE/NAME, and the conclusion.
func (v View) WriteWhy(w io.Writer, service string) error {
	i := slices.IndexFunc(v.Services, func(s corev1.Service) bool { return kube.Key(&s) == service })
	if i < 0 {
		return fmt.Errorf("there is no Service %s", service)
	}
	t, steps := text.NewTable(w), v.Why(&v.Services[i])
	for _, s := range steps {
		t.Row(s.Name, string(s.State), s.Text)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	last := steps[len(steps)-1]
	sum, why := "is not announced", text.OneLine(last.Text)
	switch last.State {
	case OK:
		sum, why = "is announced", "where it does not answer, see the routers, kube-proxy and the pods"
	case Unknown:
		sum = "may be announced"
	}
	_, err := fmt.Fprintf(w, "%s %s: %s\n", service, sum, why)
	return err
}

func newTable(w io.Writer, head ...string) text.Table {
	t := text.NewTable(w)
	t.Row(head...)
	return t
}
