package assign

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/service"
	"github.com/herald-vip/herald/service/report"
)

// node creates a Node or sets its readiness.
func (s *server) node(name string, ready corev1.ConditionStatus) {
	defer s.edit()()
	o := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	o.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}
	s.nodes[name] = o
	s.watch(func(st *state) { st.setNode(o, time.Now()) })
}

// tells writes the report of a node.
func (s *server) tells(name string, told v1alpha1.NodeServices) {
	defer s.edit()()
	o := &v1alpha1.NodeStatus{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: v1alpha1.NodeState{Services: told}}
	s.states[name] = o
	s.watch(func(st *state) { st.setNodeStatus(o, time.Now()) })
}

func announces(ranges ...string) v1alpha1.NodeServices {
	return v1alpha1.NodeServices{Announced: ranges}
}

func holds(ranges ...string) v1alpha1.NodeServices { return v1alpha1.NodeServices{Held: ranges} }

func withdraws(reason string, ranges ...string) v1alpha1.NodeServices {
	return v1alpha1.NodeServices{Withdrawn: []v1alpha1.NodeWithdrawn{{Reason: reason, Addresses: ranges}}}
}

// said returns the condition about the nodes that announce a Service.
func (s *server) said(name string) string {
	s.settle()
	s.mu.Lock()
	defer s.mu.Unlock()
	c := announcedOf(s.services["default/"+name])
	if c == nil {
		return ""
	}
	return fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message)
}

func (s *server) says(name, want string) {
	s.t.Helper()
	if got := s.said(name); got != want {
		s.t.Errorf("condition of %s:\n%q, want\n%q", name, got, want)
	}
}

// TestDescribe checks the sentence about an address, by the reports of nodes.
func TestDescribe(t *testing.T) {
	const a = "10.0.0.1"
	many := make(map[string]v1alpha1.NodeServices)
	for i := range 9 {
		many[fmt.Sprint("n", i)] = announces(a)
	}
	for _, c := range []struct {
		want string
		told map[string]v1alpha1.NodeServices
	}{
		{"False NotReported: no node reports it", nil},
		{"True Announced: announced by n1", map[string]v1alpha1.NodeServices{"n1": announces(a), "n2": announces("10.0.0.2")}},
		{"True Announced: announced by n1 and n2", map[string]v1alpha1.NodeServices{"n2": announces(a), "n1": announces("10.0.0.0/30"), "n3": withdraws("why", a)}},
		{"True Announced: announced by n0, n1, n2, n3, n4 and more", many},
		{"True Announced: held by n2", map[string]v1alpha1.NodeServices{"n1": {}, "n2": holds(a)}},
		{"True Announced: announced by n1, held by n2", map[string]v1alpha1.NodeServices{"n1": announces(a), "n2": holds(a)}},
		{"False NotAnnounced: announced by no node: b (n2 and n3)", map[string]v1alpha1.NodeServices{"n1": withdraws("a", a), "n2": withdraws("b", a), "n3": withdraws("b", a)}},
		{"Unknown NotReported: n1 had no room to report: see herald status --services there", map[string]v1alpha1.NodeServices{"n1": {More: 3}, "n2": withdraws("b", a)}},
		{"True Announced: announced by n2", map[string]v1alpha1.NodeServices{"n1": {More: 3}, "n2": announces(a)}},
	} {
		n := newNodes()
		for name, told := range c.told {
			n.inForce[name] = report.Read(told)
			n.names = append(n.names, name)
		}
		slices.Sort(n.names)
		status, reason, sentence := n.describe(netip.MustParseAddr(a))
		if got := fmt.Sprintf("%s %s: %s", status, reason, sentence); got != c.want {
			t.Errorf("%v: %q, want %q", c.told, got, c.want)
		}
	}
}

// TestAnnounced lets nodes announce a Service, move it, and disappear.
func TestAnnounced(t *testing.T) {
	world(t, func(s *server) {
		s.create("web")
		s.says("web", "") // no node reports
		for _, n := range []string{"n1", "n2", "n3"} {
			s.node(n, corev1.ConditionTrue)
			s.tells(n, announces("10.0.0.1"))
		}
		s.says("web", "True Announced: announced by n1, n2 and n3")
		s.want("web", "10.0.0.1 Assigned")
		if n := s.written("default/web"); n != 2 {
			t.Errorf("%d writes, want one for the address and one for the announcing nodes", n)
		}

		s.tells("n1", withdraws("node n1 has the label x", "10.0.0.1"))
		s.tells("n3", announces())
		s.tells("n1", withdraws("node n1 is cordoned", "10.0.0.1"))
		s.says("web", "True Announced: announced by n2")
		s.node("n2", corev1.ConditionUnknown)            // it is NotReady, so its report is ignored
		s.says("web", "True Announced: announced by n2") // for a while
		s.sleep(unannouncedDelay)
		s.says("web", "False NotAnnounced: announced by no node: node n1 is cordoned (n1)")
		s.node("n2", corev1.ConditionTrue)
		s.says("web", "True Announced: announced by n2")
		if n := s.written("default/web"); n != 5 {
			t.Errorf("%d writes, want one for each move", n)
		}
		want := []string{
			"Normal web Announced: announced by n1, n2 and n3",
			"Normal web AnnouncersMoved: announced by n2; before: announced by n1, n2 and n3",
			"Warning web NotAnnounced: announced by no node: node n1 is cordoned (n1)",
			"Normal web Announced: announced by n2",
		}
		if diff := cmp.Diff(want, s.events); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}

		s.idle(func() { s.sleep(24 * time.Hour) })
	})
}

// TestRestartOfOneOfMany: if many nodes announce a Service, nothing is written when an unnamed one leaves and returns.
func TestRestartOfOneOfMany(t *testing.T) {
	world(t, func(s *server) {
		s.create("web")
		for i := range 20 {
			s.node(fmt.Sprintf("n%02d", i), corev1.ConditionTrue)
			s.tells(fmt.Sprintf("n%02d", i), announces("10.0.0.1"))
		}
		s.says("web", "True Announced: announced by n00, n01, n02, n03, n04 and more")
		s.idle(func() {
			s.tells("n15", announces())
			s.sleep(time.Minute)
			s.tells("n15", announces("10.0.0.1"))
			s.sleep(time.Minute)
		})
	})
}

// TestForeignConditions: a condition that another client edits is written again, first at once, then after growing pauses.
func TestForeignConditions(t *testing.T) {
	world(t, func(s *server) {
		s.create("web")
		s.node("n1", corev1.ConditionTrue)
		s.tells("n1", announces("10.0.0.1"))
		s.wait()
		for name, edit := range map[string]func(*corev1.Service){
			"none":         func(o *corev1.Service) { o.Status.Conditions = nil },
			"assigned":     func(o *corev1.Service) { o.Status.Conditions[0].Message = "not by Herald" },
			"announced":    func(o *corev1.Service) { o.Status.Conditions[1].Message = "not by Herald" },
			"of the other": func(o *corev1.Service) { o.Status.Conditions[1].Status = metav1.ConditionFalse },
		} {
			before := s.written("default/web")
			for range 600 {
				s.create("web", func(o *corev1.Service) {
					if len(o.Status.Conditions) == 2 {
						edit(o)
					}
				})
				s.sleep(time.Second)
			}
			if n := s.written("default/web") - before; n < 10 || n > 30 {
				t.Errorf("%s: %d writes in ten minutes of edits", name, n)
			}
			s.sleep(repairs.Max + spoiledPeace)
			s.says("web", "True Announced: announced by n1")
			s.want("web", "10.0.0.1 Assigned")
		}
	})
}

// A change of the holder within a few seconds causes one write and one event.
func TestHolderMoves(t *testing.T) {
	world(t, func(s *server) {
		s.node("n1", corev1.ConditionTrue)
		s.node("n2", corev1.ConditionTrue)
		s.tells("n1", holds("10.0.0.1"))
		s.tells("n2", v1alpha1.NodeServices{})
		s.create("web")
		s.says("web", "True Announced: held by n1")
		before := s.written("default/web")
		s.tells("n1", v1alpha1.NodeServices{})
		s.sleep(4 * time.Second)
		s.tells("n2", holds("10.0.0.1"))
		s.sleep(time.Minute)
		s.says("web", "True Announced: held by n2")
		if n := s.written("default/web") - before; n != 1 {
			t.Errorf("%d writes, want one", n)
		}
		if want := "Normal web AnnouncersMoved: held by n2; before: held by n1"; s.events[len(s.events)-1] != want {
			t.Errorf("events %q, want %q as the last", s.events, want)
		}
	})
}

// Two addresses with different announcers have a sentence each. If no node announces one, the Service is not announced.
func TestTwoFamilies(t *testing.T) {
	world(t, func(s *server) {
		s.createPool("six", nil, "fd00::/120")
		s.create("web", func(o *corev1.Service) {
			o.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}
			o.Spec.IPFamilyPolicy = new(corev1.IPFamilyPolicyRequireDualStack)
		})
		s.node("n1", corev1.ConditionTrue)
		s.tells("n1", announces("10.0.0.1", "fd00::"))
		s.says("web", "True Announced: announced by n1")
		s.tells("n1", v1alpha1.NodeServices{Announced: []string{"fd00::"}, Withdrawn: withdraws("because", "10.0.0.1").Withdrawn})
		s.sleep(time.Minute)
		s.says("web", "False NotAnnounced: 10.0.0.1: announced by no node: because (n1); fd00::: announced by n1")
		s.create("web", func(o *corev1.Service) { o.Spec.Type = corev1.ServiceTypeClusterIP })
		s.says("web", "")
	})
}

// A thousand Services on a node that leaves and returns are written within ten seconds each way, with few events.
func TestThousandMove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		s.createPool("a", nil, "10.0.0.0/22")
		s.node("n1", corev1.ConditionTrue)
		s.node("n2", corev1.ConditionTrue)
		s.tells("n1", announces("10.0.0.0/22"))
		s.tells("n2", announces("10.0.0.0/22"))
		for i := range 1000 {
			s.create(fmt.Sprint("s", i))
		}
		stop := s.start()
		s.sleep(time.Minute)
		s.says("s999", "True Announced: announced by n1 and n2")
		before, events := s.total()-len(s.events), len(s.events)
		s.tells("n2", v1alpha1.NodeServices{})
		s.sleep(4 * time.Second)
		if n := s.total() - len(s.events) - before; n < 100 || n > 400 {
			t.Errorf("%d writes after four seconds, want a hundred a second", n)
		}
		s.tells("n2", announces("10.0.0.0/22")) // the others are unchanged
		s.sleep(time.Minute)
		if n := s.total() - len(s.events) - before; n > 1000 {
			t.Errorf("%d writes in all, want those of the third that changed twice", n)
		}
		if n := len(s.events) - events; n > mostEvents+60 {
			t.Errorf("%d events", n)
		}
		for i := range 1000 {
			s.says(fmt.Sprint("s", i), "True Announced: announced by n1 and n2")
		}
		stop()
	})
}

// someTelling returns a report of a node.
func someTelling(n int) v1alpha1.NodeServices {
	switch n % 4 {
	case 0:
		return announces("10.0.0.1-10.0.0.9", "fd00::/120")
	case 1:
		return withdraws("no endpoint", "10.0.0.1-10.0.0.20")
	case 2:
		return holds("10.0.0.3-10.0.0.5")
	default:
		return v1alpha1.NodeServices{Announced: []string{"10.0.0.2"}, More: 2}
	}
}

// checkAnnounced returns Services with a condition that contradicts the reports.
func (s *server) checkAnnounced() (wrong []string) {
	n := newNodes()
	for name, o := range s.states {
		if node := s.nodes[name]; node != nil && node.Status.Conditions[0].Status == corev1.ConditionTrue {
			n.inForce[name] = report.Read(o.Status.Services)
			n.names = append(n.names, name)
		}
	}
	slices.Sort(n.names)
	for key, o := range s.services {
		c := announcedOf(o)
		addrs := service.StatusAddresses(o)
		switch {
		case !options.Scope.Ours(o) || len(addrs) == 0 || len(s.states) == 0:
			if c != nil {
				wrong = append(wrong, fmt.Sprintf("%s: %v", key, c))
			}
			continue
		case c == nil:
			wrong = append(wrong, key+": nothing")
			continue
		}
		for _, a := range addrs {
			if _, _, sentence := n.describe(a); !strings.Contains(c.Message, sentence) {
				wrong = append(wrong, fmt.Sprintf("%s: %q, want %q", key, c.Message, sentence))
			}
		}
	}
	return wrong
}
