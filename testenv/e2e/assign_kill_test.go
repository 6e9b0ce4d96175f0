//go:build e2e

package e2e

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

	"github.com/herald-vip/herald/kube"
)

// register hears of every version of every Service, and remembers which addresses
// each has ever had.
type register struct {
	mu  sync.Mutex
	had map[string]map[string]bool // by Service
}

// watchAddresses starts a register, which is there until the test is over.
func (k *kubeServer) watchAddresses(t *testing.T) *register {
	t.Helper()
	w := &register{had: make(map[string]map[string]bool)}
	i := k.connect(t).Informers(testLog(t))
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
	var wg sync.WaitGroup
	wg.Go(func() { i.Run(t.Context()) })
	t.Cleanup(wg.Wait) // the context of a test ends before
	<-i.Synced()
	return w
}

// count is how many Services have had an address.
func (w *register) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.had)
}

// one checks that each of n Services has had one address, and only it.
func (w *register) one(t *testing.T, n int) {
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
				t.Errorf("%s is that of %s and of %s", addr, other, name)
			}
			owner[addr] = name
		}
	}
	if len(w.had) != n {
		t.Errorf("%d Services have addresses, want %d", len(w.had), n)
	}
}

// create makes a Service that asks for nothing. It may be called from any goroutine.
func (k *kubeServer) create(t *testing.T, name string) {
	body := fmt.Appendf(nil, "{apiVersion: v1, kind: Service, metadata: {name: %s}, spec: {type: LoadBalancer, allocateLoadBalancerNodePorts: false, ports: [{port: 80}]}}", name)
	if err := k.try(http.MethodPost, servicesPath, body, nil); err != nil {
		t.Error(err)
	}
}

// TestWriterKilled has three processes stand for writer, and kills the writer again
// and again while 500 Services are created.
func TestWriterKilled(t *testing.T) {
	const services, kills = 500, 4
	k := newKubeServer(t)
	k.pool(t, "main", "{addresses: [10.0.0.0/22]}")
	w := k.watchAddresses(t)
	writers := make(map[string]*exec.Cmd)
	for n := range 3 {
		name := fmt.Sprint("n", n)
		writers[name] = k.writerProcess(t, name)
	}
	var creation sync.WaitGroup
	for kill := range kills {
		const batch = services / kills
		creation.Wait()
		creation.Go(func() {
			for n := range batch {
				k.create(t, fmt.Sprint("s", kill*batch+n))
			}
		})
		var name string
		eventually(t, soon, func() (err error) {
			if had, want := w.count(), kill*batch+batch/5; had < want {
				return fmt.Errorf("%d Services have addresses, want %d", had, want)
			}
			name, err = k.holder()
			return err
		})
		must(t, writers[name].Process.Signal(os.Kill))
		_ = writers[name].Wait() // it was killed
		writers[name] = k.writerProcess(t, name)
	}
	creation.Wait()
	eventually(t, 2*soon, func() error {
		if had := w.count(); had < services {
			return fmt.Errorf("%d Services have addresses", had)
		}
		return nil
	})
	w.one(t, services)
	k.poolBecomes(t, "main", fmt.Sprintf("%d/1024", services))

	// One that is asked to stop gives the Lease back.
	name, err := k.holder()
	must(t, err)
	must(t, writers[name].Process.Signal(syscall.SIGTERM))
	must(t, writers[name].Wait())
	eventually(t, soon, func() error {
		now, err := k.holder()
		if err == nil && now == name {
			err = fmt.Errorf("%s is the writer still", name)
		}
		return err
	})
	var list corev1.ServiceList
	k.do(t, http.MethodGet, servicesPath, nil, &list)
	for _, s := range list.Items {
		if n := len(s.Status.LoadBalancer.Ingress); s.Spec.Type == corev1.ServiceTypeLoadBalancer && n != 1 {
			t.Errorf("%s has %d addresses", s.Name, n)
		}
	}
}

// TestManyAtOnce has a writer find many Services that wait, and counts what each
// costs.
func TestManyAtOnce(t *testing.T) {
	const services = 1000
	k := newKubeServer(t)
	k.pool(t, "main", "{addresses: [10.0.0.0/16]}")
	w := k.watchAddresses(t)
	var wg sync.WaitGroup
	for worker := range 16 {
		wg.Go(func() {
			for n := worker; n < services; n += 16 {
				k.create(t, fmt.Sprint("s", n))
			}
		})
	}
	wg.Wait()
	before := k.requests(t)
	k.startWriter(t)
	start := time.Now()
	eventually(t, 2*soon, func() error {
		if had := w.count(); had < services {
			return fmt.Errorf("%d Services have addresses", had)
		}
		return nil
	})
	t.Logf("%d Services that waited had addresses after %v", services, time.Since(start).Round(100*time.Millisecond))
	w.one(t, services)
	k.poolBecomes(t, "main", fmt.Sprintf("%d/65536", services))
	after := k.requests(t)
	for what, n := range after {
		if n -= before[what]; n > 0 {
			t.Logf("%6d %s, %.3f of each Service", n, what, float64(n)/services)
		}
	}
	if n := after["PATCH services"] - before["PATCH services"]; n != services {
		t.Errorf("%d writes of the status of %d Services", n, services)
	}
	if n := after["POST events"] - before["POST events"]; n > 0 {
		t.Errorf("%d events though each got what it asks for", n)
	}
	k.balancer(t, "refused", "herald.dev/pool: none", "")
	k.becomes(t, "refused", "NoPool")
	t.Run("nothing is sent while nothing changes", k.testIdle)
}
