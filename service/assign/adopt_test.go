package assign

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestForeign lets another controller use an address of a pool.
func TestForeign(t *testing.T) {
	world(t, func(s *server) {
		s.create("theirs", func(o *corev1.Service) {
			o.Spec.LoadBalancerClass = new(string)
			o.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "10.0.0.1"}}
		})
		s.wait()
		s.create("ours", ask("10.0.0.1"))
		s.explains("ours", "10.0.0.1 belongs to default/theirs: ask for another address, or give both the same sharing key")
		if got := s.pool("a").Status; got.Usage != "1/2" || len(got.Conflicts) != 1 {
			t.Errorf("pool: %+v", got)
		}
		s.create("theirs", func(o *corev1.Service) { o.Status.LoadBalancer.Ingress = nil })
		s.want("ours", "10.0.0.1 Assigned")
		s.want("theirs", "")
		if got := s.pool("a").Status; got.Usage != "1/2" || got.Conflicts != nil {
			t.Errorf("pool: %+v", got)
		}
	})
}

// TestUninteresting changes Services in fields that the writer does not receive.
func TestUninteresting(t *testing.T) {
	world(t, func(s *server) {
		for _, name := range []string{"a", "b", "c"} {
			s.create(name)
			s.sleep(time.Second)
		}
		s.want("c", "PoolExhausted")
		s.mu.Lock()
		watch := s.watch
		s.watch = func(func(*state)) {}
		s.mu.Unlock()
		s.create("c")
		s.mu.Lock()
		s.watch = watch
		s.mu.Unlock()
		s.delete("a")
		s.want("c", "10.0.0.1 Assigned")
	})
}

// TestMode lets another client write another ipMode.
func TestMode(t *testing.T) {
	world(t, func(s *server) {
		s.create("a")
		s.wait()
		s.create("a", func(o *corev1.Service) { o.Status.LoadBalancer.Ingress[0].IPMode = new(corev1.LoadBalancerIPModeProxy) })
		s.wait()
		if mode := *s.services["default/a"].Status.LoadBalancer.Ingress[0].IPMode; mode != corev1.LoadBalancerIPModeVIP {
			t.Errorf("ipMode %s", mode)
		}
	})
}

// TestRecreated deletes and recreates a Service between two events.
func TestRecreated(t *testing.T) {
	world(t, func(s *server) {
		s.create("a")
		s.wait()
		s.create("a", func(o *corev1.Service) { o.UID, o.Status = "", corev1.ServiceStatus{} })
		s.sleep(repairs.Min / 2) // no other client edited it
		s.want("a", "10.0.0.1 Assigned")
	})
}

// TestAdopt starts a new writer with all kinds of Services.
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
		add := func(name string, edit ...func(*corev1.Service)) {
			s.create(name, edit...)
			s.sleep(time.Second)
		}
		add("waiting")
		add("old", with("10.0.0.1"))
		add("young", with("10.0.0.1"))
		add("stray", with("10.9.9.9"))
		add("mistaken", with("10.0.0.3"), ask("nonsense"))
		add("two", with("10.0.0.4", "10.0.0.5"))
		add("name", func(o *corev1.Service) {
			o.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{Hostname: "a.example"}}
		})
		add("foreign", with("10.0.0.2"), func(o *corev1.Service) { o.Spec.LoadBalancerClass = new(string) })
		add("leaving", with("10.0.0.6"), func(o *corev1.Service) { o.DeletionTimestamp = &metav1.Time{Time: time.Now()} })
		stop := s.start()
		s.wait()
		s.doubles = nil // forget the initial ones
		s.want("old", "10.0.0.1 Assigned")
		s.want("foreign", "10.0.0.2")
		s.want("mistaken", "10.0.0.3 InvalidClaim")
		s.want("two", "10.0.0.4 Assigned")
		s.want("stray", "10.9.9.9 AddressNotInPool")
		s.want("leaving", "10.0.0.6")
		s.want("waiting", "10.0.0.7 Assigned") // 10.0.0.5 is still in a status
		s.want("young", "10.0.0.8 Assigned")
		s.want("name", "10.0.0.9 Assigned")
		want := []string{"Service default/foreign of another controller has 10.0.0.2: no other Service gets it"}
		if diff := cmp.Diff(want, s.pool("a").Status.Conflicts); diff != "" {
			t.Errorf("conflicts (-want +got):\n%s", diff)
		}
		s.create("jealous", ask("10.0.0.2"))
		s.explains("jealous", "10.0.0.2 belongs to default/foreign: ask for another address, or give both the same sharing key")
		s.delete("leaving")
		s.create("late", ask("10.0.0.6"))
		s.want("late", "10.0.0.6 Assigned")

		// The next writer finds nothing to do and writes nothing.
		stop()
		s.idle(func() {
			stop = s.start()
			s.sleep(time.Hour)
		})
		if len(s.doubles) != 0 {
			t.Errorf("two Services had %v", s.doubles)
		}
		stop()
	})
}

// TestRival lets another client write the status again and again.
func TestRival(t *testing.T) {
	world(t, func(s *server) {
		s.create("a")
		s.wait()
		before := s.written("default/a")
		for range 3600 {
			s.create("a", func(o *corev1.Service) {
				o.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "10.9.9.9"}}
			})
			s.sleep(time.Second)
		}
		if n := s.written("default/a") - before; n < 10 || n > 150 {
			t.Errorf("%d writes in an hour of edits", n)
		}
		s.sleep(2 * time.Minute)
		s.want("a", "10.0.0.1 Assigned")
	})
}
