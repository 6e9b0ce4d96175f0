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

// Reasons of the condition that tells who announces a Service, and of events about it.
const (
	ReasonAnnounced    = "Announced"
	ReasonNotAnnounced = "NotAnnounced"
	reasonUnreported   = "NotReported" // by any node
	// ReasonAnnouncersMoved is that of an event: other nodes announce it than before.
	ReasonAnnouncersMoved = "AnnouncersMoved"
)

const (
	// gatherFor is how long what nodes report is gathered before it is acted on.
	gatherFor = time.Second
	// mostEvents is how many events of who announces there are at once, and eventsAgain how many a second after these.
	mostEvents, eventsAgain = 100, 1
	// mostNamed is how many nodes a sentence names.
	mostNamed = 5
)

// nodes is what nodes report.
type nodes struct {
	reports map[string]*report.Report // by the name of the node
	ready   map[string]bool           // the nodes there are, and whether they are heard
	// inForce is what was reported, of the nodes that are ready, and names are these in order.
	inForce map[string]*report.Report
	names   []string
	after   time.Time // when what was reported since is put in force; zero if nothing was

	waiting []string  // whose status is to be written because of that
	next    time.Time // when the next of them are
}

func newNodes() *nodes {
	return &nodes{reports: make(map[string]*report.Report), ready: make(map[string]bool), inForce: make(map[string]*report.Report)}
}

func (st *state) setNode(n *corev1.Node, now time.Time) {
	ready := !slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue
	})
	if was, known := st.nodes.ready[n.Name]; !known || was != ready {
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
	st.nodes.changed(now)
}

func (st *state) deleteNodeStatus(s *v1alpha1.NodeStatus, now time.Time) {
	delete(st.nodes.reports, s.Name)
	st.nodes.changed(now)
}

func (n *nodes) changed(now time.Time) {
	if n.after.IsZero() {
		n.after = now.Add(gatherFor)
	}
}

// hear puts in force what nodes have reported, once that is gathered, and returns when to look again. A node that is not
// ready, or gone, is believed nothing: nobody withdraws what it reported.
func (st *state) hear(now time.Time) time.Time {
	n := st.nodes
	if n.after.IsZero() || st.open && now.Before(n.after) {
		return n.after
	}
	n.after = time.Time{}
	was := n.inForce
	n.inForce = maps.Clone(n.reports)
	maps.DeleteFunc(n.inForce, func(name string, _ *report.Report) bool { return !n.ready[name] })
	n.names = slices.Sorted(maps.Keys(n.inForce))
	known := maps.Clone(was)
	maps.Copy(known, n.inForce)
	for name := range known {
		before, after := was[name], n.inForce[name]
		if before == after {
			continue
		}
		for key := range st.entries {
			if slices.ContainsFunc(st.addresses.Addresses(key), func(a netip.Addr) bool { return before.Of(a) != after.Of(a) }) {
				st.changed[key] = true
			}
		}
	}
	if len(was) == 0 || len(n.inForce) == 0 { // there is a condition now, or none any more
		for key := range st.entries {
			st.changed[key] = true
		}
	}
	return time.Time{}
}

// announced tells who announces a Service; nil if there is nothing to tell: it has no address, or no node tells of any.
func (st *state) announced(key string) *metav1.Condition {
	addrs := st.addresses.Addresses(key)
	if len(addrs) == 0 || len(st.nodes.reports) == 0 {
		return nil
	}
	c := &metav1.Condition{Type: service.ConditionAnnounced, Status: metav1.ConditionTrue, Reason: ReasonAnnounced}
	var sentences []string
	for _, a := range addrs {
		status, reason, sentence := st.nodes.say(a)
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

// say is who announces an address, or why nobody does.
func (n *nodes) say(a netip.Addr) (status metav1.ConditionStatus, reason, sentence string) {
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
	why := slices.MinFunc(slices.Collect(maps.Keys(withdrawn)), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(withdrawn[b]), len(withdrawn[a])), cmp.Compare(a, b))
	})
	return metav1.ConditionFalse, ReasonNotAnnounced, fmt.Sprintf("announced by no node: %s (%s)", why, enumerateNodes(withdrawn[why]))
}

// enumerateNodes lists nodes as prose, the first of them if they are many.
func enumerateNodes(names []string) string {
	if more := len(names) - mostNamed; more > 1 {
		return strings.Join(names[:mostNamed], ", ") + " and more" // a number would have it written anew for every restart
	}
	last := len(names) - 1
	if last == 0 {
		return names[0]
	}
	return strings.Join(names[:last], ", ") + " and " + names[last]
}

// sameCondition compares conditions, which may be nil, but for their times.
func sameCondition(a, b *metav1.Condition) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Status == b.Status && a.Reason == b.Reason && a.Message == b.Message
}

// tellAnnounced sets the condition of who announces a Service in the status that w writes, and emits an event of it.
func (st *state) tellAnnounced(w *write, now time.Time, emit func(kind, reason, message string)) {
	is, want := announcedOf(w.read), st.announced(w.key)
	if want == nil {
		meta.RemoveStatusCondition(&w.status.Conditions, service.ConditionAnnounced)
		return
	}
	want.LastTransitionTime = metav1.NewTime(now)
	meta.SetStatusCondition(&w.status.Conditions, *want)
	if sameCondition(is, want) || want.Reason == reasonUnreported || !st.events.AllowN(now, 1) {
		return
	}
	switch {
	case want.Status != metav1.ConditionTrue:
		emit(corev1.EventTypeWarning, ReasonNotAnnounced, want.Message)
	case is != nil && is.Status == metav1.ConditionTrue:
		emit(corev1.EventTypeNormal, ReasonAnnouncersMoved, want.Message+"; before: "+is.Message)
	default:
		emit(corev1.EventTypeNormal, ReasonAnnounced, want.Message)
	}
}
