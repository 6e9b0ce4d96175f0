package assign

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/service"
)

// world runs a test in virtual time with a writer and a server, whose pool "a" is
// 10.0.0.1 to 10.0.0.2.
func world(t *testing.T, test func(s *server)) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		s.createPool("a", nil, "10.0.0.1-10.0.0.2")
		stop := s.start()
		s.settle()
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
		s.settle()
		s.want("web", "10.0.0.1 Assigned")
		ingress := s.services["default/web"].Status.LoadBalancer.Ingress
		if len(ingress) != 1 || *ingress[0].IPMode != corev1.LoadBalancerIPModeVIP {
			t.Errorf("status %v, want ipMode VIP", ingress)
		}
		if s.written("default/web") != 1 || len(s.events) != 0 {
			t.Errorf("%d writes and the events %v, want one write", s.written("default/web"), s.events)
		}
		before := s.total()
		s.sleep(24 * time.Hour)
		if n := s.total() - before; n != 0 {
			t.Errorf("%d requests in a day in which nothing happened", n)
		}
	})
}

func TestRefusedOnce(t *testing.T) {
	world(t, func(s *server) {
		for _, name := range []string{"a", "b", "c", "d"} {
			s.create(name)
			s.sleep(time.Second)
		}
		s.settle()
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
		s.settle()
		s.want("c", "10.0.0.1 Assigned") // the older
		s.want("d", "PoolExhausted")
		s.createPool("a", nil, "10.0.0.1-10.0.0.9")
		s.settle()
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
		s.settle()
		s.create("b", ask("10.0.0.2"))
		s.settle()
		s.want("b", "AddressConflict")
		s.create("a", ask("10.0.0.1"))
		s.settle()
		s.want("a", "10.0.0.1 Assigned")
		s.want("b", "10.0.0.2 Assigned")
		if want := "Normal a AddressMoved: it has 10.0.0.1 in place of 10.0.0.2"; !contains(s.events, want) {
			t.Errorf("events %q, want %q", s.events, want)
		}
	})
}

func TestShare(t *testing.T) {
	world(t, func(s *server) {
		shared := annotate(service.AnnotationShare, "k")
		s.create("a", shared, port(80))
		s.settle()
		s.create("b", shared, port(443))
		s.create("c", shared, port(80))
		s.settle()
		s.want("a", "10.0.0.1 Assigned")
		s.want("b", "10.0.0.1 Assigned")
		s.want("c", "10.0.0.2 Assigned")
		s.create("d", shared, ask("10.0.0.1"), port(80))
		s.settle()
		s.want("d", "AddressConflict")
		s.create("a", port(81)) // 80 is free
		s.settle()
		s.want("a", "10.0.0.1 Assigned")
		s.want("d", "10.0.0.1 Assigned")
	})
}

func TestMistakeKeepsAddress(t *testing.T) {
	world(t, func(s *server) {
		s.create("a")
		s.settle()
		s.create("a", ask("10.0.0.300"))
		s.settle()
		s.want("a", "10.0.0.1 InvalidClaim")
		if got, want := s.message("a"), `herald.dev/addresses has "10.0.0.300": want an address such as 10.1.0.1 or fd00::1`; got != want {
			t.Errorf("message %q, want %q", got, want)
		}
		s.create("a", ask(""))
		s.settle()
		s.want("a", "10.0.0.1 Assigned")
	})
}

func TestNotOursAnyMore(t *testing.T) {
	world(t, func(s *server) {
		other := metav1.Condition{Type: "example.com/Other", Status: metav1.ConditionTrue, Reason: "Yes"}
		s.create("a", func(o *corev1.Service) { o.Status.Conditions = []metav1.Condition{other} })
		s.create("b", ask("10.0.0.1"))
		s.settle()
		s.want("a", "10.0.0.1 Assigned")
		s.create("a", func(o *corev1.Service) { o.Spec.Type = corev1.ServiceTypeClusterIP })
		s.settle()
		s.want("a", "")
		s.want("b", "10.0.0.1 Assigned")
		if got := s.services["default/a"].Status.Conditions; len(got) != 1 || got[0] != other {
			t.Errorf("conditions %v, want those of others", got)
		}
		s.create("a", func(o *corev1.Service) { o.Spec.Type = corev1.ServiceTypeLoadBalancer })
		s.settle()
		s.want("a", "10.0.0.2 Assigned")
	})
}

// TestReleaseAfterWrite has the server take no write that clears a status: nobody
// else is given the address.
func TestReleaseAfterWrite(t *testing.T) {
	world(t, func(s *server) {
		s.create("a")
		s.settle()
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
		if got, want := s.message("b"), "10.0.0.1 belongs to default/a, which is leaving 10.0.0.1: ask for another address, or give both the same sharing key"; got != want {
			t.Errorf("message %q, want %q", got, want)
		}
		s.spoil(nil)
		s.sleep(retryLast + time.Second)
		s.want("a", "10.0.0.2 Assigned")
		s.want("b", "10.0.0.1 Assigned")
	})
}

// TestAdopt has a new writer find all kinds of things.
func TestAdopt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		s.createPool("a", nil, "10.0.0.1-10.0.0.9", "fd00::/120")
		with := func(addrs ...string) func(*corev1.Service) {
			return func(o *corev1.Service) {
				for _, a := range addrs {
					o.Status.LoadBalancer.Ingress = append(o.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: a})
				}
			}
		}
		for _, c := range []struct {
			name string
			edit []func(*corev1.Service)
		}{
			{"waiting", nil},
			{"old", []func(*corev1.Service){with("10.0.0.1")}},
			{"young", []func(*corev1.Service){with("10.0.0.1")}},
			{"stray", []func(*corev1.Service){with("10.9.9.9")}},
			{"mistaken", []func(*corev1.Service){with("10.0.0.3"), ask("nonsense")}},
			{"two", []func(*corev1.Service){with("10.0.0.4", "10.0.0.5")}},
			{"name", []func(*corev1.Service){func(o *corev1.Service) {
				o.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{Hostname: "a.example"}}
			}}},
			{"foreign", []func(*corev1.Service){with("10.0.0.2"), func(o *corev1.Service) { o.Spec.LoadBalancerClass = new(string) }}},
			{"leaving", []func(*corev1.Service){with("10.0.0.6"), func(o *corev1.Service) { o.DeletionTimestamp = &metav1.Time{Time: time.Now()} }}},
		} {
			s.create(c.name, c.edit...)
			s.sleep(time.Second)
		}
		stop := s.start()
		s.settle()
		s.doubles = nil // until now, as made
		s.want("old", "10.0.0.1 Assigned")
		s.want("foreign", "10.0.0.2")
		s.want("mistaken", "10.0.0.3 InvalidClaim")
		s.want("two", "10.0.0.4 Assigned")
		s.want("stray", "10.9.9.9 AddressNotInPool")
		s.want("leaving", "10.0.0.6")
		s.want("waiting", "10.0.0.7 Assigned") // 10.0.0.5 is still written down
		s.want("young", "10.0.0.8 Assigned")
		s.want("name", "10.0.0.9 Assigned")
		want := []string{"Service default/foreign, which is not Herald's, has 10.0.0.2: nobody else is given it"}
		if diff := cmp.Diff(want, s.pool("a").Status.Conflicts); diff != "" {
			t.Errorf("conflicts (-want +got):\n%s", diff)
		}
		s.delete("leaving")
		s.create("late", ask("10.0.0.6"))
		s.settle()
		s.want("late", "10.0.0.6 Assigned")

		// The next writer finds all in order, and writes nothing.
		stop()
		before := s.total()
		stop = s.start()
		s.sleep(time.Hour)
		if n := s.total() - before; n != 0 || len(s.doubles) != 0 {
			t.Errorf("a new writer made %d requests; two Services had %v", n, s.doubles)
		}
		stop()
	})
}

func TestPools(t *testing.T) {
	world(t, func(s *server) {
		s.sleep(time.Second)
		s.createPool("b", func(p *v1alpha1.AddressPoolSpec) {
			p.Priority = 10
			p.ServiceSelectors = []v1alpha1.LabelSelector{{MatchLabels: map[string]string{"tier": "b"}}}
		}, "10.1.0.0/24", "fd00::/64")
		s.createPool("c", func(p *v1alpha1.AddressPoolSpec) {
			p.AutoAssign = new(bool)
			p.NamespaceSelectors = []v1alpha1.LabelSelector{{MatchLabels: map[string]string{"team": "c"}}}
		}, "10.2.0.0/24")
		s.sleep(time.Second)
		s.createPool("d", nil, "10.1.0.200-10.1.0.210")
		s.create("b", func(o *corev1.Service) { o.Labels = map[string]string{"tier": "b"} })
		s.create("a")
		s.create("c", annotate(service.AnnotationPool, "c"))
		s.settle()
		s.want("a", "10.0.0.1 Assigned")
		s.want("b", "10.1.0.0 Assigned")
		s.want("c", "NoPool")
		s.label("default", map[string]string{"team": "c"})
		s.settle()
		s.want("c", "10.2.0.0 Assigned")

		const overlap = `pool "b" (10.1.0.0/24) and pool "d" (10.1.0.200-10.1.0.210) overlap: leave the addresses that both have to one of them`
		for name, want := range map[string]struct{ usage, ready, message string }{
			"a": {"1/2", "True", "Services are given addresses of it"},
			"b": {"1/256, 0/2^64", "True", "Services are given addresses of it"},
			"c": {"1/256", "True", "Services are given addresses of it"},
			"d": {"", "False", overlap},
		} {
			status := s.pool(name).Status
			if len(status.Conditions) != 1 {
				t.Fatalf("pool %s: conditions %v", name, status.Conditions)
			}
			c := status.Conditions[0]
			if status.Usage != want.usage || string(c.Status) != want.ready || c.Message != want.message {
				t.Errorf("pool %s: %q, %s, %q, want %v", name, status.Usage, c.Status, c.Message, want)
			}
		}
		if got := s.pool("b").Status.IPv6.Capacity; got != "18446744073709551616" {
			t.Errorf("capacity %s", got)
		}
		if got := s.pool("d").Status.Conflicts; len(got) != 1 || got[0] != overlap {
			t.Errorf("conflicts %q", got)
		}

		// The older one goes: the younger is put in force. Its Service keeps what it has.
		s.deletePool("b")
		s.settle()
		s.want("b", "10.1.0.0 AddressNotInPool")
		if got := s.pool("d").Status; got.Usage != "0/11" || got.Conflicts != nil {
			t.Errorf("pool d: %+v", got)
		}
	})
}

// TestPoolStatusIsPaced has many Services come at once.
func TestPoolStatusIsPaced(t *testing.T) {
	world(t, func(s *server) {
		s.createPool("a", nil, "10.0.0.0/16")
		s.settle()
		before := s.written("pool a")
		for range 1000 {
			s.create("s" + time.Now().Format("150405.000000000"))
			s.sleep(time.Millisecond)
		}
		s.settle()
		if got := s.pool("a").Status.Usage; got != "1000/65536" {
			t.Errorf("usage %s", got)
		}
		if n := s.written("pool a") - before; n > 7 {
			t.Errorf("%d writes of the pool's status within 6 s", n)
		}
		if n := len(s.services); s.total()-len(s.writes) > 20 || n != 1000 {
			t.Errorf("%d writes for %d Services", s.total(), n)
		}
	})
}

// TestRival has somebody else write the status again and again.
func TestRival(t *testing.T) {
	world(t, func(s *server) {
		s.create("a")
		s.settle()
		before := s.written("default/a")
		for range 3600 {
			s.create("a", func(o *corev1.Service) {
				o.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "10.9.9.9"}}
			})
			s.sleep(time.Second)
		}
		if n := s.written("default/a") - before; n < 10 || n > 150 {
			t.Errorf("%d writes in an hour of quarrel", n)
		}
		s.sleep(2 * time.Minute)
		s.want("a", "10.0.0.1 Assigned")
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
		s.settle()
		s.want("prefer", "10.0.0.1 Assigned")
		s.want("require", "NoPool")
		s.createPool("six", nil, "fd00::/120")
		s.settle()
		s.want("prefer", "fd00:: 10.0.0.1 Assigned")
		s.want("require", "fd00::1 10.0.0.2 Assigned")
	})
}

func contains(list []string, want string) bool {
	for _, s := range list {
		if s == want {
			return true
		}
	}
	return false
}
