package assign

import (
	"log/slog"
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
)

// world runs a test in virtual time with a writer and a server. The pool "a" is
// 10.0.0.1 to 10.0.0.2.
func world(t *testing.T, test func(s *server)) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		s.createPool("a", nil, "10.0.0.1-10.0.0.2")
		stop := s.start()
		s.wait()
		test(s)
		stop()
		if len(s.doubles) > 0 {
			t.Errorf("two Services had %v", s.doubles)
		}
	})
}

func annotate(name, value string) func(*corev1.Service) {
	return func(s *corev1.Service) { metav1.SetMetaDataAnnotation(&s.ObjectMeta, name, value) }
}

func ask(addr string) func(*corev1.Service) { return annotate(service.AnnotationAddresses, addr) }

func port(n int32) func(*corev1.Service) {
	return func(s *corev1.Service) { s.Spec.Ports = []corev1.ServicePort{{Port: n}} }
}

func TestAssign(t *testing.T) {
	world(t, func(s *server) {
		s.create("web")
		s.want("web", "10.0.0.1 Assigned")
		ingress := s.services["default/web"].Status.LoadBalancer.Ingress
		if len(ingress) != 1 || *ingress[0].IPMode != corev1.LoadBalancerIPModeVIP {
			t.Errorf("status %v, want ipMode VIP", ingress)
		}
		if s.written("default/web") != 1 || len(s.events) != 0 {
			t.Errorf("%d writes and the events %v, want one write", s.written("default/web"), s.events)
		}
		s.idle(func() { s.sleep(24 * time.Hour) })
	})
}

func TestRefusedOnce(t *testing.T) {
	world(t, func(s *server) {
		for _, name := range []string{"a", "b", "c", "d"} {
			s.create(name)
			s.sleep(time.Second)
		}
		s.want("c", "PoolExhausted")
		s.want("d", "PoolExhausted")
		s.sleep(24 * time.Hour)
		want := []string{
			`Warning c PoolExhausted: no IPv4 address is free in pool "a": add addresses, or release some`,
			`Warning d PoolExhausted: no IPv4 address is free in pool "a": add addresses, or release some`,
		}
		if diff := cmp.Diff(want, s.events); diff != "" || s.written("default/c") != 1 {
			t.Errorf("%d writes, events (-want +got):\n%s", s.written("default/c"), diff)
		}
		s.delete("a")
		s.want("c", "10.0.0.1 Assigned") // the older
		s.want("d", "PoolExhausted")
		s.createPool("a", nil, "10.0.0.1-10.0.0.9")
		s.want("d", "10.0.0.3 Assigned")
		want = append(want, "Normal c Assigned: it has 10.0.0.1", "Normal d Assigned: it has 10.0.0.3")
		if diff := cmp.Diff(want, s.events); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
	})
}

func TestConflict(t *testing.T) {
	world(t, func(s *server) {
		s.create("a", ask("10.0.0.2"))
		s.wait()
		s.create("b", ask("10.0.0.2"))
		s.want("b", "AddressConflict")
		s.create("a", ask("10.0.0.1"))
		s.want("a", "10.0.0.1 Assigned")
		s.want("b", "10.0.0.2 Assigned")
		if want := "Normal a AddressMoved: it has 10.0.0.1 instead of 10.0.0.2"; !slices.Contains(s.events, want) {
			t.Errorf("events %q, want %q", s.events, want)
		}
		for _, addr := range []string{"10.9.0.1", "10.9.0.2"} {
			s.create("c", ask(addr))
			s.explains("c", addr+" is in no ready pool: ask for an address of a ready pool, or add this one to a pool")
		}
	})
}

// TestMistakenShare changes the port of a sharing Service by a version that is
// refused: no other Service gets that port.
func TestMistakenShare(t *testing.T) {
	world(t, func(s *server) {
		shared := annotate(service.AnnotationShare, "k")
		s.create("a", shared, port(80))
		s.wait()
		s.create("a", ask("nonsense"), port(81))
		s.wait()
		s.create("b", shared, port(81))
		s.create("c", shared, port(80))
		s.want("a", "10.0.0.1 InvalidClaim")
		s.want("b", "10.0.0.2 Assigned")
		s.want("c", "10.0.0.1 Assigned")
	})
}

func TestShare(t *testing.T) {
	world(t, func(s *server) {
		shared := annotate(service.AnnotationShare, "k")
		s.create("a", shared, port(80))
		s.wait()
		s.create("b", shared, port(443))
		s.create("c", shared, port(80))
		s.want("a", "10.0.0.1 Assigned")
		s.want("b", "10.0.0.1 Assigned")
		s.want("c", "10.0.0.2 Assigned")
		s.create("d", shared, ask("10.0.0.1"), port(80))
		s.want("d", "AddressConflict")
		s.create("a", port(81)) // 80 is free
		s.want("a", "10.0.0.1 Assigned")
		s.want("d", "10.0.0.1 Assigned")
	})
}

func TestMistakeKeepsAddress(t *testing.T) {
	world(t, func(s *server) {
		s.create("a")
		s.wait()
		s.create("a", ask("10.0.0.300"))
		s.want("a", "10.0.0.1 InvalidClaim")
		s.explains("a", `herald.dev/addresses has "10.0.0.300": want an address such as 10.1.0.1 or fd00::1`)
		s.create("a", ask(""))
		s.want("a", "10.0.0.1 Assigned")
	})
}

func TestNotOursAnyMore(t *testing.T) {
	world(t, func(s *server) {
		other := metav1.Condition{Type: "example.com/Other", Status: metav1.ConditionTrue, Reason: "Yes"}
		s.create("a", func(o *corev1.Service) { o.Status.Conditions = []metav1.Condition{other} })
		s.create("b", ask("10.0.0.1"))
		s.want("a", "10.0.0.1 Assigned")
		s.create("a", func(o *corev1.Service) { o.Spec.Type = corev1.ServiceTypeClusterIP })
		s.want("a", "")
		s.want("b", "10.0.0.1 Assigned")
		if got := s.services["default/a"].Status.Conditions; len(got) != 1 || got[0] != other {
			t.Errorf("conditions %v, want those of other controllers", got)
		}
		s.create("a", func(o *corev1.Service) { o.Spec.Type = corev1.ServiceTypeLoadBalancer })
		s.want("a", "10.0.0.2 Assigned")
	})
}

// TestReleaseAfterWrite lets the server refuse the write that clears a status: no
// other Service gets the address.
func TestReleaseAfterWrite(t *testing.T) {
	world(t, func(s *server) {
		s.create("a")
		s.wait()
		s.spoil(func(key string) (before, after error) {
			if key == "default/a" {
				return errCut, nil
			}
			return nil, nil
		})
		s.create("a", ask("10.0.0.2"))
		s.create("b", ask("10.0.0.1"))
		s.sleep(time.Hour)
		s.want("a", "10.0.0.1 Assigned")
		s.want("b", "AddressConflict")
		s.explains("b", "10.0.0.1 belongs to default/a, which is releasing 10.0.0.1: ask for another address, or give both the same sharing key")
		s.spoil(nil)
		s.sleep(retries.Max + time.Second)
		s.want("a", "10.0.0.2 Assigned")
		s.want("b", "10.0.0.1 Assigned")
	})
}

func TestDualStack(t *testing.T) {
	world(t, func(s *server) {
		families := func(policy corev1.IPFamilyPolicy) func(*corev1.Service) {
			return func(o *corev1.Service) {
				o.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv6Protocol, corev1.IPv4Protocol}
				o.Spec.IPFamilyPolicy = &policy
			}
		}
		s.create("prefer", families(corev1.IPFamilyPolicyPreferDualStack))
		s.create("require", families(corev1.IPFamilyPolicyRequireDualStack))
		s.want("prefer", "10.0.0.1 Assigned")
		s.want("require", "NoPool")
		s.createPool("six", nil, "fd00::/120")
		s.want("prefer", "fd00:: 10.0.0.1 Assigned")
		s.want("require", "fd00::1 10.0.0.2 Assigned")
	})
}

// The log names the tenant and the original Service of a tenant's Service.
func TestOriginIsLogged(t *testing.T) {
	derived := &corev1.Service{ObjectMeta: metav1.ObjectMeta{
		Namespace: "tenant-acme", Name: "web-default-4f2a", Labels: map[string]string{v1alpha1.LabelTenant: "acme"},
		OwnerReferences: []metav1.OwnerReference{{Kind: "TCPLoadBalancer", Name: "default.web", Controller: new(true)}},
	}}
	var log strings.Builder
	d := &writer{log: slog.New(slog.NewTextHandler(&log, nil))}
	d.report(t.Context(), &write{key: "tenant-acme/web-default-4f2a", read: derived, assigns: true, refusal: "no IPv6 address is free"})
	if n := strings.Count(log.String(), "service=tenant-acme/web-default-4f2a tenant=acme origin=default/web "); n != 2 {
		t.Errorf("%d lines name them, want 2:\n%s", n, log.String())
	}
}

// shows writes the VIPs of a node's own file: names with their addresses.
func (s *server) shows(node string, vips ...string) {
	s.tells(node, v1alpha1.NodeServices{})
	defer s.edit()()
	o := s.states[node].DeepCopy()
	for i := 0; i < len(vips); i += 2 {
		o.Status.VIPs = append(o.Status.VIPs, v1alpha1.NodeVIP{Name: vips[i], Address: vips[i+1]})
	}
	s.states[node] = o
	s.watch(func(st *state) { st.setNodeStatus(o, time.Now()) })
}

// No Service gets the address of a node's VIP. A Service that has it already keeps it, and its condition names the VIP.
func TestVIPsAreNotAssigned(t *testing.T) {
	world(t, func(s *server) {
		s.shows("m2", "control-plane", "10.0.0.1")
		s.shows("m1", "control-plane", "10.0.0.1")
		s.wait()
		s.create("a")
		s.want("a", "10.0.0.2 Assigned")
		s.create("b", ask("10.0.0.1"))
		s.explains("b", "10.0.0.1 belongs to VIP control-plane (10.0.0.1) in the file of node m1: ask for another address, or give both the same sharing key")
		s.shows("m1", "control-plane", "10.0.0.1", "other", "10.0.0.2")
		s.want("a", "10.0.0.2 AddressConflict")
		const both = "10.0.0.2 is also that of VIP other (10.0.0.2) in the file of node m1: ask for another address, or change the VIP's"
		s.explains("a", both)
		if want := "Warning a AddressConflict: " + both; !slices.Contains(s.events, want) {
			t.Errorf("events %q, want %q", s.events, want)
		}
		s.shows("m1")
		s.want("a", "10.0.0.2 Assigned")
		s.explains("b", "10.0.0.1 belongs to VIP control-plane (10.0.0.1) in the file of node m2: ask for another address, or give both the same sharing key")
		s.shows("m2")
		s.want("b", "10.0.0.1 Assigned")
		s.idle(func() { s.sleep(24 * time.Hour) })
	})
}
