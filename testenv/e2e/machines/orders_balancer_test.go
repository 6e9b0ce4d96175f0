//go:build e2e

package machines

import (
	"net/http"
	"strings"
	"testing"

	"github.com/herald-vip/herald/status/admin"
	"github.com/herald-vip/herald/testenv/clab"
	"github.com/herald-vip/herald/testenv/e2e/site"
	"github.com/herald-vip/herald/testenv/lab"
)

// TestBootOrdersBehindBalancer boots two masters and a worker, m3, with their
// user-data, the worker first, in between and last. 127.0.0.1:9443 refuses connections
// until an apiserver is ready, and then leads to the ready ones.
func TestBootOrdersBehindBalancer(t *testing.T) {
	masters := readUserData(t, "master-local.yaml", masterWords(t)).image(t)
	worker := readUserData(t, "worker.yaml", masterWords(t)).image(t)
	either := func(n clab.Node) (lab.Program, error) {
		if n.Name == "m3-speaker" {
			return worker(n)
		}
		return masters(n)
	}
	s := newMachines(t, either, masters)
	for _, order := range []string{"m3 m1 m2", "m1 m3 m2", "m2 m1 m3"} {
		if !t.Run(order, func(t *testing.T) { s.testBalancedOrder(t, strings.Fields(order)) }) {
			return // the state of the machines is unknown
		}
	}
}

func (s *machines) testBalancedOrder(t *testing.T, order []string) {
	for _, name := range order {
		site.PowerOn(t, s.Node(name))
	}
	all := s.named("m1", "m2", "m3")
	for _, m := range all[:2] {
		s.kubeadm(t, m)
	}
	for _, m := range all {
		m.Shows(t, func(status admin.Status) error {
			n := len(status.Balancers[0].Backends)
			return site.ErrorIf(n != 2 || status.Balancers[0].Serving() != 0,
				"%s has %+v, want the two masters, which do not serve", m, status.Balancers)
		})
		if status := s.behind(t, m); status != 0 {
			t.Errorf("before any apiserver is ready %s gets the answer %d", m, status)
		}
	}
	s.ready(all[0])
	s.served(t, all...)
	s.ready(all[1])
	s.loses(t, all[0])
	s.served(t, all[1:]...)
	for _, m := range all[1:] {
		site.Must(t, m.Base().PowerOff())
	}
	s.apiservers["m2"].stop()
}

// behind returns the HTTP status that a machine gets through its balancer; 0 for none.
func (s *machines) behind(t *testing.T, m site.Master) int {
	t.Helper()
	config := s.pki.Client(t)
	config.ServerName = "kubernetes"
	transport := &http.Transport{DialContext: m.Base().DialContext, TLSClientConfig: config, DisableKeepAlives: true}
	client := http.Client{Transport: transport, Timeout: site.Soon}
	return site.Ask(t.Context(), &client, "https://127.0.0.1:9443/readyz")
}

// served waits until all machines reach a ready apiserver.
func (s *machines) served(t *testing.T, all ...site.Master) {
	t.Helper()
	for _, m := range all {
		site.Eventually(t, site.Soon, func() error {
			status := s.behind(t, m)
			return site.ErrorIf(status != http.StatusOK, "%s is answered %d", m, status)
		})
	}
}
