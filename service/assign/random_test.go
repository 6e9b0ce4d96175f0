package assign

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/service"
)

// TestRandom creates, changes and deletes Services and pools, lets requests fail in all
// ways, and kills writers. It checks every version of every Service: none ever has an
// address of another.
func TestRandom(t *testing.T) { randomly(t, false) }

// TestRandomLate is TestRandom with requests that take effect a second after their
// writer died: the damage is repaired.
func TestRandomLate(t *testing.T) { randomly(t, true) }

func randomly(t *testing.T, late bool) {
	const seeds = 15
	served := 0
	for seed := range uint64(seeds) {
		synctest.Test(t, func(t *testing.T) { served += random(t, seed, late) })
	}
	if served < seeds {
		t.Errorf("%d Services are served in %d runs: too few for a test", served, seeds)
	}
}

// random returns how many Services are served in the end.
func random(t *testing.T, seed uint64, late bool) (served int) {
	s, r := newServer(t), rand.New(rand.NewPCG(seed, 3))
	s.createPool("a", nil, "10.0.0.1-10.0.0.9", "fd00::1-fd00::5")
	stop := s.start()
	spoil := func(string) (before, after error) {
		switch n := s.random.IntN(20); {
		case n == 0:
			return errCut, nil
		case n == 1:
			return nil, errCut
		case n == 2 && late:
			return errLate, nil
		}
		return nil, nil
	}
	s.spoil(spoil)
	for range 300 {
		switch n := r.IntN(20); {
		case n < 3:
			s.delete(fmt.Sprint("s", r.IntN(15)))
		case n == 3:
			stop()
			stop = s.start()
		case n == 6:
			s.node(fmt.Sprint("n", r.IntN(3)), []corev1.ConditionStatus{"True", "True", "Unknown"}[r.IntN(3)])
		case n == 7:
			s.tells(fmt.Sprint("n", r.IntN(3)), someTelling(r.IntN(4)))
		case n == 4:
			s.createPool("a", nil, v1alpha1.AddressRange(fmt.Sprintf("10.0.0.%d-10.0.0.9", 1+r.IntN(5))), "fd00::1-fd00::5")
		case n == 5:
			s.createPool("b", func(p *v1alpha1.AddressPoolSpec) { p.Priority = int32(r.IntN(3)) - 1 }, v1alpha1.AddressRange(fmt.Sprintf("10.0.0.%d-10.0.0.20", 8+r.IntN(5))))
		default:
			s.create(fmt.Sprint("s", r.IntN(15)), someEdit(r))
		}
		time.Sleep(time.Duration(r.IntN(20)) * time.Millisecond)
	}
	s.spoil(nil)
	s.late.Wait()
	s.sleep(2 * time.Minute)
	if !late && len(s.doubles) > 0 {
		t.Errorf("seed %d: two Services had %v", seed, s.doubles)
	}
	s.mu.Lock()
	s.doubles = nil
	for key, o := range s.services {
		s.check(nil, o)
		c := conditionOf(o)
		switch ours := options.Scope.Ours(o); {
		case ours && c == nil, !ours && (c != nil || len(service.StatusAddresses(o)) > 0):
			t.Errorf("seed %d: %s has %v, and the condition %v", seed, key, service.StatusAddresses(o), c)
		case ours && c.Status == metav1.ConditionTrue && len(service.StatusAddresses(o)) == 0:
			t.Errorf("seed %d: %s has no address, but its condition says that it has", seed, key)
		case ours && c.Status == metav1.ConditionTrue:
			served++
		}
	}
	if len(s.doubles) > 0 {
		t.Errorf("seed %d: two Services have %v in the end", seed, s.doubles)
	}
	if wrong := s.checkAnnounced(); len(wrong) > 0 {
		t.Errorf("seed %d: conditions contradict the reports: %q", seed, wrong)
	}
	s.mu.Unlock()

	// Everything is consistent: another writer finds nothing to do.
	stop()
	before := s.total()
	stop = s.start()
	s.wait()
	if n := s.total() - before; n != 0 {
		t.Errorf("seed %d: the next writer made %d requests", seed, n)
	}
	stop()
	return served
}

// someEdit changes a Service.
func someEdit(r *rand.Rand) func(*corev1.Service) {
	switch r.IntN(9) {
	case 0:
		return ask(fmt.Sprintf("10.0.0.%d", 1+r.IntN(9)))
	case 1:
		return ask("")
	case 2:
		return ask("nonsense")
	case 3:
		return annotate(service.AnnotationShare, []string{"", "k", "l"}[r.IntN(3)])
	case 4:
		return annotate(service.AnnotationPool, []string{"", "a", "b", "none"}[r.IntN(4)])
	case 5:
		return port(int32(80 + r.IntN(3)))
	case 6:
		return func(s *corev1.Service) {
			s.Spec.Type = []corev1.ServiceType{"ClusterIP", "LoadBalancer", "LoadBalancer"}[r.IntN(3)]
		}
	case 7:
		return func(s *corev1.Service) {
			s.Spec.IPFamilies = [][]corev1.IPFamily{{"IPv4"}, {"IPv6"}, {"IPv4", "IPv6"}}[r.IntN(3)]
			s.Spec.IPFamilyPolicy = new([]corev1.IPFamilyPolicy{"PreferDualStack", "RequireDualStack"}[r.IntN(2)])
		}
	default:
		return func(*corev1.Service) {}
	}
}
