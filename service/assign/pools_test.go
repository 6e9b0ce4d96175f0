package assign

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/service"
)

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
		s.createPool("B", nil, "10.1.0.200-10.1.0.210") // younger, but first by name
		s.create("b", func(o *corev1.Service) { o.Labels = map[string]string{"tier": "b"} })
		s.create("a")
		s.create("c", annotate(service.AnnotationPool, "c"))
		s.want("a", "10.0.0.1 Assigned")
		s.want("b", "10.1.0.0 Assigned")
		s.want("c", "NoPool")
		s.label("default", map[string]string{"team": "c"})
		s.want("c", "10.2.0.0 Assigned")

		const overlap = `pool "B" (10.1.0.200-10.1.0.210) and pool "b" (10.1.0.0/24) overlap: remove the common addresses from one of them`
		for name, want := range map[string]struct{ usage, ready, message string }{
			"a": {"1/2", "True", "Services get addresses from it"},
			"b": {"1/256, 0/2^64", "True", "Services get addresses from it"},
			"c": {"1/256", "True", "Services get addresses from it"},
			"B": {"", "False", overlap},
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
		if got := s.pool("B").Status.Conflicts; len(got) != 1 || got[0] != overlap {
			t.Errorf("conflicts %q", got)
		}

		// After the older pool is deleted, the younger is in force. The Service keeps its addresses.
		s.deletePool("b")
		s.want("b", "10.1.0.0 AddressNotInPool")
		s.watch(func(st *state) {
			if _, refused := st.count(); refused["AddressNotInPool"] != 1 {
				t.Errorf("refused Services %v, want b", refused)
			}
		})
		if got := s.pool("B").Status; got.Usage != "0/11" || got.Conflicts != nil {
			t.Errorf("pool B: %+v", got)
		}
	})
}

// TestPace creates many Services one after another while some are waiting.
func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		s.createPool("a", nil, "10.0.0.0/16")
		for n := range 100 {
			s.create(fmt.Sprint("waiting", n))
		}
		stop := s.start()
		s.wait()
		if s.most > mostWrites+1 { // plus one of the pool
			t.Errorf("%d requests at once", s.most)
		}
		before := s.written("pool a")
		for n := range 300 {
			s.create(fmt.Sprint("s", n))
			s.sleep(10 * time.Millisecond)
		}
		s.wait()
		if n := s.written("pool a") - before; n > 5 {
			t.Errorf("%d writes of the pool's status within 4 s", n)
		}
		if got := s.pool("a").Status.Usage; got != "400/65536" {
			t.Errorf("usage %s", got)
		}
		if got, want := s.total(), 400+s.written("pool a"); got != want {
			t.Errorf("%d writes, want one of each Service and %d of the pool", got, want-400)
		}
		stop()
	})
}
