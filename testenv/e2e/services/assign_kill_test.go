//go:build e2e

package services

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/herald-vip/herald/service/kube"
	"github.com/herald-vip/herald/testenv/e2e/site"
)

// register watches every version of every Service, and remembers the addresses that each ever had.
type register struct {
	mu  sync.Mutex
	had map[string]map[string]bool // by Service
}

// watchAddresses starts a register, which lasts until the end of the test.
func watchAddresses(t *testing.T, k *site.APIServer) *register {
	t.Helper()
	w := &register{had: make(map[string]map[string]bool)}
	i := k.Connect(t).Informers(site.Log(t))
	i.Services.Handle(kube.Handlers[*corev1.Service]{
		Set: func(s *corev1.Service) {
			w.mu.Lock()
			defer w.mu.Unlock()
			for _, in := range s.Status.LoadBalancer.Ingress {
				if w.had[s.Name] == nil {
					w.had[s.Name] = make(map[string]bool)
				}
				w.had[s.Name][in.IP] = true
			}
		},
		Delete: func(*corev1.Service) {},
	})
	site.Meanwhile(t, i.Run)
	<-i.Synced()
	return w
}

// count returns how many Services have had an address.
func (w *register) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.had)
}

// single checks that each of n Services has had exactly one address.
func (w *register) single(t *testing.T, n int) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	owner := make(map[string]string)
	for name, addrs := range w.had {
		if len(addrs) != 1 {
			t.Errorf("%s has had %v", name, addrs)
		}
		for addr := range addrs {
			if other := owner[addr]; other != "" {
				t.Errorf("%s belongs to %s and to %s", addr, other, name)
			}
			owner[addr] = name
		}
	}
	if len(w.had) != n {
		t.Errorf("%d Services have addresses, want %d", len(w.had), n)
	}
}

// create makes a Service without requests. It may be called from any goroutine.
func create(t *testing.T, k *site.APIServer, name string) {
	body := fmt.Appendf(nil, "{apiVersion: v1, kind: Service, metadata: {name: %s}, spec: {type: LoadBalancer, allocateLoadBalancerNodePorts: false, ports: [{port: 80}]}}", name)
	if err := k.API.Create(t.Context(), servicesPath, body); err != nil {
		t.Error(err)
	}
}

// TestAssignerKilled runs three candidate processes, and repeatedly kills the assigner
// while 500 Services are created.
func TestAssignerKilled(t *testing.T) {
	const services, kills = 500, 4
	k := site.StartAPIServer(t)
	createPool(t, k, "main", "{addresses: [10.0.0.0/22]}")
	w := watchAddresses(t, k)
	assigners := make(map[string]*exec.Cmd)
	for n := range 3 {
		name := fmt.Sprint("n", n)
		assigners[name] = assignerProcess(t, k, name)
	}
	var creation sync.WaitGroup
	var killed string
	for kill := range kills {
		const batch = services / kills
		creation.Wait()
		creation.Go(func() {
			for n := range batch {
				create(t, k, fmt.Sprint("s", kill*batch+n))
			}
		})
		var name string
		site.Eventually(t, site.Soon, func() (err error) {
			if had, want := w.count(), kill*batch+batch/5; had < want {
				return fmt.Errorf("%d Services have addresses, want %d", had, want)
			}
			name, killed, err = holder(k)
			return err
		})
		site.Must(t, assigners[name].Process.Signal(os.Kill))
		_ = assigners[name].Wait() // it was killed
		assigners[name] = assignerProcess(t, k, name)
	}
	creation.Wait()
	site.Eventually(t, 2*site.Soon, func() error {
		had := w.count()
		return site.ErrorIf(had < services, "%d Services have addresses", had)
	})
	w.single(t, services)
	poolBecomes(t, k, "main", fmt.Sprintf("%d/1024", services))

	// A stopped assigner releases the Lease.
	var name string
	site.Eventually(t, 2*site.Soon, func() error {
		holds, identity, err := holder(k)
		if name = holds; err == nil && identity == killed {
			err = fmt.Errorf("the killed %s has the Lease", name)
		}
		return err
	})
	site.Must(t, assigners[name].Process.Signal(syscall.SIGTERM))
	site.Must(t, assigners[name].Wait())
	site.Eventually(t, site.Soon, func() error {
		now, _, err := holder(k)
		if err == nil && now == name {
			err = fmt.Errorf("%s is still the assigner", name)
		}
		return err
	})
	var list corev1.ServiceList
	k.Do(t, http.MethodGet, servicesPath, nil, &list)
	for _, s := range list.Items {
		if n := len(s.Status.LoadBalancer.Ingress); s.Spec.Type == corev1.ServiceTypeLoadBalancer && n != 1 {
			t.Errorf("%s has %d addresses", s.Name, n)
		}
	}
}

// TestManyAtOnce starts an assigner with many waiting Services, and counts the cost of each.
func TestManyAtOnce(t *testing.T) {
	const services = 1000
	k := site.StartAPIServer(t)
	createPool(t, k, "main", "{addresses: [10.0.0.0/16]}")
	w := watchAddresses(t, k)
	var wg sync.WaitGroup
	for worker := range 16 {
		wg.Go(func() {
			for n := worker; n < services; n += 16 {
				create(t, k, fmt.Sprint("s", n))
			}
		})
	}
	wg.Wait()
	before := requests(t, k)
	startAssigner(t, k)
	start := time.Now()
	site.Eventually(t, 2*site.Soon, func() error {
		had := w.count()
		return site.ErrorIf(had < services, "%d Services have addresses", had)
	})
	t.Logf("%d Services that waited had addresses after %v", services, time.Since(start).Round(100*time.Millisecond))
	w.single(t, services)
	poolBecomes(t, k, "main", fmt.Sprintf("%d/65536", services))
	after := requests(t, k)
	for what, n := range after {
		if n -= before[what]; n > 0 {
			t.Logf("%6d %s, %.3f of each Service", n, what, float64(n)/services)
		}
	}
	if n := after["PATCH services"] - before["PATCH services"]; n != services {
		t.Errorf("%d writes of the status of %d Services", n, services)
	}
	var events corev1.EventList // Herald's: the API server writes some of its own
	k.Do(t, http.MethodGet, "/api/v1/events?fieldSelector=source=herald", nil, &events)
	if len(events.Items) > 0 {
		t.Errorf("events although each Service got its addresses: %v", events.Items)
	}
	createBalancer(t, k, "refused", "herald.dev/pool: none", "")
	becomes(t, k, "refused", "NoPool")
	t.Run("no requests without changes", func(t *testing.T) { testIdle(t, k) })
}
