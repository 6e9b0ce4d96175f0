package assign

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/service"
	"github.com/herald-vip/herald/service/report"
)

// Reasons of the condition and of the events about the nodes that announce a Service.
const (
	ReasonAnnounced    = "Announced"
	ReasonNotAnnounced = "NotAnnounced"
	reasonUnreported   = "NotReported" // by any node
	// ReasonAnnouncersMoved is the reason of the event that other nodes announce a Service.
	ReasonAnnouncersMoved = "AnnouncersMoved"
)

const (
	// gatherFor delays the evaluation of reports, so that several are evaluated together.
	gatherFor = time.Second
	// mostEvents is the burst of events about announcing nodes, eventsAgain their rate per second.
	mostEvents, eventsAgain = 100, 1
	// mostNamed limits the nodes named in a sentence.
	mostNamed = 5
)

// nodes holds the reports of nodes.
type nodes struct {
	reports map[string]*report.Report // by the name of the node
	ready   map[string]bool           // readiness of the existing Nodes
	// inForce is the evaluated reports of ready nodes, and names their names, sorted.
	inForce map[string]*report.Report
	names   []string
	after   time.Time // when newer reports are evaluated; zero if there are none

	waiting []string  // Services with a status to write because of reports
	next    time.Time // when the next portion of them is written
}

func newNodes() *nodes {
	return &nodes{reports: make(map[string]*report.Report), ready: make(map[string]bool), inForce: make(map[string]*report.Report)}
}

func (st *state) setNode(n *corev1.Node, now time.Time) {
	ready := !slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue
	})
	if prev, known := st.nodes.ready[n.Name]; !known || prev != ready {
		st.nodes.ready[n.Name] = ready
		st.nodes.changed(now)
	}
}

func (st *state) deleteNode(n *corev1.Node, now time.Time) {
	delete(st.nodes.ready, n.Name)
	st.nodes.changed(now)
}

func (st *state) setNodeStatus(s *v1alpha1.NodeStatus, now time.Time) {
	st.nodes.reports[s.Name] = report.Read(s.Status.Services)
	st.setVIPs(s.Name, s.Status.VIPs)
	st.nodes.changed(now)
}

func (st *state) deleteNodeStatus(s *v1alpha1.NodeStatus, now time.Time) {
	delete(st.nodes.reports, s.Name)
	st.setVIPs(s.Name, nil)
	st.nodes.changed(now)
}

func (n *nodes) changed(now time.Time) {
	if n.after.IsZero() {
		n.after = now.Add(gatherFor)
	}
}

// applyReports evaluates the gathered reports and returns when to call it again. It ignores reports of nodes that are
// NotReady or deleted: nothing else retracts them.
func (st *state) applyReports(now time.Time) time.Time {
	n := st.nodes
	if n.after.IsZero() || st.open && now.Before(n.after) {
		return n.after
	}
	n.after = time.Time{}
	prev := n.inForce
	n.inForce = maps.Clone(n.reports)
	maps.DeleteFunc(n.inForce, func(name string, _ *report.Report) bool { return !n.ready[name] })
	n.names = slices.Sorted(maps.Keys(n.inForce))
	known := maps.Clone(prev)
	maps.Copy(known, n.inForce)
	for name := range known {
		before, after := prev[name], n.inForce[name]
		if before == after {
			continue
		}
		for key := range st.entries {
			if slices.ContainsFunc(st.addresses.Addresses(key), func(a netip.Addr) bool { return before.Of(a) != after.Of(a) }) {
				st.changed[key] = true
			}
		}
	}
	if len(prev) == 0 || len(n.inForce) == 0 { // the condition appears or disappears
		for key := range st.entries {
			st.changed[key] = true
		}
	}
	return time.Time{}
}

// announced returns the condition about the nodes that announce a Service; nil if it has no address, or no node reports.
func (st *state) announced(key string) *metav1.Condition {
	addrs := st.addresses.Addresses(key)
	if len(addrs) == 0 || len(st.nodes.reports) == 0 {
		return nil
	}
	c := &metav1.Condition{Type: service.ConditionAnnounced, Status: metav1.ConditionTrue, Reason: ReasonAnnounced}
	var sentences []string
	for _, a := range addrs {
		status, reason, sentence := st.nodes.describe(a)
		if status != metav1.ConditionTrue && c.Status == metav1.ConditionTrue {
			c.Status, c.Reason = status, reason
		}
		sentences = append(sentences, sentence)
	}
	if same := slices.Compact(slices.Clone(sentences)); len(same) == 1 {
		sentences = same
	} else {
		for i, a := range addrs {
			sentences[i] = a.String() + ": " + sentences[i]
		}
	}
	c.Message = strings.Join(sentences, "; ")
	return c
}

// describe returns which nodes announce an address, or why none does.
func (n *nodes) describe(a netip.Addr) (status metav1.ConditionStatus, reason, sentence string) {
	var announcing, holding, unknown []string
	withdrawn := make(map[string][]string) // nodes by the reason
	for _, name := range n.names {
		switch t := n.inForce[name].Of(a); {
		case t.Announced, t.Held:
			if t.Announced {
				announcing = append(announcing, name)
			}
			if t.Held {
				holding = append(holding, name)
			}
		case t.Unknown:
			unknown = append(unknown, name)
		case t.Reason != "":
			withdrawn[t.Reason] = append(withdrawn[t.Reason], name)
		}
	}
	var by []string
	if len(announcing) > 0 {
		by = append(by, "announced by "+enumerateNodes(announcing))
	}
	if len(holding) > 0 {
		by = append(by, "held by "+enumerateNodes(holding))
	}
	switch {
	case len(by) > 0:
		return metav1.ConditionTrue, ReasonAnnounced, strings.Join(by, ", ")
	case len(unknown) > 0:
		return metav1.ConditionUnknown, reasonUnreported, enumerateNodes(unknown) + " had no room to report: see herald status --services there"
	case len(withdrawn) == 0:
		return metav1.ConditionFalse, reasonUnreported, "no node reports it"
	}
	reason = slices.MinFunc(slices.Collect(maps.Keys(withdrawn)), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(withdrawn[b]), len(withdrawn[a])), cmp.Compare(a, b))
	})
	return metav1.ConditionFalse, ReasonNotAnnounced, fmt.Sprintf("announced by no node: %s (%s)", reason, enumerateNodes(withdrawn[reason]))
}

// enumerateNodes lists nodes in a phrase, at most mostNamed + 1.
func enumerateNodes(names []string) string {
	if more := len(names) - mostNamed; more > 1 {
		return strings.Join(names[:mostNamed], ", ") + " and more" // a number would change the text with every restart of a node
	}
	last := len(names) - 1
	if last == 0 {
		return names[0]
	}
	return strings.Join(names[:last], ", ") + " and " + names[last]
}

// sameCondition reports whether conditions, which may be nil, are equal apart from their times.
func sameCondition(a, b *metav1.Condition) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Status == b.Status && a.Reason == b.Reason && a.Message == b.Message
}

// addAnnounced adds the condition about the announcing nodes to the status of w, and emits an event if it has changed.
func (st *state) addAnnounced(w *write, now time.Time, emit func(kind, reason, message string)) {
	present, want := announcedOf(w.read), st.announced(w.key)
	if want == nil {
		meta.RemoveStatusCondition(&w.status.Conditions, service.ConditionAnnounced)
		return
	}
	want.LastTransitionTime = metav1.NewTime(now)
	meta.SetStatusCondition(&w.status.Conditions, *want)
	if sameCondition(present, want) || want.Reason == reasonUnreported || !st.events.AllowN(now, 1) {
		return
	}
	switch {
	case want.Status != metav1.ConditionTrue:
		emit(corev1.EventTypeWarning, ReasonNotAnnounced, want.Message)
	case present != nil && present.Status == metav1.ConditionTrue:
		emit(corev1.EventTypeNormal, ReasonAnnouncersMoved, want.Message+"; before: "+present.Message)
	default:
		emit(corev1.EventTypeNormal, ReasonAnnounced, want.Message)
	}
}
